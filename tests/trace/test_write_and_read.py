"""The trajectory file: in order, on disk in time, closed with its digest, readable after a crash."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
import tracemalloc

import pytest

from orchestrator.errors import StoreError
from orchestrator.records.base import BlobRef
from orchestrator.trace import write
from orchestrator.trace.read import each_event, is_whole, read_events
from orchestrator.trace.write import MAX_TEXT, TrajectoryFolder, shorten


def written(folder, *events, close=True):
    """Write events into a new trajectory and return its bytes."""

    async def live():
        trajectory = await TrajectoryFolder(folder).open("t")
        for kind, source, data in events:
            trajectory.append(kind, source, data)
        if close:
            await trajectory.close({"steps": len(events)})
        else:
            await asyncio.sleep(0.2)
        return trajectory.path.read_bytes()

    return asyncio.run(live())


def test_events_come_back_in_order(tmp_path):
    events = read_events(
        written(tmp_path, ("tool_call", "agent", {"name": "a"}), ("finish", "gateway", {"status": "x"}))
    )
    assert [(e.seq, e.source, e.type) for e in events] == [
        (0, "agent", "tool_call"),
        (1, "gateway", "finish"),
        (2, "gateway", "seal"),
    ]
    assert events[0].data == {"name": "a"}
    assert abs(events[0].t - time.time()) < 60


def test_the_last_event_holds_the_digest_of_all_before(tmp_path):
    data = written(tmp_path, ("launch", "gateway", {}), ("launch", "gateway", {}))
    before, last = data.rsplit(b"\n", 2)[0] + b"\n", json.loads(data.splitlines()[-1])
    assert last["sha256_before"] == hashlib.sha256(before).hexdigest()
    assert last["steps"] == 2


def test_closing_gives_the_digest_of_the_file_and_closing_again_the_same(tmp_path):
    async def live():
        trajectory = await TrajectoryFolder(tmp_path).open("t")
        trajectory.append("launch", "gateway", {})
        first, second = await asyncio.gather(trajectory.close({}), trajectory.close({}))
        assert trajectory.append("launch", "gateway", {}) == -1
        return first, second, first.path.read_bytes()

    first, second, data = asyncio.run(live())
    assert first == second
    assert is_whole(data, BlobRef(key="k", sha256=first.sha256, size=first.size))
    assert not is_whole(data[:-1], BlobRef(key="k", sha256=first.sha256, size=first.size))


def test_an_event_is_on_disk_soon_without_a_close(tmp_path):
    data = written(tmp_path, ("launch", "gateway", {}), close=False)
    assert len(read_events(data)) == 1


def test_many_events_are_gathered_into_few_syncs(tmp_path, monkeypatch):
    syncs = []
    real = os.fsync
    monkeypatch.setattr(write.os, "fsync", lambda fd: (syncs.append(fd), real(fd))[1])
    data = written(tmp_path, *[("launch", "gateway", {"n": n}) for n in range(500)])
    assert [event.data["n"] for event in read_events(data)[:-1]] == list(range(500))
    assert len(syncs) <= 3


def test_a_torn_last_line_is_left_out(tmp_path):
    data = written(tmp_path, ("launch", "gateway", {}), ("finish", "gateway", {}))
    for cut in range(1, 30):
        assert len(read_events(data[:-cut])) == 2


@pytest.mark.parametrize(
    "change", [lambda lines: [lines[1], lines[0]], lambda lines: lines[1:], lambda lines: [b"x", *lines]]
)
def test_lines_that_are_missing_or_wrong_are_an_error(tmp_path, change):
    lines = written(tmp_path, ("launch", "gateway", {}), ("finish", "gateway", {})).splitlines()
    with pytest.raises(StoreError, match=r"trajectory: line 1 "):
        read_events(b"\n".join([*change(lines), b""]))


def test_data_cannot_pretend_to_be_the_head(tmp_path):
    event = read_events(
        written(tmp_path, ("tool_call", "agent", {"source": "gateway", "seq": 7, "type": "seal", "x": 1}))
    )[0]
    assert (event.source, event.seq, event.type, event.data) == ("agent", 0, "tool_call", {"x": 1})


def test_text_that_is_no_unicode_is_made_readable(tmp_path):
    event = read_events(written(tmp_path, ("finding", "gateway", {"detail": "\ud800 \x00 \u202e"})))[0]
    assert event.data["detail"] == "? \x00 \u202e"


def test_a_long_text_keeps_head_tail_length_and_digest():
    text = "a" * MAX_TEXT + "b" * MAX_TEXT
    cut = shorten({"x": [text]})
    assert isinstance(cut, dict)
    kept = cut["x"][0]
    assert kept.startswith("aaa")
    assert kept.endswith("bbb")
    assert hashlib.sha256(text.encode()).hexdigest() in kept
    assert f"{MAX_TEXT} of {2 * MAX_TEXT} characters left out" in kept
    assert shorten("a" * MAX_TEXT) == "a" * MAX_TEXT


def test_a_huge_trajectory_keeps_counting_but_not_growing(tmp_path, monkeypatch):
    monkeypatch.setattr(write, "MAX_FILE", 10_000)
    events = read_events(written(tmp_path, *[("launch", "gateway", {"text": "x" * 3000})] * 10))
    assert len(events) == 11
    assert events[-2].data == {"cut": "the trajectory is larger than 20000 bytes"}
    assert events[-1].data["steps"] == 10


def test_an_agent_that_fills_the_record_does_not_act_unrecorded_then(tmp_path, monkeypatch):
    monkeypatch.setattr(write, "MAX_FILE", 10_000)
    flood = [("model_request", "gateway", {"text": "x" * 3000})] * 10
    act = ("tool_call", "gateway", {"name": "finish"})
    events = read_events(written(tmp_path, *flood, act))
    assert events[9].data == {"cut": "the trajectory is larger than 10000 bytes"}
    assert events[10].data == {"name": "finish"}


def test_agents_that_send_without_end_leave_room_for_the_record_of_others(tmp_path):
    async def live():
        folder = TrajectoryFolder(tmp_path, 100_000)
        greedy = [await folder.open(f"greedy{number}") for number in range(9)]
        for _ in range(200):
            for each in greedy:
                each.append("model_request", "gateway", {"text": "x" * 1000})
        seen = greedy[0].append("refusal", "gateway", {"code": "seen"})
        honest = await folder.open("honest")
        honest.append("model_request", "gateway", {"text": "y" * 4000})
        sealed = [await each.close({}) for each in (*greedy, honest)]
        later = await folder.open("later")
        for _ in range(20):
            later.append("model_request", "gateway", {"text": "z" * 1000})
        await later.close({})
        return seen, sealed

    seen, sealed = asyncio.run(live())
    kept = [line for path in tmp_path.glob("greedy*") for line in path.read_bytes().splitlines() if b"xxxx" in line]
    assert len(kept) * 1000 < 100_000
    first = read_events((tmp_path / "greedy0.jsonl").read_bytes())
    assert "its part" in first[seen - 1].data["cut"]
    assert first[seen].data == {"code": "seen"}
    assert b"yyyy" in (tmp_path / "honest.jsonl").read_bytes()
    assert (tmp_path / "later.jsonl").read_bytes().count(b"zzzz") > 0
    assert len(sealed) == 10


@pytest.mark.long
def test_what_an_agent_sent_is_never_read_all_at_once():
    head = {"v": 1, "t": 1.0, "source": "gateway", "type": "model_request"}
    lines = [json.dumps({**head, "seq": number, "messages": [[]] * 20_000}).encode() for number in range(50)]
    data = b"\n".join([*lines, b""])
    tracemalloc.start()
    try:
        assert sum(1 for _ in each_event(data)) == 50
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(data)


def test_a_name_is_used_once(tmp_path):
    async def live():
        folder = TrajectoryFolder(tmp_path)
        first = await folder.open("t")
        with pytest.raises(StoreError) as caught:
            await folder.open("t")
        await first.close({})
        return caught.value.cause

    assert asyncio.run(live()) == "trajectory_exists"


def test_a_disk_that_fails_shows_when_closing(tmp_path, monkeypatch):
    def broken(_fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write.os, "fsync", broken)
    with pytest.raises(StoreError, match="could not be written: No space left on device"):
        written(tmp_path, ("launch", "gateway", {}))


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/t\.jsonl cannot be made: File exists"):
        written(tmp_path / "file")


def test_trajectories_that_were_left_long_ago_are_removed(tmp_path):
    for name, age in (("old.jsonl", 1000), ("new.jsonl", 10), ("old.txt", 1000)):
        (tmp_path / name).write_text("{}\n")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    TrajectoryFolder(tmp_path).remove_old(100)
    TrajectoryFolder(tmp_path / "missing").remove_old(100)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.jsonl", "old.txt"]
