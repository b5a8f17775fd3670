"""Runs that cost something, made by hand, and a store in memory whose answers come a while after their effect."""

from __future__ import annotations

import asyncio
import random

from made import made_agent, made_run, made_task

from orchestrator.errors import NotFoundError
from orchestrator.plan.trials import all_trials
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.records.outcome import Outcome, Times
from orchestrator.records.termination import outcome_class
from orchestrator.records.usage import Usage
from orchestrator.settings import Price
from orchestrator.spec.agent import Agent
from orchestrator.spec.task import Budgets

PRICES = {"x/m": Price(input=1, output=40)}


def costly_task(name, nano_usd, samples=1):
    budgets = Budgets(max_cost_usd=nano_usd / 1e9) if nano_usd else Budgets()
    return made_task(name, budgets=budgets, samples=samples)


def costly_run(*tasks, models=("x/m",)):
    kind = "react" if models else "nop"
    agent = Agent(type=kind, models={str(n): model for n, model in enumerate(models)}, prices=PRICES)
    return made_run(*tasks, agents=(made_agent(agent=agent),))


def trial(manifest, name, sample=1):
    return next(planned for planned in all_trials(manifest) if planned.id == TrialId(name, "a", sample))


def outcome_of(trial, cost, *, launch=1, epoch=1, reason="completed"):
    return Outcome(
        run="r1",
        trial=str(trial),
        launch=launch,
        outcome_class=outcome_class(reason),
        termination_reason=reason,
        usage=Usage(cost_nano_usd=cost),
        times=Times(started=0, ended=1, working_s=1, waiting_s=0),
        writer_id="w",
        epoch=epoch,
    )


class MemoryStore:
    """Create-only markers. With dice, each call takes effect at once and answers some turns of the loop later."""

    def __init__(self, dice: random.Random | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self._dice = dice

    async def _later(self) -> None:
        for _ in range(self._dice.randrange(4) if self._dice else 0):
            await asyncio.sleep(0)

    async def create(self, key, data):
        await self._later()
        ours = self.objects.setdefault(key, data) is data
        await self._later()
        return ours

    async def get(self, key):
        await self._later()
        if key not in self.objects:
            raise NotFoundError(key)
        return self.objects[key]

    async def list(self, prefix):
        await self._later()
        return sorted(key for key in self.objects if key.startswith(prefix))

    def reservations(self):
        return sorted(key for key in self.objects if key.startswith(keys.reservations("r1")))

    async def commit(self, outcome):
        key = keys.outcome("r1", TrialId.parse(outcome.trial), outcome.launch)
        await self.create(key, outcome.to_bytes())
        return Outcome.from_bytes(self.objects[key])
