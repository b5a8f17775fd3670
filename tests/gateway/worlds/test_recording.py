"""What a live world answered, recorded from its trajectory, is what a cassette answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from test_replay import FIXTURES, trial
from test_worlds_of_launches import bundle, lay
from world_world import ADD, CANCEL, GET

from orchestrator.driver.record import made_cassette, to_bytes
from orchestrator.records.outcome import Seal
from orchestrator.sandbox.world.command import COMMAND
from orchestrator.spec.bundle import Bundle, Item
from orchestrator.spec.cassette import Cassette, parse_cassette
from orchestrator.spec.task import Fixtures
from orchestrator.trace.read import read_events

ALL = FIXTURES | {"tools": ["*"], "volatile": ["note"], "redact": ["order.customer"]}
PLAY: list[tuple[str, dict[str, Any]]] = [
    ("get_order", {"order_id": "o1"}),
    ("add_cents", {"order_id": "o1", "cents": 5}),
    ("add_cents", {"order_id": "o1", "cents": 5}),
    ("cancel_order", {"order_id": "o9"}),
    ("cancel_order", {"order_id": "o2"}),
    ("cancel_order", {"order_id": "o2"}),
    ("get_order", {"order": "o1"}),
    ("get_order", {"order_id": "o1"}),
]


def laid(mode: str, data: bytes) -> Bundle:
    made = bundle(GET, ADD, CANCEL | {"rate": {"calls": 2, "seconds": 60}})
    items = {item.path: item for item in made.items}
    task = json.loads(items.pop("task.json").data) | {"fixtures": ALL | {"mode": mode}}
    return Bundle.of(
        [*items.values(), Item("task.json", data=json.dumps(task).encode()), Item("fixtures/c.jsonl", data=data)]
    )


def test_replaying_is_like_the_trial_that_was_recorded(world: Any) -> None:
    fixtures = Fixtures.model_validate_json(json.dumps(ALL | {"redact": []}))

    async def live() -> tuple[Any, list[Any], bytes]:
        async with world(world_program=COMMAND).running() as here:
            lay(here, "w1", laid("live", b'{"format": "orchestrate-cassette", "version": 1}\n'))
            first = await trial(here, 1, PLAY)
            events = read_events(await here.store.get(first[1].trajectory.key))
            data = to_bytes(made_cassette(events, fixtures, Cassette((), ())))
            lay(here, "w2", laid("replay", data))
            again = [await trial(here, sample, PLAY, "w2") for sample in range(2, 22)]
            return first, again, data

    first, again, data = asyncio.run(live())
    assert [status for status, *_ in first[0]] == [200, 200, 200, 409, 200, 429, 400, 200]
    assert len(data.splitlines()) == 1 + 7  # what did not fit reached no tool
    seals: list[Seal] = [seal for _, seal, _ in again]
    assert {seal.fixture_misses for seal in seals} == {0}
    assert all(told == first[2] for _, _, told in again)


def test_secret_values_are_not_recorded_and_lines_of_other_tools_stay(world: Any) -> None:
    fixtures = Fixtures.model_validate_json(json.dumps(ALL | {"tools": ["get_*"]}))
    fetch = {"number": 7, "tool": "fetch_page", "arguments": {"url": "u"}, "data": {"order": {"customer": "stays"}}}
    head = {"format": "orchestrate-cassette", "version": 1, "tools": [{"name": "fetch_page"}]}
    old = {"number": 9, "tool": "get_order", "arguments": {"order_id": "old"}}
    before, _ = parse_cassette(b"".join(json.dumps(each).encode() + b"\n" for each in (head, fetch, old)), "c")
    assert before is not None

    async def live() -> list[Any]:
        async with world(world_program=COMMAND).running() as here:
            lay(here, "w1", bundle(GET, ADD, CANCEL))
            _, seal, _ = await trial(here, 1, PLAY)
            return read_events(await here.store.get(seal.trajectory.key))

    made = made_cassette(asyncio.run(live()), fixtures, before)
    assert [(call.number, call.tool) for call in made.calls] == [(1, "fetch_page"), (2, "get_order"), (3, "get_order")]
    assert b"Ada" not in to_bytes(made)
    assert made.calls[1].data["order"] == {"id": "o1", "customer": "[redacted]", "cents": 1200, "status": "open"}
    assert made.calls[2].data["order"]["cents"] == 1210  # type: ignore[index, call-overload]
    assert parse_cassette(to_bytes(made), "c")[0] == made
