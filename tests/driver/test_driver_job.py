"""The Job that drives a run: what the cluster must have for it, how it is made, and what is told when it does not start."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from driver_job_world import DRIVERS, TEMPLATE, add_job, add_pod, here, install
from fault_server import FaultServer

from orchestrator import wiring
from orchestrator.driver.kubernetes.job import jobs_of, render_job, start_job
from orchestrator.driver.kubernetes.sight import JobWatch, look_at_job
from orchestrator.driver.kubernetes.site import Site, open_site
from orchestrator.errors import RefusedError, SpecError
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.kubernetes.resources import EVENTS, JOBS
from orchestrator.settings import Settings
from orchestrator.spec.yaml import parse_yaml

Play = Callable[[FaultServer, Api], Awaitable[Any]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Play], Any]:
    """Return what plays a course of events on an API server that ``wiring.cluster_api`` leads to."""

    async def played(course: Play) -> Any:
        async with FaultServer() as server, Api(server.connection) as api:

            @contextlib.asynccontextmanager
            async def cluster_api(table: object) -> AsyncIterator[Api]:
                yield api

            monkeypatch.setattr(wiring, "cluster_api", cluster_api)
            return await course(server, api)

    return lambda course: asyncio.run(played(course))


# --- what the cluster must have ---------------------------------------------------------------------------------------------------------


def test_the_drivers_settings_hold_but_for_what_belongs_to_this_machine(play, tmp_path: Path) -> None:
    async def course(server: FaultServer, api: Api) -> Settings:
        await install(api)
        own = here(tmp_path, 'cache = "mine"\n[limits]\ncost_usd = 5.0\ntrials = 9\n', concurrency=7)
        async with open_site(own) as site:
            return site.settings

    found = play(course)
    assert (found.store, found.backend, found.pool, found.supervisors) == ("s3://theirs/runs", "kubernetes", "ray", 1)
    assert (found.concurrency, found.cache) == (7, tmp_path / "mine")
    assert (found.limits.cost_usd, found.limits.trials) == (5.0, 9)
    assert set(found.providers) == {"acme"}
    assert found.kubernetes.task_image == "task@sha256:2"
    assert found.sources["limits.cost_usd"] == "orchestrate.toml:3"
    assert found.sources["pool"] == "configmap orchestrate-drivers-default/orchestrate-driver orchestrate.toml:4"


def test_a_store_that_was_named_here_is_taken(play, tmp_path: Path) -> None:
    async def course(server: FaultServer, api: Api) -> str:
        await install(api)
        async with open_site(here(tmp_path, store="s3://mine?endpoint=http://127.0.0.1:1")) as site:
            return site.settings.store

    assert play(course) == "s3://mine?endpoint=http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "has no ConfigMap orchestrate-driver: install the chart there"),
        ({"version": "0.0.1"}, "drivers of this cluster run orchestrate 0.0.1"),
        ({"job.yaml": None}, "it has no job.yaml; install the chart again"),
        ({"job.yaml": "kind: Pod"}, "job.yaml: it must be a Job with a container"),
        ({"orchestrate.toml": "bakend = 1"}, "orchestrate.toml:1:1: bakend: unknown setting (did you mean 'backend'?)"),
    ],
)
def test_what_a_cluster_lacks_is_said(play, tmp_path: Path, data: dict[str, str] | None, said: str) -> None:
    async def course(server: FaultServer, api: Api) -> None:
        if data is not None:
            await install(api, **data)
        async with open_site(here(tmp_path)):
            pass

    with pytest.raises(SpecError) as caught:
        play(course)
    assert said in str(caught.value)


# --- the Job ----------------------------------------------------------------------------------------------------------------------------


def test_the_template_is_kept_but_for_name_labels_and_arguments() -> None:
    template = parse_yaml(TEMPLATE.encode(), "t").data
    before = copy.deepcopy(template)
    job = render_job(template, "run-1", 2, ("--pool", "ray"))
    assert template == before
    ours = {names.MANAGED_BY: names.OURS, names.COMPONENT: "driver", names.RUN_LABEL: names.run_hash("run-1")}
    for about in (job["metadata"], job["spec"]["template"]["metadata"]):
        assert about["labels"] == {"team": "default", **ours}
        assert about["annotations"] == {names.RUN: "run-1"}
    assert job["metadata"]["name"] == f"orchestrate-{names.run_hash('run-1')}-2"
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container.pop("args") == ["resume", "run-1", "--unattended", "--pool", "ray"]
    assert [container] == before["spec"]["template"]["spec"]["containers"]
    assert job["spec"]["backoffLimit"] == 6


def site_on(api: Api) -> Site:
    return Site(api, DRIVERS, Settings(), parse_yaml(TEMPLATE.encode(), "t").data)


def test_the_next_job_has_the_next_number_and_there_is_one_at_a_time(play) -> None:
    async def course(server: FaultServer, api: Api) -> None:
        assert (await start_job(site_on(api), "r", ())).endswith("-1")
        with pytest.raises(RefusedError, match="drives run r already"):
            await start_job(site_on(api), "r", ())
        assert (await start_job(site_on(api), "other", ())).endswith("-1")
        [job] = await jobs_of(api, DRIVERS, "r")
        job["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
        await api.update(JOBS, DRIVERS, job["metadata"]["name"], job)
        assert (await start_job(site_on(api), "r", ())).endswith("-2")

    play(course)


@pytest.mark.parametrize(
    "fault",
    [
        "post_commits_then_500",
        "post_commits_then_reset",
        "reset_then_done",
        "api_server_restarts",
        "unavailable_before_commit",
    ],
)
def test_a_job_whose_creation_was_not_answered_is_found(play, fault: str) -> None:
    async def course(server: FaultServer, api: Api) -> list[Any]:
        server.inject(fault)
        await start_job(site_on(api), "r", ())
        return await jobs_of(api, DRIVERS, "r")

    assert len(play(course)) == 1


def test_two_people_start_two_jobs_of_one_run_and_one_is_told_so(play) -> None:
    async def course(server: FaultServer, api: Api) -> tuple[list[Any], int]:
        both = await asyncio.gather(*(start_job(site_on(api), "r", ()) for _ in range(2)), return_exceptions=True)
        return both, len(await jobs_of(api, DRIVERS, "r"))

    both, jobs = play(course)
    assert jobs == 1
    assert [type(each) for each in both if isinstance(each, Exception)] == [RefusedError]


# --- what is seen of it -----------------------------------------------------------------------------------------------------------------

PULL = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}}, "name": "driver"}
FULL = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 Insufficient cpu.",
}
GONE = {"name": "driver", "state": {"terminated": {"exitCode": 75, "reason": "Error"}}}
START = {
    "name": "driver",
    "state": {"terminated": {"exitCode": 128, "reason": "StartError", "message": "exec orchestrate: no such file"}},
}
CODE = {"name": "driver", "state": {"terminated": {"exitCode": 2, "reason": "Error"}}}


@pytest.mark.parametrize(
    ("status", "state", "trouble"),
    [
        ({"phase": "Pending", "containerStatuses": [PULL]}, "waiting", 'ImagePullBackOff: Back-off pulling image "x"'),
        ({"phase": "Pending", "conditions": [FULL]}, "waiting", f"Unschedulable: {FULL['message']}"),
        ({"phase": "Pending"}, "waiting", ""),
        ({"phase": "Running"}, "running", ""),
    ],
)
def test_why_a_driver_does_not_start(play, status: dict[str, Any], state: str, trouble: str) -> None:
    async def course(server: FaultServer, api: Api) -> Any:
        await add_pod(server, await add_job(api, "r", 1), **status)
        return await look_at_job(api, DRIVERS, "r")

    seen = play(course)
    assert (seen.state, seen.trouble) == (state, trouble)
    assert seen.may_come


@pytest.mark.parametrize(
    ("status", "before"),
    [
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."},
            "Evicted: The node was low on memory.",
        ),
        ({"phase": "Failed", "containerStatuses": [GONE]}, "its driver ended with exit code 75 (Error)"),
        (
            {"phase": "Failed", "containerStatuses": [START]},
            "its driver ended with exit code 128 (StartError): exec orchestrate: no such file",
        ),
    ],
)
def test_a_driver_that_ended_is_followed_by_another(play, status: dict[str, Any], before: str) -> None:
    async def course(server: FaultServer, api: Api) -> Any:
        await add_pod(server, await add_job(api, "r", 1), **status)
        return await look_at_job(api, DRIVERS, "r")

    seen = play(course)
    assert (seen.state, seen.trouble, seen.before) == ("waiting", "", before)
    assert str(seen).endswith(f"makes another driver, since {before}")


def test_a_job_without_a_pod_says_what_refuses_its_pods(play) -> None:
    async def course(server: FaultServer, api: Api) -> Any:
        job = await add_job(api, "r", 1)
        about = {"kind": "Job", "name": job["metadata"]["name"]}
        event = {"metadata": {"name": "e"}, "involvedObject": about, "type": "Warning", "reason": "FailedCreate"}
        await api.create(EVENTS, DRIVERS, {**event, "message": "exceeded quota: pods"})
        return await look_at_job(api, DRIVERS, "r")

    seen = play(course)
    assert (seen.state, seen.trouble) == ("waiting", "FailedCreate: exceeded quota: pods")


def test_how_a_job_ended(play) -> None:
    async def course(server: FaultServer, api: Api) -> list[Any]:
        found = [await look_at_job(api, DRIVERS, "r")]
        await add_job(api, "r", 1, {"type": "Complete", "status": "True"})
        found.append(await look_at_job(api, DRIVERS, "r"))
        failed = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": "exit code 2"}
        await add_pod(server, await add_job(api, "r", 2, failed), phase="Failed", containerStatuses=[CODE])
        return [*found, await look_at_job(api, DRIVERS, "r")]

    none, complete, failed = play(course)
    assert (none.state, complete.state, failed.state) == ("none", "complete", "failed")
    assert str(failed).endswith("PodFailurePolicy: exit code 2: its driver ended with exit code 2 (Error)")
    assert not any(each.may_come for each in (none, complete, failed))


def test_a_driver_that_cannot_start_is_told_from_one_that_takes_its_time(play) -> None:
    async def course(server: FaultServer, api: Api) -> None:
        now = 100.0
        watch = JobWatch(api, DRIVERS, "r")
        watch._clock = lambda: now
        job = await add_job(api, "r", 1)
        await add_pod(server, job, phase="Pending")
        await watch.look()
        assert watch.stuck_s == 0
        server.objects.put("MODIFIED", ("pods", DRIVERS, f"{job['metadata']['name']}-abcde"), _pulling(server, job))
        await watch.look()
        now = 130.0
        assert watch.stuck_s == 30
        await server.stop()
        assert await watch.look() is None
        assert watch.unseen
        assert watch.stuck_s == 30

    play(course)


def _pulling(server: FaultServer, job: dict[str, Any]) -> dict[str, Any]:
    pod = server.objects.get(("pods", DRIVERS, f"{job['metadata']['name']}-abcde"))
    assert pod is not None
    return {**pod, "status": {"phase": "Pending", "containerStatuses": [PULL]}}
