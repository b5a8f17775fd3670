"""What a trial does, read from the store while it does it, up to its seal; and over the loss of a launch to the next one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from orchestrator.errors import NotFoundError
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.event import Event
from orchestrator.records.ids import TrialId
from orchestrator.records.outcome import Outcome, Seal
from orchestrator.trace.live import LaunchPlace, LiveTrajectory, launches_of

LookState = Literal["waiting", "running", "sealed", "lost"]
"""``waiting``: no launch has left anything yet. ``lost``: the launch ended for our reasons and was never sealed."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """What one look at a trial brought."""

    state: LookState
    launch: int | None = None
    """The launch that is followed, from 1; None while there is none."""
    events: list[Event] = field(default_factory=list)
    """Its events that have come since the last look."""
    cause: str | None = None
    """Why it was lost, if it was."""


class TrialLog:
    """Follows the newest launch of a trial."""

    def __init__(self, store: ObjectStore, run: str, trial: TrialId) -> None:
        self._store = store
        self._run = run
        self._trial = trial
        self._place: LaunchPlace | None = None
        self._live: LiveTrajectory | None = None
        self._outcomes: dict[int, Outcome] = {}

    async def look(self) -> Look:
        """Return what is new. Raises StoreError; then it may be called again, and no event is lost.

        After ``sealed`` there is nothing more to come. After ``lost`` another launch may begin, which is followed then.
        """
        ended = await self._ended()  # before the events: what an ended launch left is all there
        if self._place is None or self._place.launch in ended:
            await self._turn_to_newest()
        if self._place is None or self._live is None:
            return Look(state="waiting")
        launch = self._place.launch
        seal = await self._seal(self._place)
        if seal is not None:
            return Look(state="sealed", launch=launch, events=await self._live.rest(seal.trajectory))
        events = await self._live.more()
        if launch in ended:
            return Look(state="lost", launch=launch, events=events, cause=ended[launch].cause)
        return Look(state="running", launch=launch, events=events)

    async def _turn_to_newest(self) -> None:
        places = await launches_of(self._store, self._run, self._trial)
        if places and (self._place is None or places[-1] > self._place):
            self._place = places[-1]
            self._live = LiveTrajectory(self._store, self._run, self._trial, self._place)

    async def _ended(self) -> dict[int, Outcome]:
        """Return the outcomes of the launches that have ended, by number."""
        for key in await self._store.list(keys.outcomes(self._run, self._trial)):
            launch = keys.parse_outcome(key)[2]
            if launch not in self._outcomes:
                self._outcomes[launch] = Outcome.from_bytes(await self._store.get(key), key)
        return self._outcomes

    async def _seal(self, place: LaunchPlace) -> Seal | None:
        key = keys.record(self._run, self._trial, place.launch, place.epoch, "seal.json")
        try:
            return Seal.from_bytes(await self._store.get(key), key)
        except NotFoundError:
            return None
