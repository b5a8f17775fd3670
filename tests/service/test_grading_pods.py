"""Pods that run hidden tests, on an API server that fails: whose failure is whose, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fault_kubelet import End, Play, Script, Wait, after, ends, runs_for_ever
from fault_server import FaultServer, Room
from grading_world import NAMESPACE, PLANNED, grading_pods, pair, prepares, reports, script

from grader_service.checks.case import PairEnd
from grader_service.cluster.render import OWNER
from orchestrator.errors import SandboxError
from orchestrator.sandbox.kubernetes import names
from orchestrator.spec.task import Environment


def graded(played: Script, folder: Path, *faults: str, number: int = 1) -> tuple[list[PairEnd], FaultServer]:
    """Run some pairs in one grader and return their ends with the server, on which no pod is left."""

    async def scene() -> tuple[list[PairEnd], FaultServer]:
        async with FaultServer() as server:
            server.kubelet.play("g-*", played)
            for fault in faults:
                server.inject(fault, resource="pods")
            async with grading_pods(server) as pairs:
                found = await pairs.run("0123", PLANNED, [pair(folder, str(n)) for n in range(number)])
                assert [pod for pod in server.pods(NAMESPACE) if not pod["metadata"].get("deletionTimestamp")] == []
                return list(found), server

    return asyncio.run(asyncio.wait_for(scene(), 30))


def test_a_verdict_takes_one_create_and_one_delete(tmp_path: Path) -> None:
    played = script(runner=reports(0), subject=ends(0, after=1), runner_1=reports(1, code=3), subject_1=ends(after=1))
    found, server = graded(played, tmp_path, number=2)
    assert [end.runner.exit.code for end in found] == [0, 3]
    assert [end.subject for end in found] == [None, None]
    assert found[0].frozen.output == b"said"
    assert (server.counts[("create", "pods")], server.counts[("delete", "pods")], server.counts[("get", "pods")]) == (
        1,
        1,
        0,
    )


@pytest.mark.parametrize(
    ("subject", "cause"),
    [
        (ends(137, reason="OOMKilled"), "out_of_memory"),
        (ends(0, reason="OOMKilled"), "out_of_memory"),
        (ends(122), "out_of_disk"),
        (ends(123), "out_of_processes"),
        (ends(124), "wall_clock"),
        (ends(70), "exited"),
        (ends(137), "exited"),
    ],
)
def test_a_subject_that_ends_itself_is_its_result(tmp_path: Path, subject: Any, cause: str) -> None:
    found, _ = graded(script(runner=reports(after=0.1, code=1, subject_gone=True), subject=subject), tmp_path)
    assert found[0].runner.exit.code == 1
    assert found[0].subject is not None
    assert found[0].subject.cause == cause


DISK = 'Usage of EmptyDir volume "subject-0" exceeds the limit "33Mi". '


def test_a_subject_that_fills_its_disk_ends_its_own_check_and_the_others_run_again(tmp_path: Path) -> None:
    async def spills_once(play: Play) -> None:
        if len(play.kubelet.objects.of("pods", NAMESPACE)[0]["spec"]["containers"]) == 4:
            await play.started["subject"].wait()
            await play.evict(DISK)

    async def second(play: Play, name: str) -> End:
        alone = len((play.pod or {})["spec"]["containers"]) == 2
        return await (reports(0) if alone else runs_for_ever())(play, name)

    played = script(runner=second, subject=ends(after=5), runner_1=runs_for_ever(), subject_1=ends(after=5))
    found, server = graded(Script(played.behaviours, befalls=spills_once), tmp_path, number=2)
    assert (found[0].runner.cause, found[0].subject and found[0].subject.cause) == ("out_of_disk", "out_of_disk")
    assert (found[1].runner.cause, found[1].runner.exit.code) == ("exited", 0)
    assert server.counts[("create", "pods")] == 2


def test_a_subject_that_was_ended_for_its_disk_is_judged_though_its_full_node_names_nobody(tmp_path: Path) -> None:
    async def full(play: Play) -> None:
        await play.started["subject"].wait()
        await asyncio.sleep(0.3)
        await play.evict("The node was low on resource: ephemeral-storage. ", grace=0)

    played = script(runner=runs_for_ever(), subject=ends(122))
    found, server = graded(Script(played.behaviours, befalls=full), tmp_path)
    assert found[0].subject is not None
    assert found[0].subject.cause == "out_of_disk"
    assert server.counts[("create", "pods")] == 1


def test_what_a_grading_pod_waits_for_is_told_and_that_it_has_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.sandbox.kubernetes.pending._LONG", 0.0)
    told: list[str] = []

    async def scene() -> None:
        async with FaultServer() as server:
            played = script(runner=reports(0), subject=ends(0, after=1))
            server.kubelet.play("g-*", replace(played, waits={"runner": [Wait("ImagePullBackOff", "Back-off", 0.1)]}))
            server.quotas[NAMESPACE] = Room(pods=0)
            made = pair(tmp_path)
            async with grading_pods(server) as pairs:
                heard = replace(made, runner=replace(made.runner, waits=told.append))
                grading = asyncio.create_task(pairs.run("0123", PLANNED, [heard]))
                while not any(told):
                    await asyncio.sleep(0.01)
                server.quotas.clear()
                await grading

    asyncio.run(asyncio.wait_for(scene(), 30))
    said = list(filter(None, told))
    assert said[0].startswith("exceeded quota pods: pods=0 in ")
    assert any("ImagePullBackOff: Back-off" in each for each in said), said
    assert told[-1] == ""


def befallen(what: Callable[[Play], Awaitable[None]]) -> Script:
    """Something happens to a pod while its tests run."""
    return Script(script(runner=runs_for_ever(), subject=runs_for_ever()).behaviours, befalls=after("runner", what))


OURS: dict[str, tuple[Script, str]] = {
    "prepare_fails": (script(prepare=ends(44, message='{"message": "cut off"}')), "grading_inputs"),
    "network_is_open": (script(prepare=ends(41, message='{"message": "x"}')), "policy_not_enforced"),
    "runner_out_of_memory": (script(runner=ends(137, reason="OOMKilled"), subject=ends(after=5)), "grading_memory"),
    "runner_dies": (script(runner=ends(1), subject=ends(after=5)), "grading_pod"),
    "runner_knows_no_grader": (script(runner=ends(43), subject=ends(after=5)), "grader_unreachable"),
    "no_python": (script(runner=runs_for_ever(), subject=ends(128, reason="StartError")), "grading_subject"),
    "deleted": (befallen(lambda play: play.kubelet.delete(play.key)), "pod_deleted"),
    "preempted": (befallen(lambda play: play.preempt()), "pod_deleted"),
    "node_pressure": (befallen(lambda play: play.evict("The node was low on memory.", grace=0)), "evicted"),
    "over_deadline": (befallen(lambda play: play.over_deadline()), "grading_deadline"),
    "image_name": (
        Script({"prepare": prepares, "runner": runs_for_ever()}, waits={"subject": [Wait("InvalidImageName", "bad")]}),
        "image_name",
    ),
}


def test_under_a_runtime_class_each_pair_has_a_pod_of_its_own(tmp_path: Path) -> None:
    planned: Any = SimpleNamespace(id="work", environment=Environment(isolation="gvisor"))

    async def scene() -> tuple[list[PairEnd], int]:
        async with FaultServer() as server:
            server.kubelet.play("g-*", script(runner=reports(0), subject=ends(after=1)))
            async with grading_pods(server, runtime_classes={"gvisor": "runsc"}) as pairs:
                found = await pairs.run("0123", planned, [pair(tmp_path, str(n)) for n in range(2)])
                return list(found), server.counts[("create", "pods")]

    found, created = asyncio.run(scene())
    assert (len(found), created) == (2, 2)


def test_a_runtime_class_that_is_not_named_is_refused(tmp_path: Path) -> None:
    planned: Any = SimpleNamespace(id="work", environment=Environment(isolation="gvisor"))

    async def scene() -> None:
        async with FaultServer() as server, grading_pods(server) as pairs:
            await pairs.run("0123", planned, [pair(tmp_path)])

    with pytest.raises(SandboxError, match="name its RuntimeClass"):
        asyncio.run(scene())


def test_a_subject_that_ended_with_its_pod_has_not_failed(tmp_path: Path) -> None:
    """Its tests may have been reported as failed by then."""

    async def goes(play: Play) -> None:
        await play.started["runner"].wait()
        await asyncio.sleep(0.1)
        await play.kubelet.delete(play.key)

    played = script(runner=reports(code=1, subject_gone=True), subject=ends(after=20))
    with pytest.raises(SandboxError) as caught:
        graded(Script(played.behaviours, befalls=goes), tmp_path)
    assert caught.value.cause == "pod_deleted"


@pytest.mark.parametrize("name", OURS)
def test_what_is_not_the_subjects_doing_is_infrastructure(tmp_path: Path, name: str) -> None:
    played, cause = OURS[name]
    with pytest.raises(SandboxError) as caught:
        graded(played, tmp_path)
    assert caught.value.cause == cause


@pytest.mark.parametrize("fault", ["post_commits_then_500", "post_commits_then_reset", "throttled", "reset"])
def test_an_api_server_that_fails_makes_no_second_pod(tmp_path: Path, fault: str) -> None:
    made: list[str] = []

    async def prepared(play: Play, name: str) -> End:
        made.append(play.uid)
        return await prepares(play, name)

    played = script(prepare=prepared, runner=reports(0), subject=ends(after=1))
    found, _ = graded(played, tmp_path, fault)
    assert found[0].runner.exit.code == 0
    assert len(made) == 1


def test_a_restarted_grader_deletes_its_own_and_spares_others(tmp_path: Path) -> None:
    def left(name: str, owner: str) -> dict[str, Any]:
        labels = {names.MANAGED_BY: names.OURS, OWNER: owner}
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": {"containers": []},
            "status": {"phase": "Running"},
        }

    async def scene() -> list[list[str]]:
        async with FaultServer(kubelet=False) as server:
            for name, owner in (("g-mine", "me"), ("g-theirs", "them"), ("g-over", "them")):
                server.plant("pods", NAMESPACE, left(name, owner))
            server.change("pods", NAMESPACE, "g-over", status={"phase": "Failed"})
            async with grading_pods(server) as pairs:
                seen = []
                for now in (0.0, 400.0):
                    await pairs.sweep(now)
                    seen.append(
                        sorted(
                            p["metadata"]["name"]
                            for p in server.pods(NAMESPACE)
                            if not p["metadata"].get("deletionTimestamp")
                        )
                    )
                return seen

    first, later = asyncio.run(scene())
    assert first == ["g-over", "g-theirs"]
    assert later == ["g-theirs"]


def test_leaving_early_deletes_the_pod(tmp_path: Path) -> None:
    async def scene() -> bool:
        async with FaultServer() as server:
            server.kubelet.play("g-*", script(runner=runs_for_ever(), subject=runs_for_ever()))
            async with grading_pods(server) as pairs:
                asking = asyncio.create_task(pairs.run("0123", PLANNED, [pair(tmp_path)]))
                while not any((pod.get("status") or {}).get("phase") == "Running" for pod in server.pods(NAMESPACE)):
                    await asyncio.sleep(0.01)  # a pod whose making was cut off is swept later
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                return all(pod["metadata"].get("deletionTimestamp") for pod in server.pods(NAMESPACE))

    assert asyncio.run(scene())
