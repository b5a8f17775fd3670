"""What a run with a spending limit may still spend: set aside before a launch, settled after its outcome. The truth is in the store.

What is set aside for a launch is the most that it can cost (``plan.cost.most_nano_usd``), as a create-only marker before the launch
starts. A marker whose launch has an outcome of its epoch has been settled and counts as what the outcome cost. Any other marker counts in
full: its launch runs, or its driver was killed and nobody knows what it spent. So spent and set aside together never exceed the limit,
whoever is killed when; only calls that were open when a launch reached its own budget can end above it, and then less is launched after.

Launches are served in the order in which they ask. None that may cost less overtakes one that waits or was refused: what a trial may cost
must not decide whether it is part of the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.dataset.rows import read_many
from orchestrator.driver.place import KUBERNETES
from orchestrator.errors import RefusedError, SpendingLimitError, StoreError
from orchestrator.interfaces import Allowance, ObjectStore, PlannedTrial
from orchestrator.plan.cost import NANO, dollars, most_nano_usd, nano
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.records.lease import Reservation
from orchestrator.records.manifest import ManifestTask, RunManifest
from orchestrator.records.outcome import Outcome
from orchestrator.trial.allowance import Unlimited

_Launch = tuple[TrialId, int]
"""Trial and number of the launch."""
_Start = tuple[TrialId, int, int]
"""The same with the epoch: a launch that died with its driver is made again under the next one."""


@dataclass(frozen=True)
class Balance:
    """How a run stands with its limit, in nano USD."""

    limit: int
    spent: int
    """What committed launches did cost."""
    running: int
    """Set aside for launches that run."""
    unsettled: int
    """Set aside for launches whose cost nobody will ever know: their driver was killed, or a provider did not say. Counts as spent."""

    @property
    def left(self) -> int:
        """What is neither spent nor set aside; below 0 when launches ended above their budget, or the limit was lowered."""
        return self.limit - self.spent - self.running - self.unsettled


class Purse:
    """The allowance of a run with a spending limit. Made by ``load``; one for all workers of a driver. Implements Allowance."""

    def __init__(
        self,
        store: ObjectStore,
        run: str,
        epoch: int,
        limit: int,
        most: Mapping[tuple[str, str], int],
        *,
        adopts: bool = False,
    ) -> None:
        """``adopts``: sandboxes outlive their driver, so the next one goes on with a launch, whose outcome then tells all of its cost."""
        self._adopts = adopts
        self._earlier: dict[_Launch, dict[_Start, int]] = {}
        """What earlier drivers set aside for launches that this one goes on with."""
        self._store = store
        self._run = run
        self._epoch = epoch
        self._limit = limit
        self._most = most
        self._set_aside: dict[_Start, int] = {}
        self._running: set[_Start] = set()
        self._settled: set[_Launch] = set()
        self._spent = 0
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._refused: SpendingLimitError | None = None

    @classmethod
    async def load(cls, store: ObjectStore, manifest: RunManifest, limit: int, epoch: int) -> Purse:
        """Return the purse as the store has it; ``limit`` in nano USD.

        To be called once the run is claimed under ``epoch``. Called again under the same epoch, it takes the launches of that epoch without
        an outcome for running. Raises RefusedError for a model without a price, and StoreError.
        """
        most = most_by_pair(manifest)
        purse = cls(store, manifest.run, epoch, limit, most, adopts=manifest.backend == KUBERNETES)

        async def reservation(key: str) -> Reservation:
            return Reservation.from_bytes(await store.get(key), key)

        async def outcome(key: str) -> Outcome:
            return Outcome.from_bytes(await store.get(key), key)

        for marker in await read_many(reservation, await store.list(keys.reservations(manifest.run))):
            start = (_trial(marker.trial), marker.launch, marker.epoch)
            purse._set_aside[start] = marker.nano_usd
            if marker.epoch == epoch:
                purse._running.add(start)
        ended = set()
        for committed in await read_many(outcome, await store.list(keys.outcomes(manifest.run))):
            purse._settle(committed)
            ended.add((_trial(committed.trial), committed.launch))
        for trial, launch, of_epoch in list(purse._set_aside):
            if (trial, launch) not in ended:
                purse._go_on_with(trial, launch, of_epoch)
        return purse

    @property
    def balance(self) -> Balance:
        """How the run stands now."""
        running = sum(self._set_aside[start] for start in self._running)
        return Balance(self._limit, self._spent, running, sum(self._set_aside.values()) - running)

    async def reserve(self, planned: PlannedTrial, launch: int) -> None:
        """Set aside what the launch may cost at most, durably. Raises as ``Allowance`` says; what costs nothing is never refused."""
        start = (planned.id, launch, self._epoch)
        most = self._most[planned.id.task, planned.id.agent]
        if most == 0:
            return
        async with self._turn:
            self._go_on_with(*start)
            if not planned.left:
                await self._covered(planned.id, start, most)
            self._set_aside[start] = most
            self._running.add(start)
            marker = Reservation(trial=str(planned.id), launch=launch, epoch=self._epoch, nano_usd=most)
            try:
                await self._store.create(keys.reservation(self._run, *start), marker.to_bytes())
            except BaseException:
                await self.forfeit(planned.id, launch)  # it may be written
                raise

    async def settle(self, outcome: Outcome) -> None:
        """Put what a committed launch did cost in the place of what was set aside for it."""
        self._settle(outcome)
        self._wake()

    async def forfeit(self, trial: TrialId, launch: int) -> None:
        """Count what was set aside as spent: no outcome of this driver will say what the launch cost."""
        self._running.discard((trial, launch, self._epoch))
        self._wake()

    async def _covered(self, trial: TrialId, start: _Start, most: int) -> None:
        """Wait until the amount is left. Raises SpendingLimitError when it will not be, even if running launches cost nothing."""
        while start not in self._running:  # asked again after its answer was lost: it is set aside already
            now = self.balance
            if self._refused is None and now.left >= most:
                return
            if self._refused is None and now.left + now.running < most:
                self._refused = _refusal(now, trial, most)
            if self._refused is not None:
                raise self._refused
            await self._changed.wait()

    def _go_on_with(self, trial: TrialId, launch: int, epoch: int) -> None:
        """Count no longer what was set aside under earlier epochs for a launch that is one and the same."""
        if self._adopts:
            before = [(trial, launch, each) for each in range(1, epoch) if (trial, launch, each) in self._set_aside]
            earlier = self._earlier.setdefault((trial, launch), {})
            earlier.update({each: self._set_aside.pop(each) for each in before})

    def _settle(self, outcome: Outcome) -> None:
        trial = _trial(outcome.trial)
        launch, start = (trial, outcome.launch), (trial, outcome.launch, outcome.epoch)
        # Our own launch came to nothing when another driver's outcome stands for it; what ours cost is not known.
        self._running -= {start, (*launch, self._epoch)}
        if launch in self._settled:
            return
        aside, cost = self._set_aside.get(start), outcome.spent_nano_usd
        self._set_aside |= self._earlier.pop(launch, {})
        if self._adopts and outcome.outcome_class != "infra":  # a lost one may have begun anew
            for each in [each for each in self._set_aside if each[:2] == launch and each != start]:
                del self._set_aside[each]
        if cost is not None:
            self._set_aside.pop(start, None)
            self._settled.add(launch)
            self._spent += cost
        elif aside is None:  # launched before there was a limit
            self._set_aside[start] = self._most[trial.task, trial.agent]

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


async def open_allowance(store: ObjectStore, manifest: RunManifest, limit_usd: float | None, epoch: int) -> Allowance:
    """Return what a run may still spend under a limit in US dollars; None: there is none. Raises as ``Purse.load``."""
    if limit_usd is None:
        return Unlimited()
    return await Purse.load(store, manifest, nano(limit_usd), epoch)


def most_by_pair(manifest: RunManifest) -> dict[tuple[str, str], int]:
    """Return what one launch can cost at most by task and agent, in nano USD. Raises RefusedError for a model without a price."""
    found: dict[tuple[str, str], int] = {}
    for agent in manifest.agents:
        table = agent.price_of()
        for task in manifest.tasks:
            most = most_nano_usd(task.budgets, agent.agent.models.values(), table)
            if most is None:
                msg = f"agent {agent.name}: a run with a spending limit needs the prices of all its models"
                raise RefusedError(msg)
            found[task.id, agent.name] = most + _most_of_user(task)
    return found


def _most_of_user(task: ManifestTask) -> int:
    """Return what the model can cost at most that plays the task's user: it has as many tokens as the agent. Raises RefusedError."""
    model = None if task.user is None else task.user.model
    if model is None:
        return 0
    table = {} if task.user_price is None else {model: task.user_price.price}
    tokens_alone = task.budgets.model_copy(update={"max_cost_usd": None})  # what limits the cost is the agent's
    most = most_nano_usd(tokens_alone, [model], table)
    if most is None:
        msg = f"task {task.id}: a run with a spending limit needs the price of {model}, which plays the user"
        raise RefusedError(msg)
    return most


def _refusal(now: Balance, trial: TrialId, most: int) -> SpendingLimitError:
    spent = f"{dollars(now.spent)} of {dollars(now.limit)} is spent"
    if now.unsettled:
        spent += f", {dollars(now.unsettled)} counts as spent for launches whose cost was never told"
    if now.running:
        spent += f", {dollars(now.running)} is set aside for launches that run"
    enough = now.spent + now.unsettled + most
    return SpendingLimitError(
        f"spending limit: {spent}, and {trial} may cost up to {dollars(most)}",
        enough_usd=-(-enough * 100 // NANO) / 100,
    )


def _trial(text: str) -> TrialId:
    try:
        return TrialId.parse(text)
    except ValueError as error:
        raise StoreError(str(error), cause="record_unreadable") from error
