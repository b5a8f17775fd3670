"""The price table of a run: what each model of its agents costs, and who says so. Made once, at submission, and kept in the manifest."""

from __future__ import annotations

from datetime import datetime

from orchestrator.plan.published import published_price, table_name, why_unpublished
from orchestrator.records.prices import KnownPrice
from orchestrator.settings import Settings
from orchestrator.spec.agent import Agent, is_scripted


def prices_of(agent: Agent, settings: Settings, at: datetime) -> dict[str, KnownPrice]:
    """Return the known prices of an agent's models; a model without an entry has none.

    Those of its file win, then those of ``orchestrate.toml``, then published ones, as they hold at a time.
    """
    found = {model: known_price(model, agent, settings, at) for model in sorted(set(agent.models.values()))}
    return {model: known for model, known in found.items() if known is not None}


def known_price(model: str, agent: Agent, settings: Settings, at: datetime) -> KnownPrice | None:
    """Return what a model of an agent costs, if that is known."""
    if model in agent.prices:
        return KnownPrice(price=agent.prices[model], source="agent file")
    if model in settings.prices:
        return KnownPrice(price=settings.prices[model], source="orchestrate.toml")
    return None if is_scripted(model) else published_price(model, _address(model, settings), at)


def how_to_price(model: str, settings: Settings) -> str:
    """Return why a model has no price, and what to do about it."""
    ways = f'give [prices."{model}"] in orchestrate.toml, or prices in the agent file'
    if is_scripted(model):
        return ways
    return f"{why_unpublished(model, _address(model, settings))}: {ways}, or name a model that {table_name()} knows"


def _address(model: str, settings: Settings) -> str | None:
    provider = settings.providers.get(model.partition("/")[0])
    return None if provider is None else provider.base_url
