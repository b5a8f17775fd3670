"""Published prices of models, from the package ``genai-prices``: data on this machine, no network. The only place that knows the package.

A price is looked up for the provider that a model is asked at, by its address first and else by its name, under the name that the agent
asks for. What does not cost by tokens and requests alone (pictures that come back, hours of sound, reasoning at a rate of its own) has no
price rather than a wrong one. Searches that run at a provider cost extra there, and are not part of it.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from orchestrator.errors import nearest
from orchestrator.records.prices import KnownPrice
from orchestrator.settings import Price, PriceTier

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, ModelPrice, Provider, TieredPrices

_PACKAGE = "genai-prices"
RELEASED = ("0.2.3", date(2026, 11, 10))
"""The version that is a dependency, and its day: the package does not say how old its data is."""
_ALIASES = {
    "aws.bedrock": "aws",
    "bedrock": "aws",
    "azure.ai.inference": "azure",
    "azure.ai.openai": "azure",
    **dict.fromkeys(("gcp.gemini", "gcp.gen_ai", "gcp.vertex_ai", "gemini", "vertex", "vertex_ai"), "google"),
    "mistral_ai": "mistral",
    "x_ai": "x-ai",
    "xai": "x-ai",
}
"""Names that people, and OpenTelemetry (``gen_ai.provider.name``), give to providers."""
_PATHS = frozenset({"aws", "google"})
"""Providers whose models are also named by paths that end with their name: ARNs, ``google/gemini-…``."""
_RATES = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
}
_REQUESTS = "requests_kcount"
_BESIDE = frozenset({"web_searches_kcount", "storage_searches_kcount", "input_audio_mtok", "cache_audio_read_mtok"})
"""What a conversation in text does not use."""

_Rates = dict[str, float | None]


@dataclass(frozen=True, kw_only=True)
class Published:
    """What the package has."""

    name: str
    """The package with its version."""
    models: int
    providers: int
    released: date | None
    """Its day; None for another version than the one that is meant to be installed."""


def table_name() -> str:
    """Return the package with its version. Nothing of it is loaded."""
    return f"{_PACKAGE} {importlib.metadata.version(_PACKAGE)}"


def published() -> Published:
    """Return what the package has."""
    providers = _snapshot().providers
    version, day = RELEASED
    return Published(
        name=table_name(),
        models=sum(len(provider.models) for provider in providers),
        providers=len(providers),
        released=day if table_name() == f"{_PACKAGE} {version}" else None,
    )


def published_price(model: str, address: str | None, at: datetime) -> KnownPrice | None:
    """Return the price that holds at a time for ``provider/name`` asked at an address; None when the package knows none.

    Traces from elsewhere may say a name alone: then it is a price of who makes models of such names.
    Where a price depends on the hour, it is the dearest of the day, since nobody knows when calls will be made.
    """
    found = _find(model, address)
    if found is None:
        return None
    provider, info = found
    price = _price(info, at)
    source = f"{table_name()}, at the dearest hour" if _by_hour(info) else table_name()
    return None if price is None else KnownPrice(price=price, source=source, entry=f"{provider.id}/{info.id}")


def why_unpublished(model: str, address: str | None) -> str:
    """Return why there is no published price of a model."""
    provider, (whose, name) = _provider(_snapshot(), model, address), _asked(model)
    if provider is None:
        return (
            f"{table_name()} knows no provider {whose!r}"
            if whose
            else f"{table_name()} knows nobody who makes {name!r}"
        )
    if _find(model, address) is not None:
        return f"{table_name()} has no price of it for tokens alone"
    guess = nearest(name, [each.id for each in provider.models])
    return f"{table_name()} knows no {name!r} of {provider.id}{guess}"


def _snapshot() -> DataSnapshot:
    from genai_prices.data_snapshot import get_snapshot

    return get_snapshot()


def _provider(snapshot: DataSnapshot, model: str, address: str | None) -> Provider | None:
    name = _asked(model)[0]
    try:
        if name is None:
            return snapshot.find_provider(model, None, None)
        if address is not None:
            return snapshot.find_provider(None, None, address)
    except LookupError:
        pass  # somebody's own address: the name says whose models are behind it
    return next((each for each in snapshot.providers if each.id == _ALIASES.get(name or "", name)), None)


def _asked(model: str) -> tuple[str | None, str]:
    """Return whose model it is, None where nobody says, and its name there. Behind a LiteLLM proxy, names begin with the provider's."""
    name, slash, rest = model.partition("/")
    if not slash:
        return None, model
    whose, _, inner = rest.partition("/")
    return (whose, inner) if name == "litellm" and inner else (name, rest)


