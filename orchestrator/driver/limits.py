"""Which limits hold for a run: of everything that limits it, the smallest, and where that one was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.records.manifest import RunManifest
from orchestrator.settings import Settings
from orchestrator.spec.submission import RunLimits

MAX_COST = "--max-cost"


@dataclass(frozen=True)
class Placed:
    """Limits, and the place that gave them as a person would call it."""

    place: str
    limits: RunLimits


@dataclass(frozen=True)
class InForce:
    """The limits of a run. A place is empty where nothing limits."""

    limits: RunLimits
    trials_from: str = ""
    cost_from: str = ""


def in_force(settings: Settings, asked: Sequence[Placed]) -> InForce:
    """Return the smaller one of what was asked for and what the settings allow, for trials and for money."""
    trials = [(each.limits.trials, each.place) for each in asked if each.limits.trials is not None]
    if settings.limits.trials is not None:
        trials.append((settings.limits.trials, _setting("trials", settings)))
    most_trials, trials_from = min(trials, key=lambda pair: pair[0], default=(None, ""))
    costs = [(each.limits.cost_usd, each.place) for each in asked if each.limits.cost_usd is not None]
    if settings.limits.cost_usd is not None:
        costs.append((settings.limits.cost_usd, _setting("cost_usd", settings)))
    most_usd, cost_from = min(costs, key=lambda pair: pair[0], default=(None, ""))
    return InForce(RunLimits(trials=most_trials, cost_usd=most_usd), trials_from, cost_from)


def when_resumed(manifest: RunManifest, max_cost: float | None, settings: Settings) -> InForce:
    """Return the limits for going on: a new ``--max-cost`` stands in for the run's own, and the settings limit both."""
    own = Placed("its submission", manifest.limits)
    if max_cost is not None:
        own = Placed(MAX_COST, RunLimits(trials=manifest.limits.trials, cost_usd=max_cost))
    return in_force(settings, [own])


def _setting(name: str, settings: Settings) -> str:
    return f"limits.{name} of {settings.sources.get(f'limits.{name}', 'the settings')}"
