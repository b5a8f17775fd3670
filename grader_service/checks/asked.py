"""The ``asked`` check: what the agent asked the task's user, as the gateway recorded it."""

from __future__ import annotations

from orchestrator.records.outcome import Outcome, Question
from orchestrator.records.verdict import CheckResult
from orchestrator.spec.checks import AskedCheck

_SHOWN = 20
"""Questions that are shown as evidence."""


def check_asked(spec: AskedCheck, outcome: Outcome) -> CheckResult:
    """Evaluate an ``asked`` check."""
    asked = outcome.questions or ()
    wrong = _wrong(spec, asked)
    wanted = [*spec.replies, *([f"at most {spec.max_questions} questions"] if spec.max_questions is not None else [])]
    return CheckResult(
        id=spec.id,
        type="asked",
        passed=not wrong,
        expected=", ".join(wanted),
        actual="; ".join(wrong) or f"{len(asked)} questions",
        evidence=tuple(_line(each) for each in asked[:_SHOWN]),
    )


def _wrong(spec: AskedCheck, asked: tuple[Question, ...]) -> list[str]:
    """Return one sentence for each requirement that does not hold."""
    given = {question.reply for question in asked}
    wrong = [f"no question drew the reply {name!r}" for name in spec.replies if name not in given]
    if spec.max_questions is not None and len(asked) > spec.max_questions:
        wrong.append(f"{len(asked)} questions, at most {spec.max_questions}")
    return wrong


def _line(asked: Question) -> str:
    reply = "no reply fits" if asked.reply is None else f"reply {asked.reply}"
    return f"{' '.join(asked.question.split())[:300]} ({reply})".encode("utf-8", "backslashreplace").decode()
