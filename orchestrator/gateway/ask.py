"""The tool ``ask_user``: the agent asks whoever the work is for. The user is played from a file that no sandbox holds."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from orchestrator.gateway.bundled import read_bundled, unusable
from orchestrator.gateway.findings import printable
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.toolbox import ArgumentsError, Effect, Tool, ToolAnswer
from orchestrator.gateway.wire import LaunchBody
from orchestrator.interfaces import BundleSource
from orchestrator.records.outcome import Question
from orchestrator.spec.user import UserReply, UserScript
from orchestrator.spec.wording import Pattern, mentions

_MOST_NAMED = 20
"""Mistakes of one kind that are named."""
LONGEST_QUESTION = 2000
"""Characters of one question."""

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["question"],
    "properties": {
        "question": {
            "type": "string",
            "minLength": 1,
            "maxLength": LONGEST_QUESTION,
            "description": "One question, with all that is needed to understand it.",
        }
    },
}


class ScriptedUser:
    """Answers questions from a script: always in the same way for the same questions in the same order."""

    def __init__(self, script: UserScript) -> None:
        self._script = script
        self._patterns = {reply.id: Pattern(reply.regex) for reply in script.replies if reply.regex is not None}
        self._said: set[str] = set()

    def answer(self, question: str) -> tuple[str | None, str]:
        """Return the id of the reply, None when none fits, and what the user says."""
        for reply in self._script.replies:
            if not (reply.once and reply.id in self._said) and self._fits(reply, question):
                self._said.add(reply.id)
                return reply.id, reply.say
        return None, self._script.otherwise

    def _fits(self, reply: UserReply, question: str) -> bool:
        pattern = self._patterns.get(reply.id)
        if pattern is not None and not pattern.found_in(question):
            return False
        return all(mentions(question, phrases) for phrases in reply.mentions)


async def scripted_user(body: LaunchBody, bundles: BundleSource) -> ScriptedUser | None:
    """Return the user of a launch's task; None: there is nobody to ask. Raises Refusal and StoreError."""
    if body.user is None or body.world is None:
        return None
    try:
        script = await read_bundled(bundles, body.world, "user.json", UserScript)
    except ValidationError as error:
        raise unusable("user_unusable", f"the replies of task {body.task} are", error) from None
    if script is None:
        msg = f"task {body.task} has a user and no replies for it in its bundle"
        raise Refusal(400, "user_missing", msg)
    return ScriptedUser(script)


def ask_tool(launch: Launch, user: ScriptedUser, most: int) -> Tool:
    """Return the tool of a launch whose user answers ``most`` questions. What is asked is kept for the seal."""
    asked: list[Question] = []
    launch.tools.questions = asked

    def put(question: str) -> str:
        reply, words = user.answer(question)
        asked.append(Question(question=question, reply=reply))
        return words

    def recall(arguments: dict[str, Any]) -> None:
        put(_question(arguments))

    def prepare(arguments: dict[str, Any]) -> Effect:
        question = _question(arguments)

        async def ask() -> ToolAnswer:
            if len(asked) >= most:
                msg = f"the user has answered {most} questions and says no more; go on with what you know, or finish"
                return ToolAnswer(outcome="refused", kind="user_gone", message=msg)
            words = put(question)
            return ToolAnswer(data={"reply": words, "questions_left": most - len(asked)})

        return ask

    return Tool(
        name="ask_user",
        description="Ask the user a question that only the user can answer, and get the reply. "
        "Find out yourself what can be found out.",
        schema=_SCHEMA,
        prepare=prepare,
        recall=recall,
    )


def _question(arguments: dict[str, Any]) -> str:
    """Return the question. Raises ArgumentsError."""
    problems = [
        f"{printable(name, 60)}: is not a field of ask_user"
        for name in sorted(set(arguments) - {"question"})[:_MOST_NAMED]
    ]
    question = arguments.get("question")
    if question is None:
        problems.append("question: is missing")
    elif not isinstance(question, str) or not question.strip():
        problems.append("question: must be a text that is not empty")
    elif len(question) > LONGEST_QUESTION:
        problems.append(f"question: has {len(question)} characters, at most {LONGEST_QUESTION} are taken")
    if problems or not isinstance(question, str):
        raise ArgumentsError("; ".join(problems))
    return question
