"""The grader as the driver meets it: a child process, a socket, a client."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "service"))

from grader_world import RUN, TRIAL, GraderWorld

from orchestrator.errors import GraderError
from orchestrator.grading.client import GraderClient
from orchestrator.interfaces import Grader
from orchestrator.records.ids import TrialId

CHECKS = [{"id": "answer", "type": "files", "path": "answer.txt", "equals": "42\n"}]


@pytest.fixture
def world(short_folder: Path) -> GraderWorld:
    world = GraderWorld(short_folder)
    world.task({"answer.txt": "0\n"}, CHECKS)
    return world


@asynccontextmanager
async def service(world: GraderWorld) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "grader_service", "serve",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    start = {
        "socket": socket_of(world),
        "store": str(world.store_folder),
        "token": "secret",
        "folder": str(world.folder / "g"),
        "concurrency": 2,
    }
    process.stdin.write(json.dumps(start).encode() + b"\n")
    ready = json.loads(await process.stdout.readline())
    assert ready["ready"] is True
    assert ready["version"].count("+") == 1
    try:
        yield process
    finally:
        if process.returncode is None:
            process.stdin.close()
            await process.wait()


def socket_of(world: GraderWorld) -> str:
    return str(world.folder / "g.sock")


def client_of(world: GraderWorld, token: str = "secret") -> GraderClient:
    return GraderClient(socket_of(world), token)


def test_many_requests_at_once_make_one_verdict_that_stays(world: GraderWorld) -> None:
    world.left({"answer.txt": "42\n"})

    async def scene() -> None:
        async with service(world), client_of(world) as client:
            grader: Grader = client
            verdicts = await asyncio.gather(*(grader.grade(RUN, TRIAL) for _ in range(8)))
            assert {v.to_bytes() for v in verdicts} == {verdicts[0].to_bytes()}
            assert verdicts[0].result == "passed"
        async with service(world), client_of(world) as client:
            assert await client.grade(RUN, TRIAL) == verdicts[0]

    asyncio.run(scene())
    assert len(world.stored_verdicts()) == 1


def test_what_is_not_there_is_refused_with_the_reason(world: GraderWorld) -> None:
    async def refusal(client: GraderClient, run: str, trial: TrialId) -> GraderError:
        with pytest.raises(GraderError) as caught:
            await client.grade(run, trial)
        assert caught.value.cause == "grader_refused"
        return caught.value

    async def scene() -> None:
        async with service(world), client_of(world) as client:
            assert "no run 'nope'" in str(await refusal(client, "nope", TRIAL))
            assert "no launch is committed" in str(await refusal(client, RUN, TRIAL))
            assert "no task or agent" in str(await refusal(client, RUN, TrialId("other", "solver", 1)))
        async with service(world), client_of(world, "wrong") as client:
            assert "bearer token" in str(await refusal(client, RUN, TRIAL))

    asyncio.run(scene())


def test_a_cancelled_trial_is_not_graded(world: GraderWorld) -> None:
    world.left(None, outcome_class="cancelled", termination_reason="cancelled")

    async def scene() -> None:
        async with service(world), client_of(world) as client:
            with pytest.raises(GraderError, match="ended as cancelled"):
                await client.grade(RUN, TRIAL)

    asyncio.run(scene())


def test_a_store_that_fails_in_passing_is_tried_again_and_noted(world: GraderWorld) -> None:
    world.left({"answer.txt": "42\n"})

    async def scene() -> None:
        async with service(world), client_of(world) as client:
            bundles = world.store_folder / "bundles"
            bundles.rename(world.folder / "away")
            with pytest.raises(GraderError) as caught:
                await client.grade(RUN, TRIAL)
            assert caught.value.cause == "store_not_found"
            (world.folder / "away").rename(bundles)
            assert (await client.grade(RUN, TRIAL)).result == "passed"

    asyncio.run(scene())
    assert sum("/tries/" in key for key in world.stored_verdicts()) == 3


def test_nobody_listening_is_a_grader_error(world: GraderWorld) -> None:
    async def scene() -> None:
        async with client_of(world) as client:
            await client.grade(RUN, TRIAL)

    with pytest.raises(GraderError, match="does not answer") as caught:
        asyncio.run(scene())
    assert caught.value.cause == "grader_unreachable"


@pytest.mark.parametrize("how", ["eof", "sigterm"])
def test_the_service_ends_when_it_is_told(world: GraderWorld, how: str) -> None:
    async def scene() -> int:
        async with service(world) as process:
            if how == "eof":
                process.stdin.close()
            else:
                os.kill(process.pid, signal.SIGTERM)
            return await process.wait()

    assert asyncio.run(scene()) == 0


def test_a_bad_start_line_says_which_field_and_never_its_value(world: GraderWorld) -> None:
    async def scene() -> tuple[int, bytes]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "grader_service",
            "serve",
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        line = json.dumps({"socket": "/s" * 60, "token": "very-secret", "folder": "/f", "sore": "x"}).encode() + b"\n"
        _, stderr = await process.communicate(line)
        return process.returncode, stderr

    code, stderr = asyncio.run(scene())
    assert code == 2
    assert b"store" in stderr
    assert b"sore" in stderr
    assert b"very-secret" not in stderr
