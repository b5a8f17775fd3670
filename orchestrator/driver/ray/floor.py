"""Who works where: the supervisors that a coordinator has met and what each of them holds. Pure."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from orchestrator.driver.ray.messages import Aborted, Ended, Event, Job, Numbered, Report
from orchestrator.records.ids import TrialId


@dataclass
class Seat:
    """The living supervisor of one index."""

    name: str
    generation: int
    reports: int = 0
    """Number of its last report."""
    events: int = 0
    """Number of its last event."""
    holds: dict[TrialId, Job | None] = field(default_factory=dict)
    """What it works on; without a job when an earlier coordinator gave it."""

    def new_events(self, report: Report) -> list[Numbered]:
        """Return the events of a report that were not seen before."""
        fresh = [event for event in report.events if event.number > self.events]
        self.events = max((event.number for event in fresh), default=self.events)
        return fresh

    def note(self, event: Event) -> None:
        """Take note of the end of its work on a trial."""
        if isinstance(event, Ended | Aborted):
            self.holds.pop(event.trial, None)

    def reconcile(self, report: Report) -> list[Job]:
        """Go by what the supervisor says that it holds. Returns jobs that were given to it and never arrived."""
        missing = [job for trial, job in self.holds.items() if trial not in report.holds and job is not None]
        self.holds = {trial: self.holds.get(trial) for trial in report.holds}
        return missing


@dataclass(frozen=True)
class Arrival:
    """What a report means for the floor."""

    seat: Seat | None
    """None: the report is of a process that was replaced."""
    stale: bool = False
    """The report was overtaken by a later one of the same process; it says nothing new."""
    lost: tuple[TrialId, ...] = ()
    """What the process before it held, which is dead."""


class Floor:
    """All supervisors, by index."""

    def __init__(self, supervisors: int) -> None:
        self._count = supervisors
        self._seats: dict[int, Seat] = {}
        self._changed = asyncio.Event()

    def arrive(self, report: Report) -> Arrival:
        """Seat the sender of a report."""
        seat = self._seats.get(report.index)
        if seat is None or (seat.name != report.name and seat.generation < report.generation):
            lost = () if seat is None else tuple(seat.holds)
            seat = self._seats[report.index] = Seat(report.name, report.generation)
            self._changed.set()
            self._changed = asyncio.Event()
            seat.reports = report.number
            return Arrival(seat, lost=lost)
        if seat.name != report.name:
            return Arrival(None)
        if report.number <= seat.reports:
            return Arrival(seat, stale=True)
        seat.reports = report.number
        return Arrival(seat)

    def held(self) -> set[TrialId]:
        """Return all trials that a supervisor works on."""
        return {trial for seat in self._seats.values() for trial in seat.holds}

    def is_seated(self, index: int, name: str) -> bool:
        """Return whether this process is the one of its index."""
        seat = self._seats.get(index)
        return seat is not None and seat.name == name

    @property
    def complete(self) -> bool:
        """Whether every supervisor was met."""
        return len(self._seats) == self._count

    async def all_met(self) -> None:
        """Wait until every supervisor was met."""
        while not self.complete:
            await self._changed.wait()

    async def met(self, index: int) -> None:
        """Wait until a supervisor of this index was met."""
        while index not in self._seats:
            await self._changed.wait()
