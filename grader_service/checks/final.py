"""The ``final`` check: how the agent ended. The answer was read by a limited child and typed before the outcome was written."""

from __future__ import annotations

from orchestrator.records.outcome import Outcome
from orchestrator.records.state import FinalAnswer
from orchestrator.records.verdict import CheckResult
from orchestrator.spec.checks import FinalCheck
from orchestrator.spec.wording import mentions


def check_final(spec: FinalCheck, outcome: Outcome) -> CheckResult:
    """Evaluate a ``final`` check. Without a valid ending it fails."""
    final = outcome.final
    if final is None:
        return CheckResult(
            id=spec.id,
            type="final",
            passed=False,
            expected=spec.status,
            actual="no ending",
            evidence=("the agent gave no valid ending",),
        )
    wrong = tuple(line.encode("utf-8", "backslashreplace").decode()[:300] for line in _wrong(spec, final))
    return CheckResult(
        id=spec.id,
        type="final",
        passed=not wrong,
        expected=spec.status,
        actual="; ".join(wrong) or final.status,
        evidence=wrong,
    )


def _wrong(spec: FinalCheck, final: FinalAnswer) -> list[str]:
    """Return one sentence for each requirement that does not hold."""
    wrong = []
    if final.status != spec.status:
        wrong.append(f"ended as {final.status}, not {spec.status}")
    wrong += [
        f"mentions none of: {', '.join(phrases)}" for phrases in spec.mentions if not mentions(final.message, phrases)
    ]
    if spec.max_chars is not None and len(final.message) > spec.max_chars:
        wrong.append(f"{len(final.message)} characters, at most {spec.max_chars}")
    for key, value in spec.escalation.items():
        given = final.escalation.get(key)
        if given != value:
            wrong.append(f"escalation.{key} is {'absent' if given is None else repr(given[:200])}, not {value!r}")
    return wrong
