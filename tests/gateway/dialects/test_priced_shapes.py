"""Every recorded form of token counts costs what a hand counts with the published price of its model, to the billionth of a dollar.

Each sum below is over uncached input, cache read, cache write, cache write for an hour, output: tokens times nano USD for one token.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.gateway.dialects import tokens
from orchestrator.plan.published import published_price
from orchestrator.records.prices import priced

SHAPES = {shape["name"]: shape for shape in json.loads((Path(__file__).parent / "usage_shapes.json").read_text())}
READ = {
    "chat": tokens.chat_tokens,
    "responses": tokens.responses_tokens,
    "messages": tokens.messages_tokens,
    "embeddings": tokens.embeddings_tokens,
}
AT = datetime(2026, 11, 20, tzinfo=UTC)
COSTS = {
    "openai chat, cached and reasoning": ("openai/gpt-5", 86 * 1250 + 1920 * 125 + 300 * 10_000),
    "azure chat": ("azure/o3-mini", 158 * 1100 + 1408 * 550 + 1518 * 4400),
    "xai chat, reasoning beside the completion": ("xai/grok-4", 9992 * 3000 + 128 * 750 + 4308 * 15_000),
    "gemini compatible, thoughts in the total only": ("google/gemini-2.5-flash", 20 * 300 + 603 * 2500),
    "gemini compatible, only thoughts": ("google/gemini-2.5-pro", 21 * 1250 + 60 * 10_000),
    "deepseek": ("deepseek/deepseek-chat", 176 * 270 + 1024 * 70 + 90 * 1100),
    "openrouter": ("openrouter/anthropic/claude-sonnet-4", 94 * 3000 + 100 * 3750 + 2 * 15_000),
    "mistral": ("mistral/mistral-large-latest", 16 * 2000 + 34 * 6000),
    "moonshot": ("moonshotai/kimi-k2", 8 * 570 + 11 * 2300),
    "ollama, without a total": ("ollama/llama3", None),
    "openai responses": ("openai/gpt-5-mini", 36 * 250 + 87 * 2000),
    "openai responses, cached and written": (
        "openai/gpt-6-sol",
        404 * 2000 + 4096 * 200 + 500 * 2500 + 700 * 10_000,
    ),
    "anthropic": ("anthropic/claude-3-7-sonnet-20250219", 3 * 3000 + 12_304 * 3750 + 550 * 15_000),
    "anthropic, kept for an hour": (
        "anthropic/claude-sonnet-4-20250514",
        2048 * 3000 + 1800 * 300 + 148 * 3750 + 100 * 6000 + 503 * 15_000,
    ),
    "bedrock, anthropic with nulls": (
        "bedrock/us.anthropic.claude-sonnet-4-20250514-v1:0",
        19 * 3000 + 73 * 15_000,
    ),
    "anthropic, thinking and a shortened conversation": (
        "anthropic/claude-opus-4-6",
        203_000 * 5000 + 4500 * 25_000,
    ),
    "embeddings": ("openai/text-embedding-3-small", 8 * 20),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_recorded_form_costs_what_a_hand_counts(name: str) -> None:
    shape, (model, nano_usd) = SHAPES[name], COSTS[name]
    found, known = READ[shape["api"]](shape["usage"]), published_price(model, None, AT)
    assert found is not None
    assert priced(found, known and known.price).cost_nano_usd == nano_usd
