"""The Lease of a run: who holds it, who loses it, and what an API server that is away does to that."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fault_server import FaultServer
from pod_world import RUN, SETTINGS

from orchestrator.errors import LeaseLostError, RefusedError, SandboxError
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.backend import KubernetesBackend
from orchestrator.sandbox.kubernetes.lease import Beat

QUICK = Beat(renew=0.02, again=0.02, enter=0.5)
NAMESPACE = SETTINGS.namespaces[0]


def inside(use: Callable[[FaultServer, KubernetesBackend], Awaitable[Any]]) -> Any:
    async def scenario() -> Any:
        async with asyncio.timeout(10), FaultServer() as server:

            async def connecting() -> Any:
                return server.connection

            here = SETTINGS.model_copy(update={"driver": "here"})
            return await use(server, KubernetesBackend(here, connecting, beat=QUICK))

    return asyncio.run(scenario())


def lease(server: FaultServer) -> dict[str, Any]:
    found: dict[str, Any] = server.objects.of("leases", NAMESPACE)[0]
    return found


async def changed(server: FaultServer, before: str) -> str:
    while lease(server)["metadata"]["resourceVersion"] == before:
        await asyncio.sleep(0.005)
    version: str = lease(server)["metadata"]["resourceVersion"]
    return version


def test_it_shows_who_drives_the_run_under_which_epoch_and_is_renewed() -> None:
    async def use(server: FaultServer, backend: KubernetesBackend) -> None:
        async with backend.claiming(RUN, 3):
            found = lease(server)
            assert found["metadata"]["name"] == names.run_lease(RUN)
            assert found["metadata"]["annotations"] == {names.RUN: RUN, names.EPOCH: "3"}
            assert found["metadata"]["labels"][names.RUN_LABEL] == names.run_hash(RUN)
            assert found["spec"]["leaseDurationSeconds"] == 30
            assert found["spec"]["holderIdentity"]
            version = await changed(server, found["metadata"]["resourceVersion"])
            await changed(server, version)
        assert lease(server)["spec"]["holderIdentity"] == ""

    inside(use)


def test_a_higher_epoch_takes_it_and_the_lower_one_is_told() -> None:
    async def use(server: FaultServer, backend: KubernetesBackend) -> None:
        async def first() -> None:
            async with backend.claiming(RUN, 1):
                await asyncio.Event().wait()

        running = asyncio.ensure_future(first())
        while not server.objects.of("leases", NAMESPACE):
            await asyncio.sleep(0.005)
        async with backend.claiming(RUN, 2):
            with pytest.raises(LeaseLostError, match="epoch 2"):
                await running
            found = lease(server)
            assert found["metadata"]["annotations"][names.EPOCH] == "2"
            await changed(server, found["metadata"]["resourceVersion"])

    inside(use)


def test_a_lower_epoch_does_not_begin() -> None:
    async def use(server: FaultServer, backend: KubernetesBackend) -> None:
        async with backend.claiming(RUN, 5):
            with pytest.raises(LeaseLostError):
                await backend.claiming(RUN, 4).__aenter__()

    inside(use)


def test_an_api_server_that_is_away_is_waited_for() -> None:
    async def use(server: FaultServer, backend: KubernetesBackend) -> None:
        async with backend.claiming(RUN, 1):
            version = lease(server)["metadata"]["resourceVersion"]
            await server.restart(0.2)
            await changed(server, version)

    inside(use)


@pytest.mark.parametrize("fault", ["update_commits_then_500", "error_before_commit", "reset", "throttled"])
def test_a_renewal_that_fails_is_repeated(fault: str) -> None:
    async def use(server: FaultServer, backend: KubernetesBackend) -> None:
        async with backend.claiming(RUN, 1):
            server.inject(fault, verb="update", resource="leases")
            version = await changed(server, lease(server)["metadata"]["resourceVersion"])
            await changed(server, version)

    inside(use)


def test_rights_that_are_missing_are_told_at_the_beginning() -> None:
    async def use(server: FaultServer, backend: KubernetesBackend) -> None:
        server.denied.add(("create", "leases"))
        with pytest.raises(SandboxError) as caught:
            await backend.claiming(RUN, 1).__aenter__()
        assert caught.value.cause == "api_forbidden"

    inside(use)


def test_preflight_names_each_right_that_is_missing() -> None:
    async def use(server: FaultServer, backend: KubernetesBackend) -> None:
        labels = await backend.preflight()
        assert labels["cluster"] == "v1.37.2"
        assert "processes sampled" in labels["limits"]
        server.denied |= {("watch", "pods"), ("update", "leases")}
        with pytest.raises(
            RefusedError, match="may not watch pods in trials-0, watch pods in trials-1, update leases in trials-0"
        ):
            await backend.preflight()
        await server.stop()
        with pytest.raises(SandboxError, match="reachable from here") as caught:
            await backend.preflight()
        assert "the cluster is that of" in caught.value.__notes__[0]

    inside(use)


def test_preflight_names_the_settings_that_are_missing() -> None:
    async def use(server: FaultServer, backend: KubernetesBackend) -> None:
        bare = KubernetesBackend(SETTINGS.model_copy(update={"namespaces": (), "pod_image": None}))
        with pytest.raises(RefusedError, match=r"kubernetes\.namespaces and kubernetes\.pod_image"):
            await bare.preflight()

    inside(use)


def add(server: FaultServer, name: str, run: str, launch: str, phase: str = "Running", **more: str) -> None:
    """Let there be a pod of a launch."""
    labels = {names.MANAGED_BY: names.OURS, names.RUN_LABEL: names.run_hash(run)}
    about = {"name": name, "namespace": NAMESPACE, "labels": labels, "annotations": {names.LAUNCH_ID: launch}}
    server.objects.add(("pods", NAMESPACE, name), {"metadata": about | more, "spec": {}, "status": {"phase": phase}})


def test_pods_of_launches_that_are_over_are_removed_and_all_others_are_told() -> None:
    async def use(server: FaultServer, backend: KubernetesBackend) -> None:
        add(server, "over", RUN, "a")
        add(server, "running", RUN, "b")
        add(server, "ended", RUN, "c", "Succeeded")
        add(server, "going", RUN, "d", deletionTimestamp="2026-03-02T09:00:00Z")
        add(server, "of-another-run", "another", "a")
        server.inject("error_before_commit", verb="list", resource="pods")
        assert await backend.tidy(RUN, {"a"}) == {"b", "c", "d"}
        left = {
            pod["metadata"]["name"]
            for pod in server.objects.of("pods", NAMESPACE)
            if "deletionTimestamp" not in pod["metadata"]
        }
        assert left == {"running", "ended", "of-another-run"}

    inside(use)


def test_a_renewal_cut_off_half_way_does_not_keep_the_lease() -> None:
    async def use(server: FaultServer, backend: KubernetesBackend) -> None:
        async with backend.claiming(RUN, 1):
            found = lease(server)
            # As the server has it when the renewal was written and its answer never read.
            server.objects.put("MODIFIED", ("leases", NAMESPACE, names.run_lease(RUN)), copy.deepcopy(found))
        assert lease(server)["spec"]["holderIdentity"] == ""

    inside(use)
