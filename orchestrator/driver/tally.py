"""What a driver is at, counted from what its observer hears."""

from __future__ import annotations

from collections import Counter

from orchestrator.driver.lease import Status
from orchestrator.interfaces import Observer, Phase, TrialEnd
from orchestrator.records.ids import TrialId

_REASONS = 5
"""So many reasons for waiting go into a sign of life, the most frequent ones."""


class Tally:
    """An observer that counts for the signs of life, and passes everything on."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._phases: dict[TrialId, Phase] = {}
        self._waits: dict[TrialId, str] = {}
        self._failed: Counter[str] = Counter()
        self._ended = 0

    def status(self) -> Status:
        """Return the counts of this moment."""
        waits = dict(Counter(self._waits.values()).most_common(_REASONS))
        return Status(dict(Counter(self._phases.values())), self._ended, dict(self._failed), waits)

    def begins(self, planned: int, before: int) -> None:
        """Pass it on."""
        self._observer.begins(planned, before)

    def phase(self, trial: TrialId, phase: Phase) -> None:
        """Note where the trial is."""
        self._phases[trial] = phase
        self._waits.pop(trial, None)
        self._observer.phase(trial, phase)

    def waits(self, trial: TrialId, why: str) -> None:
        """Note why the trial does not get on."""
        if why:
            self._waits[trial] = why
        else:
            self._waits.pop(trial, None)
        self._observer.waits(trial, why)

    def launch_failed(self, trial: TrialId, launch: int, cause: str, message: str) -> None:
        """Count it."""
        self._failed[cause] += 1
        self._observer.launch_failed(trial, launch, cause, message)

    def ended(self, end: TrialEnd) -> None:
        """Count it; it runs no more."""
        self._phases.pop(end.trial, None)
        self._waits.pop(end.trial, None)
        self._ended += 1
        self._observer.ended(end)
