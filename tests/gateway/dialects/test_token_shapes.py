"""Every provider's token counts become exclusive buckets that add up to its own totals; nonsense becomes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.gateway.dialects import tokens
from orchestrator.records.usage import Usage

SHAPES = json.loads((Path(__file__).parent / "usage_shapes.json").read_text())
READ = {
    "chat": tokens.chat_tokens,
    "responses": tokens.responses_tokens,
    "messages": tokens.messages_tokens,
    "embeddings": tokens.embeddings_tokens,
}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape["name"])
def test_a_recorded_form_becomes_its_buckets(shape):
    found = READ[shape["api"]](shape["usage"])
    assert found == Usage(**shape["buckets"])
    if "total_tokens" in shape["usage"]:
        assert found.total == shape["usage"]["total_tokens"]


CHAT = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
RESPONSES = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
MESSAGES = {"input_tokens": 10, "output_tokens": 5}


@pytest.mark.parametrize(
    ("api", "reported"),
    [
        ("chat", None),
        ("chat", []),
        ("chat", {}),
        ("chat", {"completion_tokens": 5}),
        ("chat", {**CHAT, "prompt_tokens": -1}),
        ("chat", {**CHAT, "prompt_tokens": True}),
        ("chat", {**CHAT, "prompt_tokens": 10.0}),
        ("chat", {**CHAT, "prompt_tokens": 10**9}),
        ("chat", {**CHAT, "total_tokens": 14}),
        ("chat", {**CHAT, "total_tokens": "15"}),
        ("chat", {**CHAT, "total_tokens": 20, "completion_tokens_details": {"reasoning_tokens": 3}}),
        ("chat", {**CHAT, "prompt_tokens_details": {"cached_tokens": 11}}),
        ("chat", {**CHAT, "prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 5}}),
        ("chat", {**CHAT, "prompt_tokens_details": {"cached_tokens": "6"}}),
        ("chat", {**CHAT, "completion_tokens_details": {"reasoning_tokens": 6}}),
        ("chat", {**CHAT, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 4}),
        ("responses", {**RESPONSES, "total_tokens": 10}),
        ("responses", {**RESPONSES, "input_tokens_details": {"cached_tokens": 11}}),
        ("responses", CHAT),
        ("messages", {**MESSAGES, "cache_read_input_tokens": -1}),
        ("messages", {"output_tokens": 1}),
        (
            "messages",
            {
                **MESSAGES,
                "cache_creation_input_tokens": 5,
                "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 1},
            },
        ),
        ("messages", {**MESSAGES, "iterations": [{"type": "advisor_message", "input_tokens": 1, "output_tokens": 1}]}),
        ("messages", {**MESSAGES, "iterations": [{"type": "compaction"}]}),
        ("embeddings", {"prompt_tokens": 5, "total_tokens": 6}),
    ],
)
def test_what_does_not_add_up_is_nothing(api, reported):
    assert READ[api](reported) is None


counts = st.one_of(st.none(), st.integers(-5, 60), st.just(10**9), st.text(max_size=2))
details = st.one_of(
    st.none(), st.dictionaries(st.sampled_from(["cached_tokens", "cache_write_tokens", "reasoning_tokens"]), counts)
)
KEYS = {
    **dict.fromkeys(["prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "total_tokens"], counts),
    **dict.fromkeys(["cache_read_input_tokens", "cache_creation_input_tokens", "prompt_cache_hit_tokens"], counts),
    **dict.fromkeys(["prompt_tokens_details", "completion_tokens_details", "output_tokens_details"], details),
}


@given(st.fixed_dictionaries({}, optional=KEYS), st.sampled_from(sorted(READ)))
def test_whatever_comes_adds_up_or_is_nothing(reported, api):
    found = READ[api](reported)
    if found is None:
        return
    assert found.reasoning <= found.output
    assert found.cache_write_1h <= found.cache_write
    assert found.cost_nano_usd is None
    if api != "messages" and reported.get("total_tokens") is not None:
        assert found.total == reported["total_tokens"]
