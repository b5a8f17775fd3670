"""A driver that is stopped before it has come to what an earlier one left running."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.driver.execute import Execution
from orchestrator.driver.local import Local
from orchestrator.errors import GatewayError, SandboxError, StoreError
from orchestrator.records.lease import StopRequest
from orchestrator.records.manifest import Bundles, Code, ManifestAgent, ManifestTask, RunManifest
from orchestrator.settings import Settings
from orchestrator.spec.agent import Agent
from orchestrator.spec.task import Budgets, Environment
from orchestrator.storage.file import FileStore

DIGEST = "sha256:" + "0" * 64


def manifest() -> RunManifest:
    task = ManifestTask(
        id="t",
        version=1,
        digest=DIGEST,
        kind="capability",
        tier=1,
        expect="complete",
        environment=Environment(),
        budgets=Budgets(),
        samples=3,
        bundles=Bundles(sandbox=DIGEST, world=DIGEST, graders=DIGEST),
    )
    return RunManifest(
        run="r",
        created_at=datetime(2026, 3, 2, tzinfo=UTC),
        orchestrate_version="0",
        code=Code(),
        suite="s",
        suite_digest=DIGEST,
        metric="pass_rate",
        k=1,
        tasks=(task,),
        agents=(ManifestAgent(name="a", digest=DIGEST, agent=Agent(type="nop")),),
        seed=1,
        backend="kubernetes",
        pool="inline",
    )


class Pods:
    """A backend whose sandboxes outlive their drivers: two do."""

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

    async def tidy(self, run: str, over: object) -> None: ...

    async def left_running(self, run: str) -> set[str]:
        if self.failing:
            raise SandboxError("the API server is away", cause="unreachable")
        return {"first", "second"}


class Services:
    """A gateway that knows one of the launches no more, and no grader."""

    def __init__(self) -> None:
        self.stopped: list[str] = []

    @contextlib.asynccontextmanager
    async def open_gateway(self) -> AsyncIterator[Any]:
        yield self

    open_grader = open_gateway

    async def ready(self) -> None: ...

    async def stop(self, launch: str) -> None:
        self.stopped.append(launch)
        if launch == "first":
            raise GatewayError("unknown", cause="gateway_restarted")


class AtOnce:
    """Somebody who stops the run as soon as there is something to stop."""

    lets_go = False

    def __init__(self, asked_by: str | None) -> None:
        self.asked_by = asked_by
        self._stopping: asyncio.Task[None] | None = None

    def use(self, pool: Any) -> None:
        self._stopping = asyncio.create_task(pool.stop())

    async def requested(self, request: StopRequest) -> None: ...


class Silent:
    def phase(self, *_: object) -> None: ...
    def begins(self, *_: object) -> None: ...
    def launch_failed(self, *_: object) -> None: ...
    def ended(self, *_: object) -> None: ...


@pytest.mark.parametrize(
    ("asked_by", "failing", "stopped"),
    [("ann", False, ["first", "second"]), ("ann", True, []), (None, False, [])],
    ids=["stopped", "stopped while the cluster is away", "not stopped by a person"],
)
def test_what_goes_on_without_a_driver_is_stopped_too(
    tmp_path: Path, asked_by: str | None, failing: bool, stopped: list[str]
) -> None:
    services = Services()
    local = Local(
        settings=Settings(),
        store=FileStore(tmp_path),
        backend=cast("Any", Pods(failing)),
        scratch=tmp_path,
        services=cast("Any", services),
        concurrency=2,
        cluster=None,
    )
    execution = asyncio.run(local.run(manifest(), Silent(), AtOnce(asked_by)))
    assert (execution.ended, execution.left) == (0, 3)
    assert sorted(services.stopped) == stopped


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

    async def tidy(self, run: str, over: Any) -> None:
        self.tidied.append(over)


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
