"""Plain trajectories: equal for trials that did the same, and for no others."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.records.event import Event
from orchestrator.trace.plain import plain, plain_digest


def trajectory(run: str = "r1", begin: float = 0, word: str = "c", seconds: float = 1.0, **change: Any) -> list[Event]:
    asked = {"name": "get", "arguments": {"id": "o1"}, "known": True, "request": 1, "id": f"{word}-1"} | change
    made: list[tuple[str, str, dict[str, Any]]] = [
        ("launch", "gateway", {"run": run, "trial": "t@a:1", "launch": 1, "seed": hash(run), "models": {"main": "p/m"}}),
        ("model_request", "gateway", {"model": "p/m", "messages": [{"role": "user", "parts": []}], "sha256": run, "digests": [run]}),
        ("tool_call", "agent", asked),
        ("model_response", "gateway", {"request": 1, "id": f"resp-{word}", "seconds": seconds, "waited_s": seconds / 3}),
        ("tool_result", "agent", {"id": f"{word}-1", "content": "42"}),
        ("seal", "gateway", {"steps": 1, "working_s": seconds, "sha256_before": run}),
    ]  # fmt: skip
    return [
        Event(seq=seq, t=begin + seq, source=source, type=kind, data=data)  # type: ignore[arg-type]
        for seq, (kind, source, data) in enumerate(made)
    ]


def test_runs_times_and_ids_do_not_matter() -> None:
    one, other = trajectory(), trajectory("r2", 1e9, "call_abc", 7.5)
    assert plain_digest(one) == plain_digest(other)
    assert list(plain(one)) == list(plain(other))


@pytest.mark.parametrize(
    "change", [{"name": "set"}, {"arguments": {"id": "o2"}}, {"arguments": {"id": "o1", "more": 1}}, {"known": False}]
)
def test_what_was_done_does(change: dict[str, Any]) -> None:
    assert plain_digest(trajectory()) != plain_digest(trajectory(**change))


@pytest.mark.parametrize("kind", ["model_request", "tool_result"])
def test_another_image_is_another_trajectory(kind: str) -> None:
    def sent(digest: str) -> str:
        image = {"type": "media", "media_type": "image/png", "url": None, "sha256": digest, "bytes": 9}
        data = {"model_request": {"messages": [{"role": "user", "parts": [image]}]}, "tool_result": {"media": [image]}}
        return plain_digest([Event(seq=0, t=0, source="agent", type=kind, data=data[kind])])  # type: ignore[arg-type]

    assert sent("a" * 64) == sent("a" * 64) != sent("b" * 64)


def test_an_id_is_the_same_wherever_it_stands() -> None:
    events = list(plain(trajectory()))
    assert events[2]["id"] == events[4]["id"]
    assert events[3]["request"] == 1