def _find(model: str, address: str | None) -> tuple[Provider, ModelInfo] | None:
    snapshot = _snapshot()
    provider = _provider(snapshot, model, address)
    if provider is None:
        return None
    name = _asked(model)[1]
    found = provider.find_model(name, all_providers=snapshot.providers)
    if found is None and provider.id in _PATHS:
        found = provider.find_model(name.rpartition("/")[2], all_providers=snapshot.providers)
    return None if found is None else (provider, found)


def _price(info: ModelInfo, at: datetime) -> Price | None:
    """Return what a model costs on the day of a time; None when it is not by tokens and requests alone."""
    prices = [_converted(info, found) for found in _of_day(info, at)]
    known = [price for price in prices if price is not None]
    if len(known) != len(prices):
        return None
    return known[0] if len(known) == 1 else _dearest(known)


def _of_day(info: ModelInfo, at: datetime) -> list[ModelPrice]:
    """Return the different prices that hold in the course of a day, whose hours may begin at half past."""
    if not _by_hour(info):
        return [info.get_prices(at)]
    midnight = datetime.combine(at.astimezone(UTC).date(), time(), UTC)
    found: list[ModelPrice] = []
    for half_hour in range(48):
        price = info.get_prices(midnight + timedelta(minutes=30 * half_hour))
        if price not in found:
            found.append(price)
    return found


def _by_hour(info: ModelInfo) -> bool:
    return isinstance(info.prices, list) and any(hasattr(each.constraint, "start_time") for each in info.prices)


def _converted(info: ModelInfo, found: ModelPrice) -> Price | None:
    known = {key: value for key, value in found.__dict__.items() if value is not None}
    if "input_mtok" not in known or known.keys() - {*_RATES.values(), _REQUESTS} - _BESIDE:
        return None
    if "output_mtok" not in known:
        if "embed" not in info.id:
            return None
        known["output_mtok"] = Decimal(0)
    sizes = sorted({tier.start for value in known.values() for tier in getattr(value, "tiers", ())})
    rates: _Rates = _rates(known, 0)
    tiers = tuple(PriceTier.model_validate({"above": size, **_rates(known, size + 1)}) for size in sizes)
    requests = known.get(_REQUESTS, Decimal(0)) / 1000
    return Price.model_validate({**rates, "request": float(requests), "tiers": tiers})


def _rates(known: Mapping[str, Decimal | TieredPrices], tokens: int) -> _Rates:
    return {name: float(_at(known[key], tokens)) for name, key in _RATES.items() if key in known}


def _at(value: Decimal | TieredPrices, tokens: int) -> Decimal:
    if isinstance(value, Decimal):
        return value
    return next((tier.price for tier in reversed(value.tiers) if tokens > tier.start), value.base)


def _dearest(prices: Sequence[Price]) -> Price | None:
    """Return the greatest of each rate; None where sizes matter beside the hour."""
    if any(price.tiers for price in prices):
        return None
    found = {name: [getattr(price, name) for price in prices] for name in (*_RATES, "request")}
    return Price.model_validate({name: max(values) for name, values in found.items() if None not in values})
