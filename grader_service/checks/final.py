"""The ``final`` check: how the agent ended. The answer was read by a limited child and typed before the outcome was written."""

from __future__ import annotations

import re

from orchestrator.records.outcome import Outcome
from orchestrator.records.verdict import CheckResult
from orchestrator.spec.checks import FinalCheck


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
    wrong = []
    if final.status != spec.status:
        wrong.append(f"ended as {final.status}, expected {spec.status}")
    wrong += [
        f"the message mentions none of: {', '.join(phrases)}"
        for phrases in spec.mentions
        if not mentions(final.message, phrases)
    ]
    if spec.max_chars is not None and len(final.message) > spec.max_chars:
        wrong.append(f"the message has {len(final.message)} characters; at most {spec.max_chars} may be")
    for key, value in spec.escalation.items():
        if final.escalation.get(key) != value:
            wrong.append(f"escalation.{key} is {final.escalation.get(key, 'absent')[:200]!r}, expected {value!r}")
    return CheckResult(
        id=spec.id,
        type="final",
        passed=not wrong,
        expected=spec.status,
        actual=final.status,
        evidence=tuple(line.encode("utf-8", "backslashreplace").decode()[:300] for line in wrong),
    )


def mentions(message: str, phrases: tuple[str, ...]) -> bool:
    """Return whether one of the phrases stands in the message as whole words, in any letter case and however it is wrapped."""
    text = " ".join(message.casefold().split())
    return any(
        re.search(rf"(?<!\w){re.escape(' '.join(phrase.casefold().split()))}(?!\w)", text) is not None
        for phrase in phrases
        if phrase.strip()
    )
