"""What a launch may cost at most, and how amounts are shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.plan.cost import dollars, most_nano_usd, nano
from orchestrator.records.prices import priced
from orchestrator.records.usage import Usage
from orchestrator.settings import Price, PriceTier
from orchestrator.spec.task import Budgets

CHEAP, DEAR = Price(input=1, output=2), Price(input=3, output=4, cache_write=7)
PRICES = {"x/cheap": CHEAP, "x/dear": DEAR}


@pytest.mark.parametrize(
    ("budgets", "models", "most"),
    [
        (Budgets(max_tokens=1000), ["x/cheap"], 2_000_000),
        (Budgets(max_tokens=1000), ["x/cheap", "x/dear"], 7_000_000),
        (Budgets(max_tokens=1000, max_cost_usd=0.001), ["x/dear"], 1_000_000),
        (Budgets(max_tokens=1000, max_cost_usd=5), ["x/cheap"], 2_000_000),
        (Budgets(max_cost_usd=5), [], 0),
        (Budgets(max_cost_usd=5), ["x/cheap", "x/unknown"], None),
    ],
)
def test_the_smaller_budget_at_the_dearest_price(budgets: Budgets, models: list[str], most: int | None) -> None:
    assert most_nano_usd(budgets, models, PRICES) == most


RATE = st.floats(0, 1000, allow_nan=False)
CARD = {"input": RATE, "output": RATE, "cache_read": st.none() | RATE, "cache_write": st.none() | RATE}
TIER = st.builds(PriceTier, above=st.integers(1, 10**6), **CARD)
TIERS = st.lists(TIER, max_size=2, unique_by=lambda tier: tier.above)
RISING = TIERS.map(lambda tiers: tuple(sorted(tiers, key=lambda tier: tier.above)))
PRICE = st.builds(Price, **CARD, cache_write_1h=st.none() | RATE, request=RATE, tiers=RISING)
TOKENS = st.integers(0, 10**6)


@given(price=PRICE, uncached=TOKENS, read=TOKENS, write=TOKENS, output=TOKENS)
def test_no_mix_of_tokens_within_the_budget_costs_more(
    price: Price, uncached: int, read: int, write: int, output: int
) -> None:
    counted = Usage(
        uncached_input=uncached, cache_read=read, cache_write=write, cache_write_1h=write // 2, output=output
    )
    used = priced(counted, price)
    most = most_nano_usd(Budgets(max_tokens=max(1, used.total), max_steps=1), ["x/m"], {"x/m": price})
    assert used.cost_nano_usd is not None
    assert most is not None
    assert used.cost_nano_usd <= most


@pytest.mark.parametrize(
    ("usd", "shown"),
    [
        (0, "$0.00"),
        (1.5, "$1.50"),
        (0.0096, "$0.0096"),
        (0.00001, "$0.00001"),
        (1234.567, "$1,234.57"),
        (0.125, "$0.1250"),
    ],
)
def test_amounts_are_shown_with_the_digits_that_matter(usd: float, shown: str) -> None:
    assert dollars(nano(usd)) == shown
