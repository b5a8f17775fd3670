"""The service over its socket: who may ask, what a broken question gets, and one verdict however often and by however many it is made."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from grader_world import RUN, TRIAL, GraderWorld

from grader_service.app import serving
from grader_service.grade import grade
from grader_service.settings import GraderSettings, StartLine
from orchestrator.grading.client import GraderClient
from orchestrator.records.verdict import Verdict

ANSWER = {"id": "answer", "type": "files", "path": "answer.txt", "equals": "42\n"}
ASKED = {"run": RUN, "trial": str(TRIAL)}
TOKEN = "token-of-the-test"


def start(world: GraderWorld, name: str) -> StartLine:
    return StartLine.model_validate(
        {
            "socket": str(world.folder / f"{name}.sock"),
            "store": f"file://{world.store_folder}",
            "token": TOKEN,
            "folder": Path(world.folder / name),
        }
    )


async def ask(line: StartLine, token: str = TOKEN, **request: Any) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(line.socket), headers=headers) as session,
        session.post("http://grader/grade", **request) as response,
    ):
        return response.status, await response.read()


BROKEN: dict[str, tuple[int, dict[str, Any]]] = {
    "no token": (401, {"json": ASKED, "token": ""}),
    "another token": (401, {"json": ASKED, "token": TOKEN[:-1] + "é"}),
    "not json": (400, {"data": b"\xff\xfe"}),
    "a list": (400, {"json": [1]}),
    "nested": (400, {"data": b"[" * 60_000}),
    "no unicode": (400, {"data": b'{"run": "\\ud800", "trial": "work@solver:1"}'}),
    "no trial": (400, {"json": {"run": RUN, "trial": "../work"}}),
    "unknown trial": (404, {"json": {"run": RUN, "trial": "other@solver:1"}}),
    "too long": (413, {"data": b" " * (1 << 20)}),
}


def test_broken_questions_are_answered_as_the_askers_mistake(world: GraderWorld) -> None:
    world.task({}, [ANSWER])

    async def go() -> dict[str, int]:
        line = start(world, "a")
        async with serving(line, GraderSettings()):
            return {name: (await ask(line, **request))[0] for name, (_, request) in BROKEN.items()}

    assert asyncio.run(go()) == {name: status for name, (status, _) in BROKEN.items()}


def test_two_services_asked_at_once_give_one_verdict(world: GraderWorld) -> None:
    world.task({}, [ANSWER])
    world.left({"answer.txt": "42\n"})

    async def go() -> list[tuple[int, bytes]]:
        lines = [start(world, "a"), start(world, "b")]
        async with serving(lines[0], GraderSettings()), serving(lines[1], GraderSettings()):
            return await asyncio.gather(*(ask(line, json=ASKED) for line in (*lines, *lines)))

    answers = asyncio.run(go())
    assert {status for status, _ in answers} == {200}
    assert len({body for _, body in answers}) == 1
    assert Verdict.from_bytes(answers[0][1], "verdict").result == "passed"
    assert len(world.stored_verdicts()) == 1


def test_what_grading_waits_for_is_logged_and_told_to_whoever_asked(
    world: GraderWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("grader_service.service._TELL_SECONDS", 0.0)
    monkeypatch.setattr("orchestrator.grading.client._ASK_SECONDS", 0.01)
    world.task({}, [ANSWER])
    world.left({"answer.txt": "42\n"})

    async def go() -> tuple[list[str], int]:
        on, told = asyncio.Event(), list[str]()

        async def slow(grading: Any, run: str, trial: Any, waits: Any) -> Verdict:
            waits("exceeded quota pods: pods=0 in grading")
            await on.wait()
            waits("")
            return await grade(grading, run, trial)

        monkeypatch.setattr("grader_service.service.grade", slow)
        line = start(world, "a")
        async with serving(line, GraderSettings()), GraderClient(line.socket, TOKEN) as client:
            asking = asyncio.create_task(client.grade(RUN, TRIAL, told.append))
            while not told or not caplog.messages:
                await asyncio.sleep(0.01)
            async with (
                aiohttp.ClientSession(connector=aiohttp.UnixConnector(line.socket)) as session,
                session.get("http://grader/waits", params={"run": RUN}) as response,
            ):
                status = response.status
            on.set()
            assert (await asking).result == "passed"
        return told, status

    told, status = asyncio.run(go())
    assert set(told) <= {"exceeded quota pods: pods=0 in grading", ""}
    assert told[0]
    assert caplog.messages[0] == "grading: 1 trial waits: exceeded quota pods: pods=0 in grading"
    assert status == 401
