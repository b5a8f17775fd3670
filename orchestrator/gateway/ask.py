"""The tool ``ask_user``: the agent asks whoever the work is for. The user is played from files that no sandbox holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from pydantic import JsonValue, ValidationError

from orchestrator.errors import StoreError
from orchestrator.gateway.bundled import read_bundled, unusable
from orchestrator.gateway.calls import Trying
from orchestrator.gateway.clock import waiting
from orchestrator.gateway.findings import printable
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.models import Models
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.simulator import Act, ModelUser
from orchestrator.gateway.toolbox import ArgumentsError, Effect, Tool, ToolAnswer
from orchestrator.gateway.users import Reply, TaskUser, UserError, UserTool
from orchestrator.gateway.wire import LaunchBody
from orchestrator.gateway.worlds.engine import LaunchWorld
from orchestrator.interfaces import BundleSource
from orchestrator.records.outcome import Question
from orchestrator.records.usage import Usage
from orchestrator.spec.user import UserReply, UserScript
from orchestrator.spec.wording import Pattern, mentions

_MOST_NAMED = 20
"""Mistakes of one kind that are named."""
LONGEST_QUESTION = 8000
"""Characters of one question, or of one turn of a conversation."""
_KEPT = 500
"""Characters of a played user's words that are kept with the question."""
_SECONDS = 300
"""For one reply: longer than a model that plays the user may take."""

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
    """Answers questions from a script: always in the same way for the same questions in the same order. Implements TaskUser."""

    def __init__(self, script: UserScript, act: Act | None = None) -> None:
        """``act`` does what a reply calls of the world's tools."""
        self._script = script
        self._act = act
        self._patterns = {reply.id: Pattern(reply.regex) for reply in script.replies if reply.regex is not None}
        self._said: set[str] = set()

    async def reply(self, question: str, trying: Trying, spent: Callable[[Usage], None]) -> Reply:
        """Return the reply that fits first, having done what it calls."""
        found = self._find(question)
        if found is None:
            return Reply(words=self._script.otherwise)
        calls: tuple[dict[str, Any], ...] = ()
        if found.call is not None and self._act is not None:
            result = await self._act(found.call.tool, found.call.arguments)
            calls = ({"tool": found.call.tool, "arguments": found.call.arguments, "result": result},)
        return Reply(words=found.say, id=found.id, ends=found.ends, calls=calls)

    def recall(self, question: str, words: str) -> None:
        """Know a turn that an earlier process has had."""
        self._find(question)

    def _find(self, question: str) -> UserReply | None:
        for reply in self._script.replies:
            if not (reply.once and reply.id in self._said) and self._fits(reply, question):
                self._said.add(reply.id)
                return reply
        return None

    def _fits(self, reply: UserReply, question: str) -> bool:
        pattern = self._patterns.get(reply.id)
        if pattern is not None and not pattern.found_in(question):
            return False
        return all(mentions(question, phrases) for phrases in reply.mentions)


async def task_user(
    body: LaunchBody, bundles: BundleSource, models: Models, world: LaunchWorld | None
) -> TaskUser | None:
    """Return the user of a launch's task; None: there is nobody to ask. Raises Refusal and StoreError."""
    if body.user is None or body.world is None:
        return None
    act = _acting(body, world)
    if body.user.mode == "model":
        return await _played(body, bundles, models, world, act)
    try:
        script = await read_bundled(bundles, body.world, "user.json", UserScript)
    except ValidationError as error:
        raise unusable("user_unusable", f"the replies of task {body.task} are", error) from None
    if script is None:
        msg = f"task {body.task} has a user and no replies for it in its bundle"
        raise Refusal(400, "user_missing", msg)
    return ScriptedUser(script, act)


async def _played(
    body: LaunchBody, bundles: BundleSource, models: Models, world: LaunchWorld | None, act: Act
) -> ModelUser:
    user, digest = body.user, body.world
    if user is None or user.model is None or digest is None:
        msg = f"task {body.task} has a user without a model"
        raise Refusal(400, "user_unusable", msg)
    folder = await bundles.fetch("world", digest)
    try:
        prompt = await asyncio.to_thread((folder / "persona.md").read_text, encoding="utf-8")
    except FileNotFoundError:
        msg = f"task {body.task} has a user and no persona for it in its bundle"
        raise Refusal(400, "user_missing", msg) from None
    if body.budgets.max_cost_usd is not None and body.user_price is None:
        msg = f"the task limits the cost, and model {user.model}, which plays its user, has no price"
        raise Refusal(400, "unpriced_model", msg)
    own = [] if world is None else [tool for tool in world.spec.tools if tool.caller == "user"]
    tools = [UserTool(tool.name, tool.description, tool.arguments) for tool in own]
    return ModelUser(models.configured(user.model), body.user_price, prompt, user.opening, tools=tools, act=act)


def _acting(body: LaunchBody, world: LaunchWorld | None) -> Act:
    """Return what does a call of the user's in the task's world."""

    async def act(tool: str, arguments: Mapping[str, Any]) -> str:
        if world is None:
            return "there is nothing to do that with"
        answer = await world.call(tool, dict(arguments), caller="user")
        return orjson.dumps(answer.data).decode() if answer.outcome == "ok" else f"{answer.kind}: {answer.message}"

    return act


