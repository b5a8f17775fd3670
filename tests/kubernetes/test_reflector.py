"""What is seen of pods stays right through everything that lists and watches do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from cluster_world import pod
from fault_injections import FAULTS
from fault_kubelet import PLAYS, Script, ends
from fault_server import FaultServer

from orchestrator.errors import SandboxError
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.kubernetes.errors import ApiError
from orchestrator.sandbox.kubernetes.podview import PodView
from orchestrator.sandbox.kubernetes.reflector import Pace, Reflector
from orchestrator.sandbox.kubernetes.resources import PODS

QUICK = Pace(first=0.005, most=0.05, silence=0.3, older=0.1, watch=60)
Use = Callable[[FaultServer, Api, Reflector], Awaitable[None]]


def run(use: Use, *, pace: Pace = QUICK, before: Callable[[FaultServer], None] = lambda _: None, **options) -> None:
    async def scenario() -> None:
        async with (
            FaultServer(**{"kubelet": False} | options) as server,
            Api(server.connection, answer_seconds=1) as api,
        ):
            before(server)
            async with Reflector(api, "a", pace=pace, marks=(names.RUN,)) as pods:
                await use(server, api, pods)

    asyncio.run(asyncio.wait_for(scenario(), 20))


async def until(pods: Reflector, true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.002)


def phase(server: FaultServer, name: str, phase: str) -> None:
    server.change("pods", "a", name, status={"phase": phase})


WATCH_FAULTS = {
    "watch_closes": "watch",
    "watch_hangs": "silent",
    "watch_cut": "api_lost",
    "watch_garbles": "api_garbled",
    "watch_gone": "gone",
    "watch_gone_event": "gone",
    "watch_error_event": "api_unavailable",
    "watch_version_too_large": "api_timeout",
    "watch_repeats": "stale",
    "throttled": "api_throttled",
    "error_before_commit": "api_unavailable",
    "unavailable_before_commit": "api_unavailable",
    "reset": "watch",
    "hangs": "silent",
    "slow": "watch",
    "page_of_a_proxy": "api_unavailable",
    "api_server_restarts": "api_unreachable",
    "token_refused": "watch",
    "forbidden_once": "api_forbidden",
}
"""Faults of watches, and what a reflector counts after each."""
WITH_TESTS_OF_THEIR_OWN = {
    "watch_misses_deletions",
    "watch_bookmarks_only",
    "watch_floods",
    "throttled_retry_after",
    "etcd_restored",
}


def test_every_fault_of_a_watch_is_tried() -> None:
    assert {name for name, (verbs, _) in FAULTS.items() if "watch" in verbs} == {
        *WATCH_FAULTS,
        *WITH_TESTS_OF_THEIR_OWN,
    }


@pytest.mark.parametrize(("fault", "counted"), WATCH_FAULTS.items())
@pytest.mark.parametrize("times", [1, 3])
def test_all_is_seen_through(fault: str, counted: str, times: int) -> None:
    async def use(server: FaultServer, api: Api, pods: Reflector) -> None:
        await pods.synced()
        made = [pods.observe(server.plant("pods", "a", pod(f"t-{number}"))) for number in range(4)]
        await asyncio.sleep(0.02)
        phase(server, "t-0", "Running")
        server.remove("pods", "a", "t-1")
        phase(server, "t-0", "Succeeded")
        assert (await pods.change("t-1", made[1])).gone
        first = pods.get("t-0")
        while first.phase != "Succeeded":
            first = await pods.change("t-0", first)
        await until(pods, lambda: sorted(view.name for view in pods) == ["t-0", "t-2", "t-3"])
        assert [view.version for view in pods] == [
            int(each["metadata"]["resourceVersion"]) for each in server.pods("a")
        ]
        assert pods.counts[counted]

    def before(server: FaultServer) -> None:
        server.plant("pods", "a", pod("old"))
        server.remove("pods", "a", "old")
        server.inject(fault, verb="watch", times=times, seconds=0.01, retry_after=0.01)

    run(use, before=before)


LIST_FAULTS = [
    "throttled", "error_before_commit", "unavailable_before_commit", "reset", "hangs", "slow_list", "truncated_json", "reset_mid_chunk",
    "page_of_a_proxy", "api_server_restarts", "token_refused", "forbidden_once", "continue_gone",
]  # fmt: skip


@pytest.mark.parametrize("fault", LIST_FAULTS)
def test_the_first_list_survives(fault: str) -> None:
    async def use(server: FaultServer, api: Api, pods: Reflector) -> None:
        await pods.synced()
        assert len(pods) == 502
        assert pods.trouble == ""

    def before(server: FaultServer) -> None:
        for number in range(502):
            server.plant("pods", "a", pod(f"t-{number}"))
        server.inject(fault, verb="list", times=2, seconds=0.01, retry_after=0.01)

    run(use, before=before)


def test_deletions_that_no_event_told_are_told_after_the_next_list() -> None:
    async def use(server: FaultServer, api: Api, pods: Reflector) -> None:
        made = pods.observe(await api.create(PODS, "a", pod("t-1")))
        server.plant("pods", "a", pod("t-2"))
        other = await pods.change("t-2")
        await until(pods, lambda: pods.get("t-1") is not None)
        server.remove("pods", "a", "t-1")
        server.remove("pods", "a", "t-2")
        ended = await pods.change("t-1", made)
        assert (ended.gone, ended.uid) == (True, made.uid)
        assert (await pods.change("t-2", other)).gone
        assert not len(pods)

    run(use, before=lambda server: server.inject("watch_misses_deletions", events=4))


def test_an_end_is_told_even_to_those_who_come_late() -> None:
    async def use(server: FaultServer, api: Api, pods: Reflector) -> None:
        server.plant("pods", "a", pod("t-1"))
        await until(pods, lambda: len(pods) == 1)
        seen = next(iter(pods))
        server.remove("pods", "a", "t-1")
        await until(pods, lambda: not len(pods))
        assert pods.get("t-1") is None  # nobody was interested
        assert await pods.change("t-1", seen) == seen.ended()

    run(use)


def test_a_pod_that_was_gone_before_its_create_was_answered() -> None:
    async def use(server: FaultServer, api: Api, pods: Reflector) -> None:
        made = await api.create(PODS, "a", pod("t-1"))
        server.remove("pods", "a", "t-1")
        server.plant("pods", "a", pod("marker"))
        await pods.change("marker")
        assert pods.observe(made).gone
        assert (await pods.change("t-1")).gone
        pods.forget("t-1")
        assert pods.get("t-1") is None

    run(use)


def test_the_last_event_of_a_pod_has_its_ending() -> None:
    async def use(server: FaultServer, api: Api, pods: Reflector) -> None:
        server.kubelet.play("*", Script({"agent": ends(after=60)}))
        made = await api.create(PODS, "a", pod("t-1"))
        view = pods.observe(made)
        while view.phase != "Running":
            view = await pods.change("t-1", view)
        await api.delete(PODS, "a", "t-1", uid=view.uid)
        while not view.gone:
            view = await pods.change("t-1", view)
        assert view.container("agent").exit_code == 143
        assert view.deleting

    run(use, kubelet=True)


def test_another_pod_of_the_same_name_is_not_taken_for_the_first() -> None:
    async def use(server: FaultServer, api: Api, pods: Reflector) -> None:
        server.plant("pods", "a", pod("t-1"))
        first = await pods.change("t-1")
        server.remove("pods", "a", "t-1")
        server.plant("pods", "a", pod("t-1"))
        assert (await pods.change("t-1", first)) == first.ended()
        second = await pods.change("t-1", first.ended())
        assert second.uid != first.uid
        assert not second.gone

    run(use)


def test_an_api_server_that_is_behind_is_not_believed() -> None:
    async def use(server: FaultServer, api: Api, pods: Reflector) -> None:
        await pods.synced()
        server.remember("a")
        server.plant("pods", "a", pod("t-1"))
        view = await pods.change("t-1")
        server.objects.forget_history()
        server.inject("behind", times=3)
        server.inject("watch_gone")
        server.kubelet.tick = 0
        await server.restart(0.01)
        phase(server, "t-1", "Running")
        newer = await pods.change("t-1", view)
        assert (newer.phase, newer.gone) == ("Running", False)
        assert pods.counts["api_garbled"] == 3

    run(use)


@pytest.mark.parametrize("silent", [False, True])
def test_a_cluster_that_was_restored_from_a_backup_is_the_truth(silent: bool) -> None:
    async def use(server: FaultServer, api: Api, pods: Reflector) -> None:
        await pods.synced()
        server.plant("pods", "a", pod("kept"))
        server.plant("pods", "a", pod("ended"))
        server.back_up()
        kept, ended = await pods.change("kept"), await pods.change("ended")
        server.remove("pods", "a", "ended")
        assert (await pods.change("ended", ended)).gone
        pods.forget("ended")
        lost = pods.observe(server.plant("pods", "a", pod("lost")))
        for _ in range(50):
            phase(server, "kept", "Running")
        while kept.phase != "Running":
            kept = await pods.change("kept", kept)
        server.plant("pods", "a", pod("again"))
        again = await pods.change("again")
        server.inject("etcd_restored", silent=silent)
        await server.restart(0.01)
        assert (await pods.change("lost", lost)) == lost.ended()
        assert pods.counts["set_back"] == 1
        earlier = await pods.change("kept", kept)
        assert (earlier.uid, earlier.phase, earlier.gone) == (kept.uid, "Pending", False)
        assert earlier.version < kept.version
        assert sorted(view.name for view in pods) == ["ended", "kept"]  # so says the cluster
        server.plant("pods", "a", pod("again"))
        assert await pods.change("again", again) == again.ended()
        assert (await pods.change("again", again.ended())).uid != again.uid
        phase(server, "kept", "Failed")
        while earlier.phase != "Failed":
            earlier = await pods.change("kept", earlier)
        made = pods.observe(server.plant("pods", "a", pod("made")))
        server.remove("pods", "a", "made")
        assert (await pods.change("made", made)).gone
        lists = pods.counts["list"]
        await asyncio.sleep(0.1)
        assert (pods.counts["list"], pods.counts["set_back"], pods.trouble) == (lists, 1, "")

    run(use)


def test_bookmarks_move_on_what_a_watch_goes_on_from() -> None:
    async def use(server: FaultServer, api: Api, pods: Reflector) -> None:
        await pods.synced()
        for number in range(30):
            server.plant("events", "a", {"metadata": {"name": f"e-{number}"}})
        await until(pods, lambda: pods.counts["event"] >= 1)
        server.objects.forget_history()
        await server.restart(0.01)
        server.plant("pods", "a", pod("t-1"))
        await pods.change("t-1")
        assert pods.counts["gone"] == 0
        assert pods.counts["list"] == 1

    run(use, bookmark_seconds=0.05)


def test_bookmarks_alone_are_no_news() -> None:
    async def use(server: FaultServer, api: Api, pods: Reflector) -> None:
        await until(pods, lambda: pods.counts["event"] >= 3)
        assert len(pods) == 1
        assert pods.counts["watch"] == 1

    def before(server: FaultServer) -> None:
        server.plant("pods", "a", pod("t-1"))
        server.inject("watch_bookmarks_only")

    run(use, before=before, bookmark_seconds=0.05)


def test_a_flood_keeps_nobody_else_waiting() -> None:
    async def use(server: FaultServer, api: Api, pods: Reflector) -> None:
        await pods.synced()
        view = await pods.change("flood")
        lags = []
        while view.version < 4_100:
            began = time.perf_counter()
            await asyncio.sleep(0)
            lags.append(time.perf_counter() - began)
            view = pods.get("flood")
        assert len(lags) > 10  # others had their turns between
        assert pods.counts["event"] >= 4_000

    run(use, before=lambda server: server.inject("watch_floods", events=4_000, pod=pod("flood")))


def test_a_watch_that_the_server_ended_since_it_was_read_too_slowly_goes_on() -> None:
    async def use(server: FaultServer, api: Api, pods: Reflector) -> None:
        await pods.synced()
        server.plant("pods", "a", pod("t-1"))
        view = await pods.change("t-1")
        server.objects.backlog = 50
        for _ in range(200):
            phase(server, "t-1", "Running")
        server.objects.backlog = 10_000
        while view.version < server.objects.version:
            view = await pods.change("t-1", view)
        assert pods.counts["list"] == 1
        assert pods.counts["watch"] >= 2

    run(use)


def test_retry_after_is_kept_to_between_watches() -> None:
    async def use(server: FaultServer, api: Api, pods: Reflector) -> None:
        began = time.monotonic()
        await pods.synced()
        server.plant("pods", "a", pod("t-1"))
        await pods.change("t-1")
        assert time.monotonic() - began >= 0.3

    run(use, before=lambda server: server.inject("throttled_retry_after", verb="watch", retry_after=0.3))


@pytest.mark.parametrize(
    "fault",
    [
        "error_before_commit",
        "watch_gone",
        "watch_gone_event",
        "token_refused",
        "throttled",
        "watch_closes",
        "watch_repeats",
    ],
)
def test_failures_without_end_are_tried_ever_more_rarely(fault: str) -> None:
    async def use(server: FaultServer, api: Api, pods: Reflector) -> None:
        await asyncio.sleep(0.7)
        assert sum(server.counts.values()) < 60
        assert server.counts["list", "pods"] < 20
        assert pods.trouble

    run(
        use,
        pace=Pace(first=0.02, most=1.0, silence=0.3),
        before=lambda server: server.inject(fault, verb="watch", times=1e9),
    )


def test_what_is_refused_for_good_is_told_and_heals() -> None:
    async def use(server: FaultServer, api: Api, pods: Reflector) -> None:
        server.plant("pods", "a", pod("t-1"))
        view = await pods.change("t-1")
        now = [0.0]
        pods._clock = lambda: now[0]
        server.denied |= {("list", "pods"), ("watch", "pods")}
        await server.restart(0.01)
        waits = asyncio.ensure_future(pods.change("t-1", view))
        await until(pods, lambda: pods.counts["api_forbidden"] > 2)
        assert not waits.done()  # for a moment it may pass
        now[0] = 60.0
        with pytest.raises(ApiError, match="give this identity that right"):
            await waits
        with pytest.raises(ApiError):
            await pods.change("t-1", view)
        assert pods.get("t-1") == view
        assert "forbidden" in pods.trouble
        server.denied.clear()
        phase(server, "t-1", "Running")
        while True:
            with suppress(ApiError):
                assert (await pods.change("t-1", view)).phase == "Running"
                break
            await asyncio.sleep(0.01)
        await until(pods, lambda: pods.trouble == "")

    run(use)


def test_only_what_is_ours_and_only_the_marks_that_were_asked_for() -> None:
    async def use(server: FaultServer, api: Api, pods: Reflector) -> None:
        server.plant("pods", "a", pod("theirs", labels={}))
        server.plant("pods", "b", pod("elsewhere"))
        ours = pod("t-1")
        ours["metadata"]["annotations"] = {names.RUN: "r-1", names.AGENT_TOKEN: "secret"}
        server.plant("pods", "a", ours)
        view = await pods.change("t-1")
        assert view.marks == {names.RUN: "r-1"}
        assert [each.name for each in pods] == ["t-1"]

    run(use)


def test_nobody_waits_for_a_reflector_that_has_ended() -> None:
    async def use(server: FaultServer, api: Api, pods: Reflector) -> None:
        waiting = asyncio.ensure_future(pods.change("t-1"))
        await pods.synced()
        await pods.__aexit__(None, None, None)
        with pytest.raises(SandboxError, match="nobody watches"):
            await waiting
        with pytest.raises(SandboxError, match="nobody watches"):
            await pods.change("t-1")

    run(use)


@pytest.mark.parametrize("name", sorted(PLAYS))
def test_every_life_is_seen_forwards_only(name: str) -> None:
    async def use(server: FaultServer, api: Api, pods: Reflector) -> None:
        server.kubelet.play("*", PLAYS[name])
        await pods.synced()
        view = pods.observe(await api.create(PODS, "a", pod("t-1")))
        seen: list[PodView] = [view]
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                while not view.gone:
                    view = await pods.change("t-1", view)
                    seen.append(view)
        assert [each.version for each in seen] == sorted({each.version for each in seen})

        def same() -> bool:
            known, real = pods.get("t-1"), server.objects.get(("pods", "a", "t-1"))
            return known.gone == (real is None) and (
                real is None or known.version == int(real["metadata"]["resourceVersion"])
            )

        await until(pods, same)

    run(use, kubelet=True, tick=0.001)
