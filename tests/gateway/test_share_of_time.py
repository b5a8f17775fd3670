"""Who sends what takes long to read waits for itself, and nobody else does."""

from __future__ import annotations

import asyncio
import json

import pytest
from provider_world import ANSWER, provider

from orchestrator.gateway import body as reading
from orchestrator.gateway.body import Share, is_small
from orchestrator.gateway.toolbox import Tool, Toolbox

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


class Counting(Share):
    """Makes nobody wait, and says what was taken."""

    def __init__(self):
        super().__init__()
        self.taken = 0.0

    async def take(self, seconds):
        self.taken += seconds


LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@pytest.mark.parametrize(
    ("ask", "least"),
    [
        (("GET", "/tools"), 0.025),
        (("POST", "/mcp", LIST), 0.025),
        (("GET", "/nothing"), 2e-4),
        (("GET", "/budget"), 2e-4),
        (("POST", "/v1/models"), 2e-4),
    ],
)
def test_every_request_costs_its_trial_time_and_long_lists_cost_more(either, ask, least):
    """However short the question is: without that, thirty connections of one trial had the process for themselves."""

    async def live():
        async with either().running() as here:
            inside = await here.launch()
            launch = here.registry.find(inside.launch)
            for number in range(100):
                launch.tools.add(
                    Tool(name=f"t{number}", description="x" * 10_000, schema={"type": "object"}, prepare=dict)
                )
            share = launch.buffered.share = Counting()
            await inside.ask(*ask)
            return share.taken

    assert least <= asyncio.run(live()) < least + 0.02


def test_a_list_of_tools_is_made_once_and_anew_when_there_is_another():
    made = []
    tools = Toolbox()
    for number in range(3):
        tools.add(Tool(name=f"t{number}", description="", schema={"type": "object"}, prepare=dict))
        for _ in range(2):
            assert tools.listed("names", lambda found: made.append(found) or len(found)) == number + 1
    assert [len(each) for each in made] == [1, 2, 3]


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