class Talk:
    """One launch's conversation with its user, as far as it has come."""

    def __init__(self, launch: Launch, user: TaskUser, most: int) -> None:
        """``most``: turns that the user answers."""
        self._launch = launch
        self._user = user
        self._most = most
        self._turns = asyncio.Lock()
        self._is_over = False
        self.questions: list[Question] = []
        self._words: list[str] = []
        launch.tools.questions = self.questions

    async def ask(self, question: str) -> ToolAnswer:
        """Put a question and return the reply; one after the other, since each depends on those before."""
        async with self._turns:
            if self._is_over or not self._left:
                said = f"has answered {len(self.questions)} questions and says no more"
                why = "has ended the conversation" if self._is_over else said
                msg = f"the user {why}; go on with what you know, or finish"
                return ToolAnswer(outcome="refused", kind="user_gone", message=msg)
            try:
                with waiting(self._launch.clock, time.monotonic):  # how long the user takes is no work of the agent
                    reply = await self._user.reply(question, Trying(self._launch.id, self._launch.clock), self._spent)
            except UserError as error:
                return self._failed(error)
            except StoreError as error:  # its world cannot be reached: our failure, so the launch is made again
                self._launch.findings.add("world_lost", str(error))
                self._launch.end("infra_lost")
                return ToolAnswer(
                    outcome="error", kind="world_lost", message="the user cannot be reached any more", code=503
                )
            return self._told(question, reply)

    def _told(self, question: str, reply: Reply) -> ToolAnswer:
        self.questions.append(self._question(question, reply.id, reply.words))
        self._words.append(reply.words)
        self._is_over = reply.ends
        data: dict[str, JsonValue] = {"reply": reply.words, "questions_left": 0 if reply.ends else self._left}
        if not data["questions_left"]:
            data["done"] = True
        aside: dict[str, JsonValue] = {"reply": reply.id, "ends": reply.ends}
        if reply.model is not None:
            aside |= {"model": reply.model, "tokens": reply.usage.model_dump(mode="json")}
        if reply.calls:
            aside["calls"] = [dict(call) for call in reply.calls]
        return ToolAnswer(data=data, aside={"user": aside})

    def _failed(self, error: UserError) -> ToolAnswer:
        launch = self._launch
        launch.findings.add("user_simulator_error", str(error))
        launch.end("user_simulator_error")
        return ToolAnswer(
            outcome="error",
            kind="user_simulator_error",
            message="the user cannot be reached; the trial ends",
            code=503,
        )

    def _spent(self, usage: Usage) -> None:
        self._launch.user_usage = self._launch.user_usage.plus(usage)

    def _question(self, question: str, reply: str | None, words: str) -> Question:
        user = self._launch.body.user
        is_played = user is not None and user.mode == "model"
        return Question(question=question, reply=reply, said=words[:_KEPT] if is_played else None)

    @property
    def _left(self) -> int:
        """Turns that the user answers yet; none once its model has used as many tokens as the task gives an agent."""
        is_spent = self._launch.user_usage.total >= self._launch.body.budgets.max_tokens
        return 0 if is_spent else self._most - len(self.questions)

    def recall(self, arguments: dict[str, Any], result: Mapping[str, Any]) -> None:
        """Know a question that an earlier process has put, with the event that tells what came of it."""
        aside = result.get("user") or {}
        if (tokens := aside.get("tokens")) is not None:
            self._launch.user_usage = self._launch.user_usage.plus(Usage.model_validate(tokens))
        if result["outcome"] != "ok":
            return
        question = _question(arguments)
        words = str(orjson.loads(result["content"]).get("reply"))
        self._user.recall(question, words)
        self._is_over = bool(aside.get("ends"))
        self.questions.append(self._question(question, aside.get("reply"), words))
        self._words.append(words)

    def shown(self) -> dict[str, JsonValue]:
        """Return the conversation for ``GET /v1/conversation``."""
        user = self._launch.body.user
        turns: list[JsonValue] = [
            {"role": role, "message": text}
            for turn, words in zip(self.questions, self._words, strict=True)
            for role, text in (("agent", turn.question), ("user", words))
        ]
        opening = None if user is None else user.opening
        is_over = self._is_over or not self._left
        return {"opening": opening, "turns": turns, "done": is_over, "turns_left": 0 if is_over else self._left}


def ask_tool(talk: Talk) -> Tool:
    """Return the tool by which an agent asks the user."""

    def prepare(arguments: dict[str, Any]) -> Effect:
        question = _question(arguments)

        async def ask() -> ToolAnswer:
            return await talk.ask(question)

        return ask

    return Tool(
        name="ask_user",
        description="Ask the user a question that only the user can answer, and get the reply. "
        "Find out yourself what can be found out.",
        schema=_SCHEMA,
        prepare=prepare,
        seconds=_SECONDS,
        recall_result=talk.recall,
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
