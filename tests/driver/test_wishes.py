"""A stop that a person wants holds for whoever drives the run, until a person resumes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_store import Memory

from orchestrator.driver.lease import Timing, drive_run
from orchestrator.driver.process import this_person
from orchestrator.driver.wishes import ask_to_stop, is_stop, last_wish, lift
from orchestrator.records.lease import Wish
from orchestrator.storage.file import FileStore

CALM = Timing(term_s=1000)


def lives(folder: Path, course: Callable[[Any], Awaitable[Any]]) -> Any:
    return asyncio.run(course(FileStore(folder)))


async def heard_by(store: Any, *, attended: bool, during: Callable[[], Awaitable[Any]] | None = None) -> list[int]:
    """Drive the run for a moment and return the wishes that its driver acted on."""
    heard: list[int] = []

    async def stop(wish: Wish) -> None:
        heard.append(wish.number)

    async with drive_run(store, "r", "w", timing=CALM, attended=attended) as lease:
        await lease.beat()  # nobody listens yet
        lease.on_stop = stop
        if during is not None:
            await during()
        for _ in range(2):
            await lease.beat()
    return heard


def test_a_stop_is_heard_once_and_says_who_asked_first(tmp_path: Path) -> None:
    async def course(store: FileStore) -> Any:
        asked: list[str | None] = []

        async def ask() -> None:
            asked.extend([await ask_to_stop(store, "r") for _ in range(2)])

        return await heard_by(store, attended=True, during=ask), asked

    assert lives(tmp_path, course) == ([1], [None, this_person()])


def test_a_stop_that_its_driver_did_not_come_to_is_the_next_one_s(tmp_path: Path) -> None:
    async def course(store: FileStore) -> Any:
        await ask_to_stop(store, "r")
        return [await heard_by(store, attended=False) for _ in range(2)]

    assert lives(tmp_path, course) == [[1], [1]]


def test_a_person_who_resumes_lifts_it_for_all_drivers_and_may_stop_again(tmp_path: Path) -> None:
    async def course(store: FileStore) -> Any:
        await ask_to_stop(store, "r")
        found = [await heard_by(store, attended=True), await heard_by(store, attended=False)]
        return [*found, await heard_by(store, attended=True, during=lambda: ask_to_stop(store, "r"))]

    assert lives(tmp_path, course) == [[], [], [3]]


def test_a_stop_that_is_wanted_while_a_person_takes_the_run_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def course(store: FileStore) -> Any:
        seen = await last_wish(store, "r")
        await ask_to_stop(store, "r")
        await lift(store, "r", seen)
        return await heard_by(store, attended=False)

    assert lives(tmp_path, course) == [1]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.sampled_from(["stop", "resume"]), max_size=4), max_size=4))
def test_of_what_people_want_at_one_time_the_last_holds_and_no_number_is_missing(turns: list[list[str]]) -> None:
    async def course() -> None:
        store: Any = Memory()
        for turn in turns:
            seen = await last_wish(store, "r")
            await asyncio.gather(
                *(ask_to_stop(store, "r") if each == "stop" else lift(store, "r", seen) for each in turn)
            )
            now = await last_wish(store, "r")
            if turn and "resume" not in turn:
                assert is_stop(now)
            if turn and "stop" not in turn:
                assert not is_stop(now)
            numbers = [int(key[-11:-5]) for key in await store.list("runs/r/wishes/")]
            assert numbers == list(range(1, len(numbers) + 1))

    asyncio.run(course())
