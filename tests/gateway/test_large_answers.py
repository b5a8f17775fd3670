"""Large answers are read beside the loop, and passed on as small ones are: how long they are is up to agents, and all others wait else."""

from __future__ import annotations

import asyncio
import gc
import json
import threading

import aiohttp
import pytest
from provider_world import ANSWER, provider

from orchestrator.gateway.config import ProviderConfig
from orchestrator.gateway.dialects.chat import ChatDialect
from orchestrator.gateway.dialects.shape import parsed
from orchestrator.gateway.provider import ModelCall, ProviderError
from orchestrator.gateway.upstream import HttpProvider

TOKEN = {"token": "x", "logprob": -0.1, "top_logprobs": [{"token": "y", "logprob": -2.5, "bytes": [1, 2]}] * 20}


class Watched(ChatDialect):
    """Notes on which threads answers are looked at."""

    def __init__(self):
        self.threads = []

    def is_answer(self, value):
        self.threads.append(threading.current_thread())
        return super().is_answer(value)


def asked(answer):
    """Ask for the same answer three times at once. Returns what came and the threads."""

    async def live():
        dialect = Watched()
        async with provider(lambda _: answer) as (url, _seen), aiohttp.ClientSession() as session:
            found = HttpProvider("p", ProviderConfig(base_url=url), session)
            call = ModelCall(dialect, {"model": "m", "messages": []}, "m")
            return await asyncio.gather(*(found.attempt(call) for _ in range(3)), return_exceptions=True), dialect

    return asyncio.run(live())


@pytest.mark.parametrize(("tokens", "beside"), [(1, False), (1500, True)], ids=["small", "large"])
def test_large_answers_are_read_beside_the_loop(tokens, beside):
    answer = {**ANSWER, "choices": [{**ANSWER["choices"][0], "logprobs": {"content": [TOKEN] * tokens}}]}
    assert (len(json.dumps(answer)) > 1 << 20) is beside
    found, dialect = asked(answer)
    assert found == [answer] * 3
    assert {thread is not threading.main_thread() for thread in dialect.threads} == {beside}


def test_what_is_wrong_with_a_large_answer_is_told_as_with_a_small_one():
    found, _ = asked({"choices": "x" * (2 << 20)})
    assert [(type(each), each.code) for each in found] == [(ProviderError, "provider_garbled")] * 3


@pytest.mark.parametrize(
    "text", [b'"' + b"x" * (2 << 20) + b'"', b"{" * (2 << 20), b'"\\ud800' + b"x" * (2 << 20) + b'"']
)
@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_looked_for_again_whatever_was_read(text, collects):
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        try:
            parsed(text)
        except ValueError:
            assert text[:1] == b"{"
        assert gc.isenabled() is collects
    finally:
        (gc.enable if before else gc.disable)()
