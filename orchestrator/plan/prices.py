"""The price table of a run: what each model of its agents costs, and who says so. Made once, at submission, and kept in the manifest."""

from __future__ import annotations

from datetime import datetime

from orchestrator.plan.published import published_price, why_unpublished
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
    return price_of(model, settings, at)


def price_of(model: str, settings: Settings, at: datetime) -> KnownPrice | None:
    """Return what a model costs, if the settings or published tables say it."""
    if model in settings.prices:
        return KnownPrice(price=settings.prices[model], source="orchestrate.toml")
    return None if is_scripted(model) else published_price(model, _address(model, settings), at)


def why_unpriced(model: str, settings: Settings) -> str:
    """Return why nobody knows the price of a model that neither its agent nor the settings give."""
    if is_scripted(model):
        return "nobody charges for it, and neither its agent file nor orchestrate.toml says what it counts as"
    return why_unpublished(model, _address(model, settings))


def _address(model: str, settings: Settings) -> str | None:
    provider = settings.providers.get(model.partition("/")[0])
    return None if provider is None else provider.base_url
