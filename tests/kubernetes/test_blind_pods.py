"""A pod that cannot be seen for a while: no patience runs out meanwhile, and nothing is concluded from silence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from pod_world import spec_of

from orchestrator.errors import SandboxError
from orchestrator.sandbox.kubernetes import names, pending
from orchestrator.sandbox.kubernetes.pod import Around, Pace, PodSandbox
from orchestrator.sandbox.kubernetes.podview import ContainerView, PodView

SOON = 0.3
"""Longer than each patience here."""


class Watch:
    """What is seen of one pod."""

    def __init__(self) -> None:
        self.trouble = "connection refused"
        self._news: asyncio.Queue[PodView] = asyncio.Queue()

    async def change(self, _name: str, _after: PodView) -> PodView:
        return await self._news.get()

    def show(self, view: PodView) -> None:
        self.trouble = ""
        self._news.put_nowait(view)

    def forget(self, _name: str) -> None: ...


class NothingComes:
    """A gateway to which no freezer delivers."""

    async def delivered(self, _launch: str) -> Any:
        await asyncio.Event().wait()


def view(state: str, **fields: Any) -> PodView:
    made = {"terminated": {"exit_code": 137, "reason": "Error", "started": "2026-03-02T09:00:00Z"}}.get(state, {})
    agent = ContainerView(names.AGENT, cast("Any", state), **made)
    about: dict[str, Any] = {"name": "t-1", "namespace": "n", "uid": "u", "version": 1, "node": "node"}
    return PodView(
        **(about | {"phase": "Pending" if state == "waiting" else "Running", "containers": (agent,)} | fields)
    )


def blind(seen: PodView, course: Callable[[Watch, asyncio.Future[Any]], Awaitable[None]]) -> None:
    """Follow a pod that nothing is told of; ``course`` gets the watch, and what waits for the pod's end."""

    async def run() -> None:
        watch, unused = Watch(), cast("Any", None)
        around = Around(
            api=unused,
            creator=unused,
            pods=cast("Any", watch),
            gateway=cast("Any", NothingComes()),
            bury=lambda work: work.close(),
            grace_seconds=0.05,
            deadline_seconds=0.05,
            pace=Pace(settle=0.05, stop=0.1, linger=0.05, overdue=0.05, deliver=0.1, away=0.02),
        )
        sandbox = PodSandbox(spec_of(), seen, around, spare_request=False)
        ended = asyncio.ensure_future(sandbox.ended())
        await asyncio.sleep(SOON)
        assert not ended.done()
        async with asyncio.timeout(10):
            await course(watch, ended)
        await sandbox.leave(keep=True)

    asyncio.run(run())


def test_a_pod_that_was_being_made_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "CONTAINERS", (pending.Rule("", "", "start_timeout", "retry", 0.05),))

    async def course(watch: Watch, ended: asyncio.Future[Any]) -> None:
        watch.trouble = ""
        with pytest.raises(SandboxError) as caught:
            await ended
        assert caught.value.cause in ("start_timeout", "node_lost")

    blind(view("waiting"), course)


def test_a_pod_that_was_being_deleted_is_not_given_up() -> None:
    async def course(watch: Watch, ended: asyncio.Future[Any]) -> None:
        watch.trouble = ""
        with pytest.raises(SandboxError) as caught:
            await ended
        assert caught.value.cause == "node_lost"

    blind(view("running", deleting="2026-03-02T09:00:00Z"), course)


def test_an_agent_that_was_killed_may_still_turn_out_to_have_been_evicted() -> None:
    async def course(watch: Watch, ended: asyncio.Future[Any]) -> None:
        watch.show(view("terminated", version=2, phase="Failed", reason="Evicted", message="low on memory"))
        with pytest.raises(SandboxError) as caught:
            await ended
        assert caught.value.cause == "evicted"

    blind(view("terminated"), course)
