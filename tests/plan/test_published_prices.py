"""Published prices: which entry a model's name finds, and that they are what the package itself would charge."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal

import pytest
from genai_prices import Usage as TheirUsage
from genai_prices.data_snapshot import get_snapshot

from orchestrator.plan.published import RELEASED, published, published_price, table_name, why_unpublished
from orchestrator.records.prices import cost_nano_usd
from orchestrator.records.usage import Usage

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
AZURE = "https://me.openai.azure.com/openai/v1"
BEDROCK = "https://bedrock-runtime.eu-west-1.amazonaws.com"
LOCAL = "http://127.0.0.1:8000/v1"
SONNET = "us.anthropic.claude-sonnet-4-20250514-v1:0"


@pytest.mark.parametrize(
    ("model", "address", "entry"),
    [
        ("anthropic/claude-sonnet-4-20250514", None, "anthropic/claude-sonnet-4-0"),
        ("openai/gpt-4o-2024-08-06", "https://api.openai.com/v1", "openai/gpt-4o"),
        ("mine/gpt-4o", "https://api.openai.com/v1", "openai/gpt-4o"),
        ("openai/gpt-4o", LOCAL, "openai/gpt-4o"),
        ("mine/gpt-4o", AZURE, "azure/gpt-4o"),
        ("openai/gpt-4o", AZURE, "azure/gpt-4o"),
        (f"mine/{SONNET}", BEDROCK, f"aws/regional.{SONNET.removeprefix('us.')}"),
        (
            "bedrock/anthropic.claude-3-7-sonnet-20250219-v1:0",
            None,
            "aws/regional.anthropic.claude-3-7-sonnet-20250219-v1:0",
        ),
        ("litellm/anthropic/claude-opus-4-1", LOCAL, "anthropic/claude-opus-4-1"),
        ("openrouter/anthropic/claude-sonnet-4", None, "openrouter/anthropic/claude-sonnet-4"),
        ("gemini/gemini-2.5-pro", None, "google/gemini-2.5-pro"),
        ("vertex/google/gemini-2.5-pro", "https://aiplatform.googleapis.com/v1", "google/gemini-2.5-pro"),
        (
            f"mine/arn:aws:bedrock:eu-west-1:1:inference-profile/{SONNET}",
            BEDROCK,
            f"aws/regional.{SONNET.removeprefix('us.')}",
        ),
        ("xai/grok-4", None, "x-ai/grok-4-0709"),
        ("gpt-5-mini-2025-08-07", None, "openai/gpt-5-mini"),
        ("gcp.vertex_ai/gemini-2.5-pro", None, "google/gemini-2.5-pro"),
        ("azure.ai.openai/gpt-4o", None, "azure/gpt-4o"),
        ("claude-sonnet-4-20250514", None, "anthropic/claude-sonnet-4-0"),
        ("small", None, None),
        ("mine/gpt-4o", LOCAL, None),
        ("azure/my-deployment", AZURE, None),
        ("vllm/openai/gpt-oss-20b", LOCAL, None),
        ("openai/gpt-image-1", None, None),
        ("perplexity/sonar-deep-research", None, None),
        ("openai/", None, None),
    ],
)
def test_a_model_is_found_by_who_is_asked_and_by_its_name(model: str, address: str | None, entry: str | None) -> None:
    found = published_price(model, address, AT)
    assert (found and found.entry) == entry
    assert found is None or found.source == table_name()


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("openai/gpt-5-mimi", "knows no 'gpt-5-mimi' of openai (did you mean 'gpt-5-mini'?)"),
        ("local/m", "knows no provider 'local'"),
        ("small", "knows nobody who makes 'small'"),
        ("openai/gpt-image-1", "has no price of it for tokens alone"),
    ],
)
def test_it_is_said_why_there_is_no_price(model: str, why: str) -> None:
    assert why_unpublished(model, None) == f"{table_name()} {why}"


def test_the_age_is_that_of_the_version_that_is_installed() -> None:
    found = published()
    assert found.name == table_name() == f"genai-prices {RELEASED[0]}"
    assert found.released == RELEASED[1]
    assert found.models > found.providers > 40


def test_prices_are_those_of_the_day() -> None:
    dear, cheap = (published_price("openai/o3", None, datetime(2025, month, 1, tzinfo=UTC)) for month in (5, 12))
    assert dear is not None
    assert cheap is not None
    assert (dear.price.input, cheap.price.input) == (10, 2)


@pytest.mark.parametrize("hour", [0, 3, 12])
def test_a_price_by_the_hour_is_the_dearest_of_the_day(hour: int) -> None:
    found = published_price("deepseek/deepseek-v4-pro", None, AT.replace(hour=hour))
    assert found is not None
    assert (found.price.input, found.price.cache_read, found.price.output) == (1.32, 0.044, 3.96)
    assert found.source == f"{table_name()}, at the dearest hour"


USAGES = [
    Usage(uncached_input=3, cache_write=12_304, output=550),
    Usage(uncached_input=90_001, cache_read=150_007, cache_write=1_003, output=40_009, reasoning=30_000),
    Usage(uncached_input=1, cache_read=1_200_000, cache_write=77_777, cache_write_1h=33_333, output=1),
]


def test_calls_cost_what_the_package_itself_would_charge() -> None:
    """Every third model that has a price here, on three calls, one above every tier."""
    compared = 0
    for provider in get_snapshot().providers:
        for model in provider.models[::3]:
            found = published_price(f"{provider.id}/{model.id}", None, AT)
            if found is None or found.entry != f"{provider.id}/{model.id}" or "deepseek" in provider.id:
                continue
            hourly = found.price.cache_write_1h is not None
            for usage in USAGES:
                theirs = TheirUsage(
                    input_tokens=usage.total_input,
                    cache_read_tokens=usage.cache_read,
                    cache_write_tokens=usage.cache_write,
                    output_tokens=usage.output,
                    **({"cache_write_1h_tokens": usage.cache_write_1h} if hourly else {}),
                )
                asked = model.calc_price(theirs, provider, genai_request_timestamp=AT).total_price
                nano = int((asked * Decimal(10**9)).to_integral_value(ROUND_HALF_EVEN))
                assert cost_nano_usd(usage, found.price) == nano, found.entry
                compared += 1
    assert compared > 1500
