"""Whoever runs trials, and who hears of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, Protocol

from orchestrator.records.ids import TrialId
from orchestrator.records.manifest import ManifestAgent, ManifestTask, RunManifest
from orchestrator.records.outcome import Outcome
from orchestrator.records.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class PlannedTrial:
    """One trial to run."""

    id: TrialId
    task: ManifestTask
    agent: ManifestAgent
    seed: int
    first_launch: int = 1
    """Number of the next launch; more than 1 when earlier launches failed on our side or were cancelled."""
    launches_left: int = 3
    """Launches that may still fail on our side before the trial is given up."""
    left: bool = False
    """The next launch was begun by a process that is gone: its sandbox is there and is taken over, and no other one is made."""


@dataclass(frozen=True, kw_only=True)
class TrialEnd:
    """What a pool reports for a finished trial."""

    trial: TrialId
    outcome: Outcome
    verdict: Verdict | None


Phase = Literal["queued", "starting", "running", "freezing", "grading", "done"]


class Observer(Protocol):
    """Hears what happens to trials, for the progress display. Must not raise."""

    def begins(self, planned: int, before: int) -> None:
        """A run of that many trials is driven; ``before`` of them had ended earlier."""
        ...

    def phase(self, trial: TrialId, phase: Phase) -> None:
        """A trial entered a phase."""
        ...

    def waits(self, trial: TrialId, why: str) -> None:
        """A trial does not get on in its phase, for this reason in one line; empty: it does again. A new phase ends it, too."""
        ...

    def launch_failed(self, trial: TrialId, launch: int, cause: str, message: str) -> None:
        """A launch ended for a reason that is ours."""
        ...

    def ended(self, end: TrialEnd) -> None:
        """A trial is committed and graded, or given up."""
        ...


class Allowance(Protocol):
    """What a run may still spend. Each launch that was set aside for is settled or forfeited, or others may wait for ever.

    Without a limit the methods do nothing.
    """

    async def reserve(self, planned: PlannedTrial, launch: int) -> None:
        """Set aside what the launch may cost at most, durably, before it starts.

        Waits while what is set aside for running launches may come back. Raises SpendingLimitError when it cannot be covered, and
        StoreError. A launch that was left by a process that is gone is paid for: it is noted, and never refused.
        """
        ...

    async def settle(self, outcome: Outcome) -> None:
        """Replace what was set aside for a launch by what it did cost. The outcome is committed. Raises nothing."""
        ...

    async def forfeit(self, trial: TrialId, launch: int) -> None:
        """Count what was set aside for a launch as spent, because it has no committed outcome. Raises nothing."""
        ...


class TrialPool(Protocol):
    """Runs trials, some at a time.

    The iterators raise StoreError when an outcome cannot be committed, LeaseLostError when another driver has the run, SpendingLimitError
    when nothing more can be launched under the run's limit (after everything that ran has ended); what was committed stays.
    """

    def run(self, manifest: RunManifest, trials: list[PlannedTrial]) -> AsyncIterator[TrialEnd]:
        """Yield each trial as it ends. ``stop`` makes it end early, without starting more."""
        ...

    def grade(self, manifest: RunManifest, trials: list[tuple[PlannedTrial, Outcome]]) -> AsyncIterator[TrialEnd]:
        """Ask for the verdicts of committed results that have none yet. ``stop`` makes it end early, unless it came before."""
        ...

    def take_over(self, manifest: RunManifest, trials: list[PlannedTrial]) -> AsyncIterator[TrialEnd]:
        """Bring launches that were ``left`` to their end, whatever keeps the pool from starting others.

        After a stop they are stopped, frozen and graded; otherwise they end as they like. No launch follows them.
        """
        ...

    async def stop(self) -> None:
        """Start no more trials; stop, freeze and grade those that run."""
        ...
