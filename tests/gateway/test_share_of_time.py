"""Who sends what takes long to read waits for itself, and nobody else does."""

from __future__ import annotations

import asyncio
import json

import pytest
from provider_world import ANSWER, provider

from orchestrator.gateway import body as reading
from orchestrator.gateway.body import Share, is_small

LARGE = {"model": "nobody's", "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 30_000}]}
TOO_LARGE = {"model": "main", "input": [[1] * 20] * 9000}


@pytest.fixture
def naps(monkeypatch):
    """Sleeping takes no time but that of the clock that is returned with the list of naps."""
    found = []

    async def sleep(seconds):
        found.append(round(seconds, 6))

    monkeypatch.setattr(reading.asyncio, "sleep", sleep)
    return found


def test_a_launch_has_a_quarter_of_the_time_after_a_first_second(naps):
    now = [100.0]
    share = Share(lambda: now[0])

    async def play():
        for _ in range(4):
            await share.take(0.5)
        now[0] += 60
        await share.take(0.5)

    asyncio.run(play())
    assert naps == [2.0, 4.0]


@pytest.mark.parametrize(
    ("value", "small"),
    [
        (1, True),
        ("x" * 1000, True),
        ([1] * 9, True),
        ([1] * 10, False),
        ({"a": {"b": [1] * 7}}, True),
        ([[[]] * 4] * 3, False),
    ],
)
def test_values_are_counted(value, small):
    assert is_small(value, 10) is small


@pytest.mark.parametrize(
    "arguments",
    [
        {"status": "done", "escalation": {str(n): n for n in range(30_000)}},
        {"status": "done", **{f"f{n}": n for n in range(30_000)}},
    ],
)
def test_mistakes_without_number_are_not_named_one_by_one(either, arguments):
    async def live():
        async with either().running() as here:
            inside = await here.launch()
            status, answer, _ = await inside.ask("POST", "/tools/finish", arguments)
            few = {"status": "done", **{f"f{n}": n for n in range(500)}}
            _, told, _ = await inside.ask("POST", "/tools/finish", few)
            return status, answer["error"]["type"], len(told["error"]["message"])

    status, kind, length = asyncio.run(live())
    assert (status, kind) == (413, "request_too_large")
    assert length < 2000


@pytest.mark.parametrize("body", [LARGE, TOO_LARGE], ids=["large", "too large"])
def test_large_bodies_of_one_trial_keep_no_other_waiting(either, body):
    """Each takes some tenths of a second to read, and being refused it costs no step."""

    async def live():
        data = json.dumps(body).encode()
        async with either().running() as here:
            inside, other = await here.launch(1), await here.launch(2)
            flood = [asyncio.create_task(inside.ask("POST", "/v1/chat/completions", data)) for _ in range(16)]
            await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
            for _ in range(5):
                assert (await other.chat())[0] == 200
            still = sum(not task.done() for task in flood)
            for task in flood:
                task.cancel()
            await asyncio.gather(*flood, return_exceptions=True)
            return still

    assert asyncio.run(live()) >= 8


def test_answers_that_nobody_fetches_are_counted_and_given_up(world):
    """Each could be as large as an answer may be, on as many connections as an agent may have."""
    big = {**ANSWER, "choices": [{"message": {"role": "assistant", "content": "x" * (9 << 20)}}]}

    async def live():
        limits = {"buffered_bytes": 20 << 20, "stall_seconds": 0.5}
        async with provider(lambda _: big) as (url, _):
            made = {"providers": {"p": {"base_url": url}}, "limits": limits}
            async with world(**made).running() as here:
                inside = await here.launch(models={"main": "p/m"}, scripts=None)
                data = json.dumps({"model": "main", "messages": [{"role": "user", "content": "x"}]}).encode()
                token = inside.registration.agent_token
                head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
                head += f"Content-Length: {len(data)}\r\n\r\n"
                deaf = [inside.raw(head.encode() + data) for _ in range(4)]
                buffered = here.registry.find(inside.launch).buffered
                held = []
                while (await here.client.spending("run-1")).steps < 4 or buffered._held:
                    held.append(buffered._held)
                    await asyncio.sleep(0.02)
                for each in deaf:
                    each.close()
                seal = await here.client.seal(inside.launch)
                return max(held), seal.steps, {finding.type for finding in seal.findings}

    most, steps, findings = asyncio.run(live())
    assert (steps, findings) == (4, {"slow_reader", "request_too_large"})
    assert 18 << 20 < most <= 20 << 20
