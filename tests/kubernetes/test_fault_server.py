"""The fault server is itself a faithful API server where nothing is injected: what the real one was seen to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest
from cluster_world import pod
from fault_kubelet import PLAYS, Script, ends
from fault_server import FaultServer

from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.kubernetes.errors import ApiError
from orchestrator.sandbox.kubernetes.resources import EVENTS, LEASES, PODS

Use = Callable[[FaultServer, Api], Awaitable[None]]


def serve(use: Use, **options) -> None:
    async def scenario() -> None:
        async with FaultServer(**options) as server, Api(server.connection) as api:
            await use(server, api)

    asyncio.run(scenario())


async def phases(api: Api, name: str, version: str = "1") -> list[str]:
    seen = []
    async for event in api.watch(PODS, "a", version=version, seconds=2):
        if event.object["metadata"]["name"] != name:
            continue
        seen.append(f"{event.type} {event.object['status']['phase']}")
        if event.type == "DELETED" or event.object["status"]["phase"] in ("Succeeded", "Failed"):
            return seen
    return seen


def test_a_pod_lives_and_ends() -> None:
    async def use(server: FaultServer, api: Api) -> None:
        made = await api.create(PODS, "a", pod("t-1"))
        assert made["status"]["phase"] == "Pending"
        assert (await phases(api, "t-1", made["metadata"]["resourceVersion"]))[-1] == "MODIFIED Succeeded"
        ended = (await api.get(PODS, "a", "t-1"))["status"]
        assert [each["state"]["terminated"]["exitCode"] for each in ended["containerStatuses"]] == [0, 0]

    serve(use)


def test_deletion_gives_the_freezer_its_grace_and_tells_the_end_with_the_last_event() -> None:
    async def use(server: FaultServer, api: Api) -> None:
        server.kubelet.play("*", Script({"agent": ends(after=60)}))
        made = await api.create(PODS, "a", pod("t-1"))
        while server.pods("a")[0]["status"]["phase"] != "Running":
            await asyncio.sleep(0.001)
        version = server.pods("a")[0]["metadata"]["resourceVersion"]
        assert await api.delete(PODS, "a", "t-1", uid=made["metadata"]["uid"])
        events = []
        async for event in api.watch(PODS, "a", version=version, seconds=2):
            events.append(event)
            if event.type == "DELETED":
                break
        assert events[0].object["metadata"]["deletionTimestamp"]
        codes = {each["name"]: each["state"] for each in events[-1].object["status"]["containerStatuses"]}
        assert codes["agent"]["terminated"]["exitCode"] == 143
        assert codes["freezer"]["terminated"]["exitCode"] == 0
        versions = [int(event.object["metadata"]["resourceVersion"]) for event in events]
        assert versions == sorted(set(versions))

    serve(use)


@pytest.mark.parametrize("name", sorted(PLAYS))
def test_every_life_can_be_played(name: str) -> None:
    async def use(server: FaultServer, api: Api) -> None:
        server.kubelet.play("*", PLAYS[name])
        await api.create(PODS, "a", pod("t-1"))
        await asyncio.sleep(0.02)
        await api.delete(PODS, "a", "t-1", grace_seconds=0)
        assert await api.find(PODS, "a", "t-1") is None

    serve(use, tick=0.001)


def test_lists_have_pages_of_one_moment() -> None:
    async def use(server: FaultServer, api: Api) -> None:
        for number in range(7):
            server.plant("pods", "a", pod(f"t-{number}"))
        server.plant("pods", "b", pod("other"))
        names = []
        async for page in api.pages(PODS, "a", limit=3):
            server.plant("pods", "a", pod(f"u-{len(names)}"))
            names += [item["metadata"]["name"] for item in page.items]
            assert page.version == "108"
        assert names == [f"t-{number}" for number in range(7)]

    serve(use, kubelet=False)


def test_selectors_choose_and_what_no_longer_fits_is_told_as_deleted() -> None:
    async def use(server: FaultServer, api: Api) -> None:
        server.plant("pods", "a", pod("t-1", labels={"run": "x"}))
        server.plant("pods", "a", pod("t-2", labels={"run": "y"}))
        server.plant("events", "a", {"metadata": {"name": "e"}, "involvedObject": {"name": "t-1"}})
        assert [item["metadata"]["name"] for item in await api.list(PODS, "a", labels="run=x")] == ["t-1"]
        assert [item["metadata"]["name"] for item in await api.list(PODS, "a", labels="run in (x, z),run")] == ["t-1"]
        assert [item["metadata"]["name"] for item in await api.list(PODS, "a", labels="run!=x")] == ["t-2"]
        assert len(await api.list(EVENTS, "a", fields="involvedObject.name=t-1")) == 1
        assert await api.list(EVENTS, "a", fields="involvedObject.name=t-2") == []
        server.change("pods", "a", "t-1", metadata={**server.pods("a")[0]["metadata"], "labels": {}})
        async for event in api.watch(PODS, "a", version="102", labels="run=x", seconds=1):
            assert event.type == "DELETED"
            break

    serve(use, kubelet=False)


def test_writes_are_refused_as_the_real_one_does() -> None:
    async def use(server: FaultServer, api: Api) -> None:
        made = await api.create(PODS, "a", pod("t-1"))
        assert not await api.delete(PODS, "a", "t-1", uid="another")
        assert not await api.delete(PODS, "a", "t-2")
        with pytest.raises(ApiError) as error:
            await api.create(PODS, "a", pod("t-1"))
        assert error.value.cause == "already_exists"
        with pytest.raises(ApiError) as error:
            await api.create(PODS, "a", pod("Not a name"))
        assert error.value.cause == "invalid"
        lease = await api.create(LEASES, "a", {"metadata": {"name": "run"}, "spec": {"renewTime": "1"}})
        await api.update(LEASES, "a", "run", lease)
        with pytest.raises(ApiError) as error:
            await api.update(LEASES, "a", "run", lease)
        assert error.value.cause == "conflict"
        assert (await api.allowed("create", PODS, "a")).allowed
        server.denied.add(("create", "pods/exec"))
        assert not (await api.allowed("create", PODS, "a", subresource="exec")).allowed
        server.logs["t-1", "agent"] = b"hello"
        assert await api.log("a", "t-1", container="agent") == b"hello"
        server.skew(600)
        version = await api.version()
        assert version.minor == 37
        assert 590 < (version.date - datetime.now(UTC)).total_seconds() < 610
        assert made["metadata"]["uid"]

    serve(use, kubelet=False)


def test_a_quiet_watch_has_bookmarks_and_ends_by_the_servers_clock() -> None:
    async def use(server: FaultServer, api: Api) -> None:
        server.plant("events", "a", {"metadata": {"name": "elsewhere"}})
        marks = [event async for event in api.watch(PODS, "a", version="100", seconds=1)]
        assert {event.type for event in marks} == {"BOOKMARK"}
        assert marks[-1].object["metadata"]["resourceVersion"] == "101"

    serve(use, bookmark_seconds=0.3)
