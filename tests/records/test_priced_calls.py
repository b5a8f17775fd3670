"""What calls cost, to the billionth of a dollar."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import made_agent, made_prices
from pydantic import ValidationError

from orchestrator.records.prices import KnownPrice, cost_nano_usd, price_digest, priced
from orchestrator.records.usage import Usage
from orchestrator.settings import Price, PriceTier
from orchestrator.spec.agent import Agent

VECTORS = Path(__file__).parent.parent / "stats" / "vectors" / "statistics.json"
SONNET = Price(input=3, output=15, cache_read=0.3, cache_write=3.75, cache_write_1h=6)
GEMINI = Price(
    input=1.25, output=10, cache_read=0.125, tiers=(PriceTier(above=200_000, input=2.5, output=15, cache_read=0.25),)
)
STEPS = Price(
    input=1, output=1, tiers=(PriceTier(above=10, input=2, output=2), PriceTier(above=20, input=0.5, output=0.5))
)


def test_cache_buckets_are_not_counted_twice() -> None:
    vector = next(v for v in json.loads(VECTORS.read_text())["vectors"] if v["id"] == "cost_cache_buckets")
    given, expected = dict(vector["inputs"]), vector["expected"]
    price = Price(**given.pop("usd_per_mtok"))
    usage = Usage(**given)
    assert cost_nano_usd(usage, price) == expected["cost_nano_usd"]
    assert usage.total_input == expected["inclusive_input_tokens"]


@pytest.mark.parametrize(
    ("usage", "price", "nano_usd"),
    [
        (Usage(uncached_input=1000, output=100), SONNET, 3_000_000 + 1_500_000),
        (Usage(cache_read=1000), SONNET, 300_000),
        (Usage(cache_write=1000, cache_write_1h=400), SONNET, 600 * 3750 + 400 * 6000),
        (Usage(output=100, reasoning=90), SONNET, 100 * 15_000),
        (Usage(cache_read=7, cache_write=5, cache_write_1h=2), Price(input=2, output=0), 12 * 2000),
        (Usage(cache_write=5, cache_write_1h=2), Price(input=2, output=0, cache_write=3), 5 * 3000),
        (Usage(uncached_input=200_000, output=1), GEMINI, 200_000 * 1250 + 10_000),
        (Usage(uncached_input=200_001, output=1), GEMINI, 200_001 * 2500 + 15_000),
        (Usage(uncached_input=1, cache_read=200_000, output=1), GEMINI, 2500 + 200_000 * 250 + 15_000),
        (Usage(uncached_input=10), STEPS, 10_000),
        (Usage(uncached_input=20), STEPS, 40_000),
        (Usage(uncached_input=21), STEPS, 10_500),
        (Usage(uncached_input=2), Price(input=1, output=1, request=0.012), 12_000_000 + 2000),
        (Usage(), Price(input=1, output=1, request=0.012), 12_000_000),
        (Usage(uncached_input=1), Price(input=0.0005, output=0), 0),
        (Usage(uncached_input=3), Price(input=0.0005, output=0), 2),
        (Usage(uncached_input=1, output=1), Price(input=0.0002, output=0.0003), 0),
        (Usage(uncached_input=10**8, output=10**8), Price(input=100_000, output=100_000), 2 * 10**16),
    ],
)
def test_a_call_costs_what_a_hand_counts(usage: Usage, price: Price, nano_usd: int) -> None:
    assert priced(usage, price).cost_nano_usd == nano_usd


def test_a_cost_without_a_price_is_not_known() -> None:
    assert priced(Usage(uncached_input=1, cost_nano_usd=7), None) == Usage(uncached_input=1)


RATE = st.floats(0, 100_000, allow_nan=False)
OPTIONAL = st.none() | RATE
PRICES = st.builds(
    Price, input=RATE, output=RATE, cache_read=OPTIONAL, cache_write=OPTIONAL, cache_write_1h=OPTIONAL, request=RATE
)
TOKENS = st.integers(0, 10**8)
USAGES = st.builds(Usage, uncached_input=TOKENS, cache_read=TOKENS, cache_write=TOKENS, output=TOKENS)


def test_the_smallest_part_decides_between_two_neighbours() -> None:
    price = Price(input=2.6398314929029923e-210, output=0.0, request=4096.4687190205)
    assert cost_nano_usd(Usage(cache_write=1), price) == 4096468719021


@given(usage=USAGES, price=PRICES)
def test_a_cost_is_exact_but_for_one_rounding_and_fits_in_64_bits(usage: Usage, price: Price) -> None:
    read, write = (price.input if rate is None else rate for rate in (price.cache_read, price.cache_write))
    buckets = (
        (usage.uncached_input, price.input),
        (usage.cache_read, read),
        (usage.cache_write, write),
        (usage.output, price.output),
    )
    exact = sum(tokens * Fraction(str(rate)) * 1000 for tokens, rate in buckets) + Fraction(str(price.request)) * 10**9
    found = cost_nano_usd(usage, price)
    assert found == round(exact)  # of two neighbours equally near, both take the even one
    assert 0 <= found < 1 << 63


@given(usage=USAGES, price=PRICES, more=USAGES)
def test_more_tokens_never_cost_less_and_buckets_add_up(usage: Usage, price: Price, more: Usage) -> None:
    both = usage.plus(more)
    assert cost_nano_usd(both, price) >= cost_nano_usd(usage, price)
    assert both.total == usage.total + more.total == both.total_input + both.output


def test_a_price_is_said_in_one_line() -> None:
    assert Price(input=1.25, output=10).spelled == "$1.25 in, $10 out, for a million tokens"
    said = GEMINI.model_copy(update={"request": 0.012}).spelled
    assert said == (
        "$1.25 in, $10 out, for a million tokens, and $0.012 for each request; $2.5 in, $15 out, above 200,000 of input"
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"input": -1, "output": 1},
        {"input": 1},
        {"input": 1, "output": 100_001},
        {"input": 1, "output": float("nan")},
        {"input": 1, "output": 1, "request": -0.1},
        {"input": 1, "output": 1, "tiers": ({"above": 0, "input": 1, "output": 1},)},
    ],
)
def test_prices_that_make_no_sense_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Price.model_validate(fields)


def test_tiers_must_rise() -> None:
    tiers = tuple(PriceTier(above=above, input=1, output=1) for above in (20, 10))
    with pytest.raises(ValidationError, match="'above' of the tiers must rise, and is 20, 10"):
        Price(input=1, output=1, tiers=tiers)


def test_tables_are_equal_when_models_cost_the_same_whoever_says_so() -> None:
    ours = {"x/m": KnownPrice(price=SONNET, source="agent file")}
    theirs = {"x/m": KnownPrice(price=SONNET, source="genai-prices 1", entry="x/y")}
    assert price_digest([ours]) == price_digest([theirs]) == price_digest([ours, theirs]) != price_digest([])
    assert price_digest([ours]) != price_digest([{"x/n": ours["x/m"]}])
    assert price_digest([{}]) is None


def test_an_agent_knows_which_of_its_models_have_no_price() -> None:
    agent = Agent(type="react", models={"a": "x/b", "b": "x/a", "c": "x/m", "d": "x/b"}, prices={"x/m": SONNET})
    made = made_agent(agent=agent)
    assert made.unpriced == ("x/a", "x/b")
    assert made.price_of() == {"x/m": SONNET}
    assert made.prices == made_prices(agent)
