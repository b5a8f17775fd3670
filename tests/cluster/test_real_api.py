"""The client of the API on the real server: what the fault server plays is what it does."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest
from installed_world import need_a_cluster

from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.kubernetes.connect import connect
from orchestrator.sandbox.kubernetes.creator import Creator
from orchestrator.sandbox.kubernetes.errors import ApiError, Remedy
from orchestrator.sandbox.kubernetes.limiter import Limiter
from orchestrator.sandbox.kubernetes.pending import Pending
from orchestrator.sandbox.kubernetes.reflector import Reflector
from orchestrator.sandbox.kubernetes.resources import LEASES, PODS, Resource

pytestmark = pytest.mark.cluster
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")


def pod(name: str) -> dict:
    """Return a pod that no node takes: it costs nothing."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {names.MANAGED_BY: names.OURS}},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"orchestrate/no-such": "node"},
            "containers": [{"name": "agent", "image": "localhost/none:1"}],
        },
    }


def use(scenario: Callable[[Api, str], Awaitable[None]]) -> None:
    need_a_cluster()

    async def inside() -> None:
        async with Api(await connect()) as api:
            namespace = f"client-{uuid.uuid4().hex[:8]}"
            await api.create(NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            try:
                await scenario(api, namespace)
            finally:
                await api.delete(NAMESPACES, "", namespace)

    asyncio.run(inside())


def test_pods_are_made_seen_and_gone() -> None:
    async def scenario(api: Api, namespace: str) -> None:
        creator = Creator(api, Limiter(50.0))
        async with Reflector(api, namespace) as pods:
            await pods.synced()
            views = [pods.observe((await creator.create(namespace, pod(f"t-{number}"))).pod) for number in range(10)]
            assert (await creator.create(namespace, pod("t-3"))).existed
            pending, view = Pending(), views[0]
            while (trouble := pending.look(view)).cause != "unschedulable":
                view = await pods.change("t-0", view)
            assert "nodes are available" in trouble.says
            assert not await creator.delete(namespace, "t-0", uid=str(uuid.uuid4()))
            for each in views:
                assert await creator.delete(namespace, each.name, uid=each.uid)
            for each in views:
                seen = each
                while not seen.gone:
                    seen = await pods.change(each.name, seen)
                assert seen.uid == each.uid
            assert not len(pods)
            assert pods.counts["list"] == 1
            assert creator.requests == {"create": 11, "delete": 11, "get": 1}

    use(scenario)


def test_refusals_are_understood() -> None:
    async def scenario(api: Api, namespace: str) -> None:
        async def refused(do: Awaitable[object]) -> ApiError:
            with pytest.raises(ApiError) as error:
                await do
            return error.value

        assert (await refused(api.get(PODS, namespace, "none"))).cause == "not_found"
        assert (await refused(api.create(PODS, namespace, pod("Not a name")))).cause == "invalid"
        assert (await refused(api.create(PODS, "no-such-namespace", pod("t-1")))).cause == "namespace_missing"
        lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": "run"}, "spec": {}}
        made = await api.create(LEASES, namespace, lease)
        await api.update(LEASES, namespace, "run", {**made, "spec": {"holderIdentity": "a"}})
        assert (
            await refused(api.update(LEASES, namespace, "run", {**made, "spec": {"holderIdentity": "b"}}))
        ).cause == "conflict"

        async def stale() -> None:
            async for _ in api.watch(PODS, namespace, version="1", seconds=5):
                pass

        assert (await refused(stale())).fault.remedy is Remedy.RELIST
        assert (await api.allowed("create", PODS, namespace)).allowed
        assert (await api.version()).major == 1

    use(scenario)


def test_a_full_quota_is_waited_for() -> None:
    async def scenario(api: Api, namespace: str) -> None:
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "pods"},
            "spec": {"hard": {"pods": "2"}},
        }
        await api.create(QUOTAS, namespace, quota)
        while not ((await api.get(QUOTAS, namespace, "pods")).get("status") or {}).get("used"):
            await asyncio.sleep(0.2)
        creator = Creator(api, Limiter(50.0))
        held = [await creator.create(namespace, pod(f"t-{number}")) for number in range(2)]
        waits: list[str] = []
        left = {
            asyncio.ensure_future(creator.create(namespace, pod(f"t-{number}"), waits.append)) for number in range(2, 5)
        }
        while sum("exceeded quota pods: pods=2" in said for said in waits) < 3:
            await asyncio.sleep(0.1)
        while held:
            made = held.pop().pod["metadata"]
            assert await creator.delete(namespace, made["name"], uid=made["uid"])
            if left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                held += [each.result() for each in done]
            assert len(await api.list(PODS, namespace)) <= 2
        assert waits.count("") == 3

    use(scenario)


def test_a_list_in_pages_shows_one_moment() -> None:
    async def scenario(api: Api, namespace: str) -> None:
        for number in range(7):
            await api.create(PODS, namespace, pod(f"t-{number}"))
        pages = [page async for page in api.pages(PODS, namespace, limit=3)]
        assert [len(page.items) for page in pages] == [3, 3, 1]
        assert len({page.version for page in pages}) == 1

    use(scenario)
