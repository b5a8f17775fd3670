"""What a driver does about sandboxes that an earlier one left, while the cluster or the store is away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from made import Silent, made_run, made_task

from orchestrator.driver.execute import Execution
from orchestrator.driver.lease import read_holder
from orchestrator.driver.local import Local
from orchestrator.errors import SandboxError, StoreError
from orchestrator.records.lease import Wish
from orchestrator.records.manifest import RunManifest
from orchestrator.settings import Settings
from orchestrator.storage.file import FileStore


def manifest() -> RunManifest:
    return made_run(made_task(samples=3), run="r", backend="kubernetes")


class Pods:
    """A backend whose sandboxes outlive their drivers; none has."""

    name = "kubernetes"
    fetches = True

    def __init__(self, failing: bool) -> None:
        self.failing = failing

    @contextlib.asynccontextmanager
    async def claiming(self, run: str, epoch: int) -> AsyncIterator[None]:
        yield

    @contextlib.asynccontextmanager
    async def driving(self, run: str, epoch: int, gateway: object) -> AsyncIterator[Any]:
        yield self

    async def tidy(self, run: str, over: object) -> set[str]:
        if self.failing:
            raise SandboxError("the API server is away", cause="unreachable")
        return set()


class Services:
    """Neither gateway nor grader is asked anything."""

    @contextlib.asynccontextmanager
    async def open_gateway(self) -> AsyncIterator[Any]:
        yield self

    open_grader = open_gateway

    async def ready(self) -> None: ...


class AtOnce:
    """Somebody who stops the run as soon as there is something to stop."""

    lets_go = False

    def __init__(self, asked_by: str | None) -> None:
        self.asked_by = asked_by
        self._stopping: asyncio.Task[None] | None = None

    def use(self, pool: Any) -> None:
        self._stopping = asyncio.create_task(pool.stop())

    async def requested(self, wish: Wish) -> None: ...


@pytest.mark.parametrize("failing", [False, True])
def test_a_driver_that_cannot_see_what_is_left_running_does_not_call_the_run_stopped(
    tmp_path: Path, failing: bool
) -> None:
    store = FileStore(tmp_path)
    local = Local(
        settings=Settings(),
        store=store,
        backend=cast("Any", Pods(failing)),
        scratch=tmp_path,
        services=cast("Any", Services()),
        concurrency=2,
        cluster=None,
    )

    async def drive() -> str | None:
        with pytest.raises(SandboxError) if failing else contextlib.nullcontext():
            execution = await local.run(manifest(), Silent(), AtOnce("ann"))
            assert (execution.ended, execution.left) == (0, 3)
        holder = await read_holder(store, "r")
        return holder.release.reason if holder and holder.release else None

    assert asyncio.run(drive()) == ("failed" if failing else "stopped")


class FailsAtTheEnd(FileStore):
    """A store that goes away once all is done."""

    done = False

    async def list(self, prefix: str) -> list[str]:
        if self.done:
            raise StoreError("away", cause="store_unavailable")
        return await super().list(prefix)


class Over(Pods):
    """A run whose pods are removed when it begins."""

    def __init__(self) -> None:
        super().__init__(failing=False)
        self.tidied: list[set[str]] = []

    async def tidy(self, run: str, over: Any) -> set[str]:
        self.tidied.append(over)
        return set()


def test_a_run_that_is_done_is_done_though_its_pods_cannot_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FailsAtTheEnd(tmp_path)
    backend = Over()

    async def execute(*_: object) -> Execution:
        store.done = True
        return Execution(ended=3, left=0, lost=(), paused=None)

    monkeypatch.setattr("orchestrator.driver.local.execute", execute)
    local = Local(
        settings=Settings(),
        store=store,
        backend=cast("Any", backend),
        scratch=tmp_path,
        services=cast("Any", Services()),
        concurrency=2,
        cluster=None,
    )
    assert asyncio.run(local.run(manifest(), Silent(), AtOnce(None))).ended == 3
    assert backend.tidied == [set()]
