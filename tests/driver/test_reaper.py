"""The reaper: what it seals and deletes, and above all what it leaves alone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from cluster_world import pod
from fault_server import FaultServer
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.driver.kubernetes.doctor_pods import DOCTOR
from orchestrator.driver.kubernetes.reaper import Ledger, Reaper, answering, sealer
from orchestrator.driver.kubernetes.reaper_file import ReaperConfig, read_reaper_file
from orchestrator.errors import SpecError
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.kubernetes.resources import LEASES, PODS

TRIALS, ROOT = "trials-0", "trials-root"
RUN = names.run_hash("r")
ENDED = {"name": names.AGENT, "state": {"terminated": {"exitCode": 0}}}
RUNNING = {"phase": "Running", "startTime": "t", "containerStatuses": [{"name": names.AGENT, "state": {"running": {}}}]}
FREEZING = {"phase": "Running", "startTime": "t", "containerStatuses": [ENDED]}
OVER = {"phase": "Succeeded", "startTime": "t", "containerStatuses": [ENDED]}
UNPLACED = {"phase": "Pending"}
PULLING = {"phase": "Pending", "startTime": "t"}


class World:
    """A reaper with a clock of its own, on a played API server."""

    def __init__(self, server: FaultServer, api: Api) -> None:
        self.server = server
        self.api = api
        self.now = 1000.0
        self.sealed: list[tuple[int, str]] = []
        self.answers = True
        config = ReaperConfig(namespaces=(TRIALS, ROOT), gateways=("http://g0", "http://g1"), token="t")
        self.reaper = Reaper(api, config, self.seal, clock=lambda: self.now, sleep=self.sleep)

    async def seal(self, index: int, launch: str) -> bool:
        self.sealed.append((index, launch))
        return self.answers

    async def sleep(self, seconds: float) -> None:
        """No time passes but by ``look``."""

    async def look(self, seconds: float = 0) -> None:
        """Let time pass, then look."""
        self.now += seconds
        await self.reaper.look()

    async def lease(self, run: str = RUN, namespace: str = TRIALS) -> None:
        labels = {names.MANAGED_BY: names.OURS, names.RUN_LABEL: run}
        await self.api.create(LEASES, namespace, {"metadata": {"name": f"run-{run}", "labels": labels}, "spec": {}})

    async def renew(self, run: str = RUN) -> None:
        found = await self.api.get(LEASES, TRIALS, f"run-{run}")
        await self.api.update(LEASES, TRIALS, f"run-{run}", {**found, "spec": {"renewTime": str(self.now)}})

    def add(self, name: str, status: dict[str, Any], run: str = RUN, namespace: str = TRIALS, **about: Any) -> None:
        made = pod(name, {names.MANAGED_BY: names.OURS, names.RUN_LABEL: run})
        made["metadata"] |= {"namespace": namespace, "annotations": _marks(name), **about}
        made["status"] = status
        self.server.objects.add(("pods", namespace, name), made)

    async def left(self) -> set[str]:
        return {
            each["metadata"]["name"]
            for namespace in (TRIALS, ROOT)
            for each in await self.api.list(PODS, namespace)
            if "deletionTimestamp" not in each["metadata"]
        }


def _marks(name: str) -> dict[str, str]:
    return {names.GATEWAY_INDEX: "1", names.LAUNCH_ID: f"launch-{name}"}


@pytest.fixture
def play() -> Callable[[Callable[[World], Awaitable[None]]], None]:
    async def played(course: Callable[[World], Awaitable[None]]) -> None:
        async with FaultServer(kubelet=False) as server, Api(server.connection) as api:
            await course(World(server, api))

    return lambda course: asyncio.run(played(course))


def test_after_a_full_grace_what_has_ended_or_never_began_is_deleted_and_nothing_else(play) -> None:
    async def course(world: World) -> None:
        await world.lease()
        for name, status in {"over": OVER, "running": RUNNING, "freezing": FREEZING, "pulling": PULLING}.items():
            world.add(name, status)
        world.add("unplaced", UNPLACED, namespace=ROOT)
        await world.look()
        await world.look(899)
        assert await world.left() == {"over", "running", "freezing", "pulling", "unplaced"}
        await world.look(2)
        assert await world.left() == {"running", "freezing", "pulling"}

    play(course)


def test_the_lease_of_a_run_goes_after_its_last_pod_and_a_full_grace(play) -> None:
    async def course(world: World) -> None:
        for run in (RUN, names.run_hash("driven"), names.run_hash("with a pod")):
            await world.lease(run)
        world.add("over", OVER)
        world.add("running", RUNNING, run=names.run_hash("with a pod"))

        async def leases() -> set[str]:
            await world.renew(names.run_hash("driven"))
            return {each["metadata"]["name"].removeprefix("run-") for each in await world.api.list(LEASES, TRIALS)}

        for seconds in (0, 899, 2):  # the pod goes with the third look
            await world.look(seconds)
            assert len(await leases()) == 3
        await world.look(2)
        assert await leases() == {names.run_hash("driven"), names.run_hash("with a pod")}
        await world.lease()  # a driver has come back
        await world.look(2)
        assert len(await leases()) == 3

    play(course)


def test_a_lease_that_is_renewed_in_the_last_moment_stays(play) -> None:
    async def course(world: World) -> None:
        await world.lease()
        await world.look()
        delete, world.api.delete = world.api.delete, None  # type: ignore[assignment]

        async def renewed(*words: Any, **more: Any) -> bool:
            await world.renew()
            return await delete(*words, **more)

        world.api.delete = renewed  # type: ignore[assignment]
        await world.look(1000)
        assert len(await world.api.list(LEASES, TRIALS)) == 1

    play(course)


def test_a_driver_that_renews_keeps_its_pods_for_ever(play) -> None:
    async def course(world: World) -> None:
        await world.lease()
        world.add("over", OVER)
        for _ in range(30):
            await world.look(800)
            await world.renew()
        assert (await world.left(), world.sealed) == ({"over"}, [])

    play(course)


@pytest.mark.parametrize("resource", ["pods", "leases"])
def test_a_reading_that_fails_starts_every_clock_anew(play, resource: str) -> None:
    async def course(world: World) -> None:
        await world.lease()
        world.add("over", OVER)
        await world.look()
        world.server.denied.add(("list", resource))
        await world.look(890)
        world.server.denied.clear()
        await world.look(20)
        assert await world.left() == {"over"}
        await world.look(899)
        assert await world.left() == {"over"}
        await world.look(2)
        assert await world.left() == set()

    play(course)


def test_an_agent_that_ended_while_its_driver_is_away_is_sealed_once(play) -> None:
    async def course(world: World) -> None:
        await world.lease()
        world.add("freezing", FREEZING)
        world.add("running", RUNNING)
        await world.look()
        await world.look(59)
        assert world.sealed == []
        world.answers = False
        await world.look(2)
        world.answers = True
        await world.look(15)
        await world.look(15)
        assert world.sealed == [(1, "launch-freezing")] * 2

    play(course)


def test_pods_of_a_run_without_a_lease_wait_as_long(play) -> None:
    async def course(world: World) -> None:
        world.add("stray", OVER)
        await world.look()
        await world.look(15)
        await world.look(899)
        assert await world.left() == {"stray"}
        await world.look(2)
        assert await world.left() == set()

    play(course)


def test_what_a_doctor_that_died_has_left_goes_after_a_full_grace(play) -> None:
    async def course(world: World) -> None:
        statuses = {"over": OVER, "running": RUNNING, "unplaced": UNPLACED, "grading": OVER}
        for name, status in statuses.items():
            component = "grading" if name == "grading" else DOCTOR
            world.add(name, status, labels={names.MANAGED_BY: names.OURS, names.COMPONENT: component})

        async def sweep(seconds: float) -> set[str]:
            for _ in range(20):  # of so many looks one lists all
                await world.look(seconds / 20)
            return await world.left()

        await world.look()
        assert await sweep(800) == set(statuses)
        world.server.denied.add(("list", "leases"))
        await world.look()
        world.server.denied.clear()
        assert await sweep(800) == set(statuses)  # what could not be read says nothing
        assert await sweep(800) == set(statuses)
        assert await sweep(800) == {"running", "grading"}

    play(course)


def test_only_the_pod_that_was_seen_is_deleted(play) -> None:
    async def course(world: World) -> None:
        await world.lease()
        world.add("over", OVER)
        await world.look()
        world.now += 901
        listed = world.reaper._listed

        async def replaced(labels: str) -> list[dict[str, Any]]:
            found = await listed(labels)
            return [{**each, "metadata": {**each["metadata"], "uid": "of-before"}} for each in found]

        world.reaper._listed = replaced
        await world.reaper.look()
        assert await world.left() == {"over"}

    play(course)


def test_a_driver_that_comes_back_while_many_pods_are_deleted_finds_the_rest(play) -> None:
    async def course(world: World) -> None:
        await world.lease()
        for number in range(6):
            world.add(f"over-{number}", OVER)

        async def slowly(seconds: float) -> None:
            world.now += 10

        world.reaper.sleep = slowly
        await world.look()
        await world.look(901)
        assert len(await world.left()) == 4  # a look's time is over: the next one reads the Leases first
        await world.renew()
        await world.look(15)
        assert len(await world.left()) == 4

    play(course)


def test_a_gateway_that_is_away_keeps_no_other_from_sealing(play) -> None:
    async def course(world: World) -> None:
        never = asyncio.Event()

        async def seal(index: int, launch: str) -> bool:
            if launch == "launch-first":
                await never.wait()
            world.sealed.append((index, launch))
            return True

        world.reaper.seal = seal
        await world.lease()
        for name in ("first", "second", "third"):
            world.add(name, FREEZING)
        await world.look()
        looking = asyncio.create_task(world.look(61))
        while len(world.sealed) < 2:
            await asyncio.sleep(0.01)
        assert sorted(world.sealed) == [(1, "launch-second"), (1, "launch-third")]
        never.set()
        await looking

    play(course)


def test_pods_that_are_no_run_s_are_not_even_read(play) -> None:
    async def course(world: World) -> None:
        labels = {names.MANAGED_BY: names.OURS, names.COMPONENT: "grading"}
        made = {**pod("grading", labels), "status": OVER}
        made["metadata"]["namespace"] = TRIALS
        world.server.objects.add(("pods", TRIALS, "grading"), made)
        foreign = {**pod("foreign", {names.RUN_LABEL: RUN}), "status": OVER}
        foreign["metadata"]["namespace"] = TRIALS
        world.server.objects.add(("pods", TRIALS, "foreign"), foreign)
        for _ in range(45):
            await world.look(60)
        assert await world.left() == {"grading", "foreign"}

    play(course)


def test_a_run_that_is_driven_is_read_by_its_lease_alone(play) -> None:
    async def course(world: World) -> None:
        await world.lease()
        world.add("running", RUNNING)
        await world.look()
        before = world.server.counts["list", "pods"]
        for _ in range(10):
            await world.renew()
            await world.look(15)
        assert world.server.counts["list", "pods"] == before

    play(course)


_MARK = st.sampled_from(["", "a", "b"])
"""What a reading shows of the Lease; empty: the reading fails."""


@given(st.lists(st.tuples(st.floats(0, 1000), _MARK), max_size=30))
def test_silence_is_never_longer_than_the_unbroken_time_of_one_mark(readings: list[tuple[float, str]]) -> None:
    ledger, now, begun, seen = Ledger(), 0.0, 0.0, ""
    for passed, mark in readings:
        now += passed
        if mark:
            ledger.note({"r": mark}, now)
        else:
            ledger.failed()
        if mark != seen:
            begun, seen = now, mark
        assert ledger.silent_s("r", now) == (now - begun if mark else 0.0)


def unused_port() -> int:
    """Return a port of the loopback that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_gateways_are_asked_with_the_reaper_s_token_and_probes_are_answered(play) -> None:
    asked: list[tuple[str, str]] = []

    async def seal(request: web.Request) -> web.Response:
        asked.append((request.path, request.headers["Authorization"]))
        return web.json_response({}, status={"known": 200, "lost": 404}.get(request.match_info["launch"], 500))

    async def course(world: World) -> None:
        app = web.Application()
        app.router.add_post("/reaper/launches/{launch}/seal", seal)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        async with ClientSession() as session:
            ask = sealer(session, [f"http://127.0.0.1:{port}/", "http://127.0.0.1:1"], "secret")
            assert [await ask(0, name) for name in ("known", "lost", "broken")] == [True, True, False]
            assert await ask(1, "known") is False
            free = unused_port()
            health = f"http://127.0.0.1:{free}/healthz"
            async with answering(world.reaper, f"127.0.0.1:{free}"):
                codes = [(await session.get(health)).status]
                await world.look()
                codes.append((await session.get(health)).status)
                world.now += 1000
                codes.append((await session.get(health)).status)
        await runner.cleanup()
        assert codes == [503, 200, 503]

    play(course)
    assert asked[0] == ("/reaper/launches/known/seal", "Bearer secret")


def test_all_mistakes_of_the_file_are_told(tmp_path: Path) -> None:
    file = tmp_path / "reaper.json"
    file.write_text('{"namespaces": ["A"], "gateways": [], "tokn": "x", "grace_seconds": 1}')
    with pytest.raises(SpecError) as caught:
        read_reaper_file(file)
    said = str(caught.value).replace(str(file), "F")
    assert "F: namespaces[0]: must be a name of the cluster's" in said
    assert "F: tokn: is not a field (did you mean 'token'?)" in said
    assert "F: token: is missing" in said
    assert "F: grace_seconds: must be greater than or equal to 60" in said
    (tmp_path / "token").write_text("0123456789abcdef\n")
    file.write_text(f'{{"namespaces": ["trials-0"], "gateways": ["http://g:1"], "token": "{tmp_path}/token"}}')
    assert read_reaper_file(file).token == "0123456789abcdef"
    assert "0123456789abcdef" not in repr(read_reaper_file(file))
