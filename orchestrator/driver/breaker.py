"""Stop a run that only meets the same failure of ours again and again."""

from __future__ import annotations

from orchestrator.errors import FOR_A_PERSON, InfrastructureError
from orchestrator.interfaces import Observer, Phase, TrialEnd
from orchestrator.records.ids import TrialId

LIMIT = 10
"""Identical failures in a row after which nothing more is launched."""
LOST = "supervisor_lost"
"""Cause of launches whose process died. One death takes many launches at once, so they are not counted here: the pool counts deaths."""

_AT_ONCE = frozenset(
    {
        "evicted",
        "gateway_lost",
        "gateway_restarted",
        "gateway_timeout",
        "gateway_unreachable",
        "node_lost",
        "node_shutdown",
        "pod_deleted",
        "preempted",
        "relay_unreachable",
    }
)
"""Causes that strike whatever runs at a gateway or on a node: one event, however many launches tell of it."""


class Breaker:
    """An observer that counts launches that failed on our side with one cause, and passes everything on.

    What strikes many launches at once counts once: of those that ran then only the first is counted, unless its trial meets the same again.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._cause = ""
        self._count = 0
        self._struck: set[TrialId] = set()
        """Trials that have met the cause."""
        self._noted = 0
        """Failures counted so far, of all causes."""
        self._begun: dict[TrialId, int] = {}
        """How many those were when the trial's launch began."""
        self.error: InfrastructureError | None = None
        """The failure that pauses the run; once there, it stays."""
        self._refused: dict[TrialId, str] = {}

    @property
    def refused(self) -> str:
        """Why the first of the trials that are left to a person has ended; empty when there is none."""
        return next(iter(self._refused.values()), "")

    def begins(self, planned: int, before: int) -> None:
        """Pass it on."""
        self._observer.begins(planned, before)

    def phase(self, trial: TrialId, phase: Phase) -> None:
        """Note when a launch begins."""
        if phase == "starting":
            self._begun[trial] = self._noted
        self._observer.phase(trial, phase)

    def waits(self, trial: TrialId, why: str) -> None:
        """Pass it on."""
        self._observer.waits(trial, why)

    def launch_failed(self, trial: TrialId, launch: int, cause: str, message: str) -> None:
        """Count it when it is the same cause as the last one."""
        if cause in FOR_A_PERSON:
            self._refused.setdefault(trial, f"{trial}: {message}")
        if cause != LOST:
            self._note(trial, cause, message)
        self._observer.launch_failed(trial, launch, cause, message)

    def _note(self, trial: TrialId, cause: str, message: str) -> None:
        if cause != self._cause:
            self._cause, self._count, self._struck = cause, 0, set()
        if not self._is_told_of(trial):
            self._count += 1
            self._noted += 1
        self._struck.add(trial)
        if self._count >= LIMIT and self.error is None:
            msg = f"paused after {self._count} launches in a row failed with {cause!r}: {message}"
            self.error = InfrastructureError(msg, cause=cause)

    def _is_told_of(self, trial: TrialId) -> bool:
        """Return whether what struck the trial's launch has struck another that ran then, which was counted."""
        ran_then = self._begun.get(trial, self._noted) < self._noted
        return self._cause in _AT_ONCE and self._count > 0 and ran_then and trial not in self._struck

    def ended(self, end: TrialEnd) -> None:
        """A result shows that things work: start counting anew."""
        if end.outcome.outcome_class == "result":
            self._refused.pop(end.trial, None)
        if end.outcome.outcome_class == "result" and end.verdict is not None:
            self._cause, self._count, self._struck = "", 0, set()
        self._observer.ended(end)
