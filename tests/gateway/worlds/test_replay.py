"""Tools that are answered from a cassette: equal trials, misses, masked arguments, and what a process after a killed one knows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from test_recall import BODY
from test_worlds_of_launches import bundle, lay
from world_world import CANCEL, GET

from orchestrator.gateway.body import Pool
from orchestrator.gateway.config import GatewayConfig
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.recall import Recall
from orchestrator.gateway.tools import begin_call
from orchestrator.gateway.worlds.replay import Recording, replayed
from orchestrator.records.outcome import Seal
from orchestrator.sandbox.world.command import COMMAND
from orchestrator.spec.bundle import Bundle, Item
from orchestrator.spec.cassette import parse_cassette
from orchestrator.spec.task import Fixtures
from orchestrator.trace.read import read_events
from orchestrator.trace.write import TrajectoryFolder

FETCH = {
    "name": "fetch_page",
    "description": "Fetches a page.",
    "arguments": {"type": "object", "required": ["url"], "properties": {"url": {"type": "string"}}},
}
FIXTURES: dict[str, Any] = {
    "mode": "replay",
    "cassette": "fixtures/c.jsonl",
    "tools": ["get_*"],
    "volatile": ["sent_at"],
}


def order(order_id: str, status: str) -> dict[str, Any]:
    return {
        "tool": "get_order",
        "arguments": {"order_id": order_id},
        "data": {"order": {"id": order_id, "status": status}},
    }


CALLS = [
    order("o1", "open"),
    order("o1", "shipped"),
    order("o2", "open"),
    {
        "tool": "fetch_page",
        "arguments": {"url": "http://a.example/"},
        "outcome": "error",
        "error": {"kind": "unavailable", "message": "later", "status": 503, "retry_after": 3.5},
    },
    {"tool": "fetch_page", "arguments": {"url": "http://b.example/", "sent_at": 1}, "data": {"text": "B"}},
]


def cassette(*calls: dict[str, Any]) -> bytes:
    head = {"format": "orchestrate-cassette", "version": 1, "tools": [FETCH]}
    return b"".join(
        json.dumps(each).encode() + b"\n"
        for each in (head, *({"number": number, **call} for number, call in enumerate(calls, 1)))
    )


def recorded(data: bytes | None = None, **fixtures: Any) -> Bundle:
    made = bundle(GET, CANCEL)
    items = {item.path: item for item in made.items}
    task = json.loads(items.pop("task.json").data) | {"fixtures": FIXTURES | fixtures}
    played = cassette(*CALLS) if data is None else data
    return Bundle.of(
        [*items.values(), Item("task.json", data=json.dumps(task).encode()), Item("fixtures/c.jsonl", data=played)]
    )


async def trial(
    here: Any, sample: int, calls: list[tuple[str, dict[str, Any]]], bundle: str = "w1"
) -> tuple[list[Any], Seal, list[Any]]:
    """Return what the calls of a launch got, its seal, and its events without ids and times."""
    inside = await here.launch(sample, world=bundle, scripts=None, models={})
    answers = [await inside.ask("POST", f"/tools/{name}", arguments) for name, arguments in calls]
    seal = await here.client.seal(inside.launch)
    events = read_events(await here.store.get(seal.trajectory.key))
    told = [
        {**event.data, "type": event.type} for event in events if event.type in {"tool_call", "tool_result", "finding"}
    ]
    for each in told:
        each.pop("seconds", None)
    return answers, seal, told


GOOD = [
    ("get_order", {"order_id": "o1"}),
    ("get_order", {"order_id": "o1"}),
    ("get_order", {"order_id": "o1"}),
    ("get_order", {"order_id": "o2"}),
    ("fetch_page", {"url": "http://a.example/"}),
    ("fetch_page", {"url": "http://b.example/", "sent_at": 99}),
    ("cancel_order", {"order_id": "o2"}),
]


def test_twenty_trials_see_the_same(world: Any) -> None:
    async def live() -> list[tuple[list[Any], Seal, list[Any]]]:
        async with world(world_program=COMMAND).running() as here:
            lay(here, "w1", recorded())
            return [await trial(here, sample, GOOD) for sample in range(1, 21)]

    trials = asyncio.run(live())
    answers, seal, first = trials[0]
    assert [status for status, *_ in answers] == [200, 200, 200, 200, 503, 200, 200]
    assert [each["order"]["status"] for _, each, _ in answers[:4]] == ["open", "shipped", "shipped", "open"]
    assert answers[4][1]["error"]["type"] == "unavailable"
    assert answers[4][2]["Retry-After"] == "4"
    assert all(told == first for _, _, told in trials)
    assert {each.fixture_misses for _, each, _ in trials} == {0}
    assert not seal.findings


def test_a_call_that_was_not_recorded_is_an_error_and_names_the_nearest_to_people(world: Any) -> None:
    async def live() -> tuple[list[Any], Seal, list[Any]]:
        async with world(world_program=COMMAND).running() as here:
            lay(here, "w1", recorded())
            calls = [
                ("get_order", {"order_id": "o3"}),
                ("get_order", {"order_id": 3}),
                ("fetch_page", {"url": "http://a.example/", "deep": True}),
                ("fetch_page", {}),
                ("get_order", {"order_id": "o1"}),
            ]
            return await trial(here, 1, calls)

    answers, seal, told = asyncio.run(live())
    assert [status for status, *_ in answers] == [502, 400, 502, 400, 200]
    assert answers[0][1]["error"] == {
        "type": "fixture_miss",
        "code": "get_order",
        "message": "fixture_miss: nothing was recorded for this call of get_order",
        "param": None,
    }
    assert seal.fixture_misses == 2
    assert [(each.type, each.detail) for each in seal.findings] == [
        ("fixture_miss", "fetch_page: nearest is call 4: deep true where nothing was recorded"),
        ("fixture_miss", 'get_order: nearest is call 1: order_id "o3" where "o1" was recorded'),
    ]
    shown = [each["content"] for each in told if each["type"] == "tool_result"]
    assert not [each for each in shown[:4] if "o1" in each or "b.example" in each]


def test_a_live_world_answers_by_itself_and_the_cassette_what_nothing_else_does(world: Any) -> None:
    async def live() -> tuple[list[Any], list[str]]:
        async with world(world_program=COMMAND).running() as here:
            lay(here, "w1", recorded(mode="live"))
            inside = await here.launch(world="w1", scripts=None, models={})
            listed = (await inside.ask("GET", "/tools"))[1]["tools"]
            return await inside.ask("POST", "/tools/get_order", {"order_id": "o3"}), [
                each["function"]["name"] for each in listed
            ]

    answer, names = asyncio.run(live())
    assert answer[1]["order"]["customer"] == "Cyd"
    assert "fetch_page" in names


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"format": "orchestrate-cassette", "version": 9}\n', "reads version 1"),
        (cassette(*CALLS) + b"{\n", "fixtures/c.jsonl:7:2: this is no JSON"),
        (
            cassette({"tool": "fetch_page", "arguments": {"url": 1}}) + b'{"number": 2, "tool": "a", "x": 1}\n',
            "3: x: unknown",
        ),
    ],
)
def test_a_broken_cassette_refuses_the_launch(world: Any, data: bytes, why: str) -> None:
    async def live() -> None:
        async with world(world_program=COMMAND).running() as here:
            lay(here, "w1", recorded(data))
            with pytest.raises(Exception, match="the recorded answers of task task-1 cannot be used") as caught:
                await here.launch(world="w1", scripts=None, models={})
            assert why in str(caught.value)

    asyncio.run(live())


def test_the_process_after_a_killed_one_goes_on_in_the_cassette(tmp_path: Path) -> None:
    again = [{"tool": "fetch_page", "arguments": {"url": "u"}, "data": {"n": number}} for number in (1, 2, 3)]
    found, _ = parse_cassette(cassette(*again), "c")
    assert found is not None
    recording = Recording(found, Fixtures.model_validate_json(json.dumps(FIXTURES)))
    config = GatewayConfig(folder=tmp_path, socket="s", door="d", admin_token="t")  # type: ignore[arg-type]

    def made(trajectory: Any) -> Launch:
        launch = Launch(BODY, trajectory, {}, config, Pool(1 << 20))
        for tool in replayed(launch, recording, ()):
            launch.tools.add(tool)
        return launch

    async def live() -> tuple[Launch, Any]:
        before = made(await TrajectoryFolder(tmp_path).open("t"))
        for url in ("u", "x", "u", 1):
            await begin_call(before, "fetch_page", {"url": url}, "http")
        trajectory = await TrajectoryFolder(tmp_path).resume("t")
        after = made(trajectory)
        recall = Recall(after, 0.0, 0.0)
        await trajectory.recall(recall.take)
        answer = await begin_call(after, "fetch_page", {"url": "u"}, "http")
        return after, answer.data

    after, data = asyncio.run(live())
    assert data == {"n": 3}
    assert after.fixture_misses == 1
