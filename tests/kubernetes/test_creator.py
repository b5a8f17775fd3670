"""One pod is one pod, whatever the API server does while it is made and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from cluster_world import pod
from fault_injections import FAULTS
from fault_kubelet import Script, ends, freezes
from fault_server import FaultServer, Room

from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.kubernetes.connect import plain
from orchestrator.sandbox.kubernetes.creator import Creator
from orchestrator.sandbox.kubernetes.errors import ApiError
from orchestrator.sandbox.kubernetes.limiter import Limiter
from orchestrator.sandbox.kubernetes.resources import PODS


class World:
    """A server, and a creator whose pauses are short and whose clock follows them."""

    def __init__(self, server: FaultServer, api: Api) -> None:
        self.server = server
        self.api = api
        self.slept: list[float] = []
        self.now = 0.0
        self.limiter = Limiter(1000.0, clock=lambda: self.now, sleep=self.sleep)
        self.creator = Creator(api, self.limiter, clock=lambda: self.now, sleep=self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(min(seconds, 0.002))

    @property
    def creates(self) -> int:
        return self.server.counts["create", "pods"]


def run(use: Callable[[World], Awaitable[None]], *, answer_seconds: float = 5.0, **options) -> None:
    async def scenario() -> None:
        async with (
            FaultServer(**{"kubelet": False} | options) as server,
            Api(server.connection, answer_seconds=answer_seconds) as api,
        ):
            await use(World(server, api))

    asyncio.run(scenario())


PASSING = [
    "throttled", "throttled_retry_after", "error_before_commit", "unavailable_before_commit", "post_commits_then_500",
    "post_commits_then_503", "post_commits_then_504", "post_commits_then_timeout", "post_commits_then_reset", "reset", "hangs", "slow",
    "truncated_json", "reset_mid_chunk", "page_of_a_proxy", "api_server_restarts", "token_refused", "forbidden_once", "quota_conflict",
    "quota", "webhook_timeout", "webhook_timeout_after_commit", "reset_then_done",
]  # fmt: skip
"""Faults of a create after which there is a pod all the same, and one only."""
FATAL = {
    "pod_security": "pod_security",
    "policy_denies": "admission_denied",
    "webhook_denies": "admission_denied",
}
COMMITTED = {name for name in PASSING if "commit" in name and "before" not in name} | {
    "truncated_json",
    "reset_mid_chunk",
}


def test_every_fault_of_a_create_is_tried() -> None:
    assert {name for name, (verbs, _) in FAULTS.items() if "create" in verbs} == {*PASSING, *FATAL}


@pytest.mark.parametrize("fault", PASSING)
def test_there_is_one_pod_after(fault: str) -> None:
    async def use(world: World) -> None:
        world.server.inject(fault, verb="create", seconds=0.02)
        created = await world.creator.create("a", pod("t-1"))
        assert [each["metadata"]["uid"] for each in world.server.pods("a")] == [created.pod["metadata"]["uid"]]
        if fault != "reset_then_done":  # what is done late and the next attempt: either may be the first
            assert created.existed == (fault in COMMITTED)
            assert world.creates == (1 if fault in COMMITTED or fault == "slow" else 2)
        assert world.server.objects.version == 101  # made once

    run(use, answer_seconds=0.3)


@pytest.mark.parametrize("fault", PASSING)
def test_there_is_one_pod_after_three_in_a_row(fault: str) -> None:
    async def use(world: World) -> None:
        world.server.inject(fault, verb="create", times=3, seconds=0.02)
        await world.creator.create("a", pod("t-1"))
        assert world.server.objects.version == 101

    run(use, answer_seconds=0.15)


@pytest.mark.parametrize(("fault", "cause"), FATAL.items())
def test_a_refusal_is_told_at_once(fault: str, cause: str) -> None:
    async def use(world: World) -> None:
        world.server.inject(fault)
        with pytest.raises(ApiError) as error:
            await world.creator.create("a", pod("t-1"))
        assert error.value.cause == cause
        assert world.creates == 1
        assert not world.slept

    run(use)


def test_looking_goes_through_faults_of_its_own() -> None:
    async def use(world: World) -> None:
        world.server.inject("post_commits_then_500")
        world.server.inject("reset", verb="get")
        world.server.inject("unavailable_before_commit", verb="get")
        assert (await world.creator.create("a", pod("t-1"))).existed
        assert world.creates == 1

    run(use)


def test_a_pod_that_is_there_is_given_to_be_compared() -> None:
    async def use(world: World) -> None:
        theirs = world.server.plant("pods", "a", pod("t-1", labels={"whose": "theirs"}))
        created = await world.creator.create("a", pod("t-1"))
        assert created.existed
        assert created.pod["metadata"]["uid"] == theirs["metadata"]["uid"]

    run(use)


def test_a_pod_that_is_going_is_given_with_its_deletion_timestamp() -> None:
    async def use(world: World) -> None:
        world.server.kubelet.play("*", Script({"agent": ends(after=60), "freezer": freezes(after=60)}))
        made = await world.creator.create("a", pod("t-1"))
        while world.server.pods("a")[0]["status"]["phase"] != "Running":
            await asyncio.sleep(0.001)
        assert await world.creator.delete("a", "t-1", uid=made.pod["metadata"]["uid"])
        again = await world.creator.create("a", pod("t-1"))
        assert again.existed
        assert again.pod["metadata"]["deletionTimestamp"]

    run(use, kubelet=True, grace_scale=1.0)


def test_a_right_that_stays_missing_is_told_after_half_a_minute() -> None:
    async def use(world: World) -> None:
        world.server.denied.add(("create", "pods"))
        with pytest.raises(ApiError) as error:
            await world.creator.create("a", pod("t-1"))
        assert error.value.cause == "api_forbidden"
        assert 30 <= world.now < 60
        assert world.creates > 3

    run(use)


def test_a_server_that_stays_away_is_told_after_minutes() -> None:
    async def use(world: World) -> None:
        await world.server.stop()
        with pytest.raises(ApiError) as error:
            await world.creator.create("a", pod("t-1"))
        assert error.value.cause == "api_unreachable"
        assert 600 <= world.now < 700

    run(use)


def test_retry_after_is_kept_to() -> None:
    async def use(world: World) -> None:
        world.server.inject("throttled_retry_after", verb="create", retry_after=17)
        await world.creator.create("a", pod("t-1"))
        assert max(world.slept) >= 17
        assert world.limiter.rate == 500

    run(use)


@pytest.mark.parametrize("namespace", ["missing", "terminating"])
def test_namespaces_that_cannot_be_used(namespace: str) -> None:
    async def use(world: World) -> None:
        getattr(world.server, namespace).add("a")
        with pytest.raises(ApiError) as error:
            await world.creator.create("a", pod("t-1"))
        assert error.value.cause == f"namespace_{namespace}"

    run(use)


def test_a_full_namespace_is_waited_for_in_order_and_only_by_the_first() -> None:
    async def use(world: World) -> None:
        world.server.quotas["a"] = Room(pods=2)
        first = [await world.creator.create("a", pod(f"t-{number}")) for number in range(2)]
        done: list[int] = []
        said: list[list[str]] = [[] for _ in range(20)]

        async def make(number: int) -> None:
            await world.creator.create("a", pod(f"u-{number:02}"), said[number].append)
            done.append(number)

        makers = []
        for number in range(20):
            makers.append(asyncio.ensure_future(make(number)))
            while said[number] != ["exceeded quota pods: pods=2 in a"]:
                await asyncio.sleep(0.001)
        refused = world.creates
        await asyncio.sleep(0.1)
        assert world.creates - refused < 60  # of one that knocks, not of twenty
        assert not (await asyncio.wait_for(world.creator.create("b", pod("elsewhere")), 1)).existed
        world.server.quotas["a"] = Room(pods=7)
        while len(done) < 5:
            await asyncio.sleep(0.001)
        for made in first:
            await world.creator.delete("a", made.pod["metadata"]["name"], uid=made.pod["metadata"]["uid"])
        while len(done) < 7:
            await asyncio.sleep(0.001)
        assert done == list(range(7))
        makers[7].cancel()
        world.server.quotas["a"] = Room(pods=100)
        await asyncio.gather(*makers, return_exceptions=True)
        assert done == [*range(7), *range(8, 20)]
        assert all(each[-1] == "" for number, each in enumerate(said) if number != 7)  # who is made waits no more
        assert not (await world.creator.create("a", pod("later"))).existed

    run(use)


def test_who_adopts_does_not_queue_behind_those_who_wait_for_its_end() -> None:
    async def use(world: World) -> None:
        world.server.quotas["a"] = Room(pods=1)
        world.server.plant("pods", "a", pod("t-1"))
        waiting = asyncio.ensure_future(world.creator.create("a", pod("t-2")))
        await asyncio.sleep(0.05)
        assert (await asyncio.wait_for(world.creator.create("a", pod("t-1")), 1)).existed
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert (await world.creator.create("a", pod("t-1"))).existed  # and by the first refusal, too

    run(use)


def test_the_first_of_a_queue_outlives_other_faults() -> None:
    async def use(world: World) -> None:
        world.server.quotas["a"] = Room(pods=0)
        waiting = asyncio.ensure_future(world.creator.create("a", pod("t-1")))
        await asyncio.sleep(0.05)
        world.server.inject("unavailable_before_commit", verb="create", times=3)
        await asyncio.sleep(0.05)
        world.server.quotas.clear()
        assert not (await waiting).existed

    run(use)


DELETES = [
    "throttled", "error_before_commit", "unavailable_before_commit", "delete_commits_then_500", "reset", "slow", "api_server_restarts",
    "token_refused", "forbidden_once", "page_of_a_proxy",
]  # fmt: skip


@pytest.mark.parametrize("fault", DELETES)
def test_a_deletion_is_done_once(fault: str) -> None:
    async def use(world: World) -> None:
        made = await world.creator.create("a", pod("t-1"))
        world.server.inject(fault, verb="delete")
        done = await world.creator.delete("a", "t-1", uid=made.pod["metadata"]["uid"])
        assert done == (fault != "delete_commits_then_500")
        assert not world.server.pods("a")

    run(use)


def test_nobody_elses_pod_is_deleted() -> None:
    async def use(world: World) -> None:
        made = await world.creator.create("a", pod("t-1"))
        world.server.remove("pods", "a", "t-1")
        world.server.plant("pods", "a", pod("t-1"))
        assert not await world.creator.delete("a", "t-1", uid=made.pod["metadata"]["uid"])
        assert len(world.server.pods("a")) == 1

    run(use)


def test_a_trial_in_peace_is_one_create_and_one_delete() -> None:
    async def use(world: World) -> None:
        for number in range(20):
            made = await world.creator.create("a", pod(f"t-{number}"))
            await world.creator.delete("a", f"t-{number}", uid=made.pod["metadata"]["uid"])
        assert world.server.counts == {("create", "pods"): 20, ("delete", "pods"): 20}
        assert world.creator.requests == {"create": 20, "delete": 20}

    run(use)


@pytest.mark.parametrize("fault", ["truncated_json", "reset_mid_chunk", "page_of_a_proxy", "reset", "hangs"])
def test_what_cannot_be_read_is_an_error_and_no_object(fault: str) -> None:
    async def use(world: World) -> None:
        world.server.plant("pods", "a", pod("t-1"))
        for ask in (lambda: world.api.get(PODS, "a", "t-1"), lambda: world.api.list(PODS, "a")):
            world.server.inject(fault, times=2)  # aiohttp itself asks again where a kept connection was lost
            with pytest.raises(ApiError) as error:
                await ask()
            world.server.heal()
            assert error.value.cause in ("api_garbled", "api_lost", "api_timeout", "api_unavailable")

    run(use, answer_seconds=0.2)


def test_nobody_listens() -> None:
    async def scenario() -> None:
        async with Api(plain("http://127.0.0.1:9")) as api:
            with pytest.raises(ApiError, match="see whether the cluster is up and reachable") as error:
                await api.get(PODS, "a", "t-1")
            assert error.value.cause == "api_unreachable"

    asyncio.run(scenario())
