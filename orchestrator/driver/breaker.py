"""Stop a run that only meets the same failure of ours again and again."""

from __future__ import annotations

from orchestrator.errors import InfrastructureError
from orchestrator.interfaces import Observer, Phase, TrialEnd
from orchestrator.records.ids import TrialId

LIMIT = 10
"""Identical failures in a row after which nothing more is launched."""
LOST = "supervisor_lost"
"""Cause of launches whose process died. One death takes many launches at once, so they are not counted here: the pool counts deaths."""


class Breaker:
    """An observer that counts launches that failed on our side with one cause, and passes everything on."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._cause = ""
        self._count = 0
        self.error: InfrastructureError | None = None
        """The failure that pauses the run; once there, it stays."""

    def begins(self, planned: int, before: int) -> None:
        """Pass it on."""
        self._observer.begins(planned, before)

    def phase(self, trial: TrialId, phase: Phase) -> None:
        """Pass it on."""
        self._observer.phase(trial, phase)

    def launch_failed(self, trial: TrialId, launch: int, cause: str, message: str) -> None:
        """Count it when it is the same cause as the last one."""
        if cause != LOST:
            self._note(cause, message)
        self._observer.launch_failed(trial, launch, cause, message)

    def _note(self, cause: str, message: str) -> None:
        self._count = self._count + 1 if cause == self._cause else 1
        self._cause = cause
        if self._count >= LIMIT and self.error is None:
            msg = f"paused after {self._count} launches in a row failed with {cause!r}: {message}"
            self.error = InfrastructureError(msg, cause=cause)

    def ended(self, end: TrialEnd) -> None:
        """A result shows that things work: start counting anew."""
        if end.outcome.outcome_class == "result" and end.verdict is not None:
            self._cause, self._count = "", 0
        self._observer.ended(end)
