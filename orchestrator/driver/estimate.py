"""What a run will cost and how long it will take, from earlier trials; and what it can cost at most, from its budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from orchestrator.dataset.history import NO_HISTORY, History, Pair, Past, read_history
from orchestrator.driver.dataset import part_cache
from orchestrator.driver.limits import InForce
from orchestrator.driver.local import at_one_time
from orchestrator.errors import InfrastructureError
from orchestrator.interfaces import ObjectStore
from orchestrator.plan.cost import NANO, most_nano_usd, nano
from orchestrator.records.manifest import RunManifest
from orchestrator.records.prices import KnownPrice
from orchestrator.settings import Settings
from orchestrator.spec.agent import is_scripted

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, kw_only=True)
class PairEstimate:
    """One task with one agent. Costs in nano USD, for one trial."""

    task: str
    agent: str
    trials: int
    basis: Literal["same", "named", "none"]
    """Earlier trials of this very task and agent, of others with their names, or none."""
    cost: int | None
    """Mean of earlier trials; 0 for an agent without models, None when nothing is known."""
    working_s: float | None
    """Mean working time of earlier trials."""
    most: int | None
    """What one launch can cost at most; None when a model has no price."""
    unpriced: tuple[str, ...]
    """Models without a price."""
    charged: bool
    """Whether somebody will charge for it: not for an agent without models, and not for conversations from files."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A whole run. Costs in nano USD."""

    pairs: tuple[PairEstimate, ...]
    concurrency: int
    """Trials at one time."""
    in_force: InForce
    """The run's limits."""
    note: str = ""
    """Why earlier trials could not be read."""
    prices: tuple[tuple[str, KnownPrice], ...] = ()
    """What models cost that somebody charges for, and who says so; a model twice where agents' files differ."""

    @property
    def trials(self) -> int:
        """All trials."""
        return sum(pair.trials for pair in self.pairs)

    @property
    def cost(self) -> int | None:
        """Sum over the trials whose cost can be estimated; None when there is none."""
        return _total(self.pairs, lambda pair: pair.cost)

    @property
    def without_cost(self) -> int:
        """Trials whose cost cannot be estimated."""
        return sum(pair.trials for pair in self.pairs if pair.cost is None)

    @property
    def seconds(self) -> float | None:
        """Working time of the trials of which it is known, divided by how many run at one time; None when there is none."""
        total = _total(self.pairs, lambda pair: pair.working_s)
        return None if total is None else total / min(self.concurrency, max(1, self.trials))

    @property
    def without_time(self) -> int:
        """Trials whose time cannot be estimated."""
        return sum(pair.trials for pair in self.pairs if pair.working_s is None)

    @property
    def by_name(self) -> int:
        """Trials that are estimated by earlier ones of other versions of their task or agent."""
        return sum(pair.trials for pair in self.pairs if pair.basis == "named")

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Models without a price, sorted."""
        return tuple(sorted({model for pair in self.pairs for model in pair.unpriced}))

    @property
    def most(self) -> int | None:
        """What the budgets of all trials allow, each launched once; None when a model has no price."""
        return None if self.unpriced else sum(pair.trials * (pair.most or 0) for pair in self.pairs)

    @property
    def limit(self) -> int | None:
        """What the run may spend, if that is limited."""
        usd = self.in_force.limits.cost_usd
        return None if usd is None else nano(usd)

    @property
    def at_stake(self) -> int:
        """What somebody will be charged: the estimate where there is one, else the most. Without prices nothing can be said, and is."""
        charged = (pair for pair in self.pairs if pair.charged)
        total = sum(pair.trials * (pair.most or 0 if pair.cost is None else pair.cost) for pair in charged)
        return total if self.limit is None else min(total, self.limit)

    def as_json(self) -> dict[str, Any]:
        """Return the published form: amounts in US dollars, times in seconds, null for what is not known."""
        return {
            "cost_usd": _usd(self.cost),
            "trials_without_cost": self.without_cost,
            "seconds": self.seconds,
            "trials_without_time": self.without_time,
            "trials_by_name": self.by_name,
            "at_most_usd": _usd(self.most),
            "unpriced": list(self.unpriced),
            "prices": [{"model": model, **known.model_dump(mode="json")} for model, known in self.prices],
            "concurrency": self.concurrency,
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return the published form of each pair."""
        return [
            {
                "task": pair.task,
                "agent": pair.agent,
                "trials": pair.trials,
                "basis": pair.basis,
                "cost_usd": _usd(pair.cost),
                "working_s": pair.working_s,
                "at_most_usd": _usd(pair.most),
            }
            for pair in self.pairs
        ]


async def estimate_run(manifest: RunManifest, limits: InForce, store: ObjectStore, settings: Settings) -> Estimate:
    """Return what a run will cost, as far as that is known. A dataset that cannot be read is noted, not raised."""
    history, note = NO_HISTORY, ""
    try:
        history = await read_history(store, manifest.suite, part_cache(settings))
    except InfrastructureError as error:
        note = f"earlier trials could not be read: {error}"
    sizes = Counter((trial.task, trial.agent) for trial in manifest.trials())
    pairs = []
    for (task_id, name), trials in sizes.items():
        task, agent = manifest.task(task_id), manifest.agent(name)
        models = agent.agent.models.values()
        basis, past = _past(history, Pair(task_id, name, task.digest, agent.digest))
        pairs.append(
            PairEstimate(
                task=task_id,
                agent=name,
                trials=trials,
                basis=basis,
                cost=past.mean_cost if models else 0,
                working_s=past.mean_seconds,
                most=most_nano_usd(task.budgets, models, agent.price_of()),
                unpriced=agent.unpriced,
                charged=any(not is_scripted(model) for model in models),
            )
        )
    return Estimate(
        pairs=tuple(pairs),
        concurrency=at_one_time(settings),
        in_force=limits,
        note=note,
        prices=_prices(manifest),
    )


def _prices(manifest: RunManifest) -> tuple[tuple[str, KnownPrice], ...]:
    found: dict[tuple[str, str], KnownPrice] = {}
    for agent in manifest.agents:
        found |= {(model, str(known)): known for model, known in agent.prices.items() if not is_scripted(model)}
    return tuple((model, known) for (model, _), known in sorted(found.items()))


def _past(history: History, pair: Pair) -> tuple[Literal["same", "named", "none"], Past]:
    if (same := history.same(pair)) is not None:
        return "same", same
    if (named := history.named(pair)) is not None:
        return "named", named
    return "none", Past()


def _total(pairs: Iterable[PairEstimate], value: Callable[[PairEstimate], _Number | None]) -> _Number | None:
    known = [pair.trials * found for pair in pairs if (found := value(pair)) is not None]
    return sum(known) if known else None


def _usd(amount: int | None) -> float | None:
    return None if amount is None else amount / NANO
