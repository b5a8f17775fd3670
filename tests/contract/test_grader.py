"""The grader as the driver meets it: a process, its socket or its port, a client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
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


@pytest.fixture(params=["socket", "network"])
def way(request: pytest.FixtureRequest) -> str:
    """How the driver meets the service."""
    return request.param


@asynccontextmanager
async def service(world: GraderWorld, way: str = "socket") -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "grader_service", "serve", *configured(world, way),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    if way == "socket":
        start = {
            "socket": address_of(world, way),
            "store": str(world.store_folder),
            "token": "secret",
            "folder": str(world.folder / "g"),
            "concurrency": 2,
        }
        process.stdin.write(json.dumps(start).encode() + b"\n")
        ready = json.loads(await process.stdout.readline())
        assert ready["ready"] is True
        assert ready["version"].count("+") == 1
    else:
        await healthy(address_of(world, way), process)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.stdin.close() if way == "socket" else process.terminate()
            await process.wait()


def configured(world: GraderWorld, way: str) -> list[str]:
    if way == "socket":
        return []
    (world.folder / "token").write_text("secret\n")
    file = {
        "store": str(world.store_folder),
        "listen": address_of(world, way).removeprefix("http://"),
        "tokens": {"driver": str(world.folder / "token")},
        "folder": str(world.folder / "g"),
        "concurrency": 2,
    }
    (world.folder / "grader.json").write_text(json.dumps(file))
    return ["--config", str(world.folder / "grader.json")]


async def healthy(url: str, process: asyncio.subprocess.Process) -> None:
    """Wait as a probe of a cluster does: without a token."""
    async with aiohttp.ClientSession() as session:
        while process.returncode is None:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with session.get(f"{url}/healthz") as response:
                    assert (await response.json())["ok"] is True
                    return
            await asyncio.sleep(0.02)
    pytest.fail(f"the service ended with {process.returncode}")


def address_of(world: GraderWorld, way: str) -> str:
    if way == "socket":
        return str(world.folder / "g.sock")
    known = world.folder / "port"
    if not known.exists():
        with socket.create_server(("127.0.0.1", 0)) as free:
            known.write_text(str(free.getsockname()[1]))
    return f"http://127.0.0.1:{known.read_text()}"


def client_of(world: GraderWorld, way: str = "socket", token: str = "secret") -> GraderClient:
    return GraderClient(address_of(world, way), token, away_seconds=1)


def test_many_requests_at_once_make_one_verdict_that_stays(world: GraderWorld, way: str) -> None:
    world.left({"answer.txt": "42\n"})

    async def scene() -> None:
        async with service(world, way), client_of(world, way) as client:
            grader: Grader = client
            verdicts = await asyncio.gather(*(grader.grade(RUN, TRIAL) for _ in range(8)))
            assert {v.to_bytes() for v in verdicts} == {verdicts[0].to_bytes()}
            assert verdicts[0].result == "passed"
        async with service(world, way), client_of(world, way) as client:
            assert await client.grade(RUN, TRIAL) == verdicts[0]

    asyncio.run(scene())
    assert len(world.stored_verdicts()) == 1


def test_what_is_not_there_is_refused_with_the_reason(world: GraderWorld, way: str) -> None:
    async def refusal(client: GraderClient, run: str, trial: TrialId) -> GraderError:
        with pytest.raises(GraderError) as caught:
            await client.grade(run, trial)
        assert caught.value.cause == "grader_refused"
        return caught.value

    async def scene() -> None:
        async with service(world, way), client_of(world, way) as client:
            assert "no run 'nope'" in str(await refusal(client, "nope", TRIAL))
            assert "no launch is committed" in str(await refusal(client, RUN, TRIAL))
            assert "no task or agent" in str(await refusal(client, RUN, TrialId("other", "solver", 1)))
        async with service(world, way), client_of(world, way, "wrong") as client:
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


def test_nobody_listening_is_a_grader_error(world: GraderWorld, way: str) -> None:
    async def scene() -> None:
        async with client_of(world, way) as client:
            await client.grade(RUN, TRIAL)

    with pytest.raises(GraderError, match="does not answer") as caught:
        asyncio.run(scene())
    assert caught.value.cause == "grader_unreachable"


@pytest.mark.parametrize(("way", "how"), [("socket", "eof"), ("socket", "sigterm"), ("network", "sigterm")])
def test_the_service_ends_when_it_is_told(world: GraderWorld, way: str, how: str) -> None:
    async def scene() -> int:
        async with service(world, way) as process:
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


def test_a_service_that_is_away_for_a_moment_is_waited_for(world: GraderWorld) -> None:
    world.left({"answer.txt": "42\n"})

    async def scene() -> str:
        async with GraderClient(address_of(world, "network"), "secret", away_seconds=60) as client:
            asking = asyncio.create_task(client.grade(RUN, TRIAL))
            async with service(world, "network"):
                return (await asking).result

    assert asyncio.run(scene()) == "passed"
