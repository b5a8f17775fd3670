"""Work beside a body: what it raises ends the body and comes out, whenever it comes, and leaves no cancellation behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from memory_store import Memory

from orchestrator.beside import beside
from orchestrator.driver.lease import Timing, drive_run
from orchestrator.errors import LeaseLostError
from orchestrator.records import keys
from orchestrator.sandbox.kubernetes.lease import Beat, held

Context = Callable[[asyncio.Event], contextlib.AbstractAsyncContextManager[Any]]


async def fails_when(lost: asyncio.Event) -> None:
    await lost.wait()
    raise LeaseLostError("taken")


def plain(lost: asyncio.Event) -> contextlib.AbstractAsyncContextManager[None]:
    return beside(fails_when(lost))


class _Lease:
    def __init__(self, lost: asyncio.Event) -> None:
        self._lost = lost

    async def renew(self) -> None:
        if self._lost.is_set():
            raise LeaseLostError("taken")

    async def release(self) -> None:
        await asyncio.sleep(0)


def of_the_cluster(lost: asyncio.Event) -> contextlib.AbstractAsyncContextManager[None]:
    made: Any = _Lease(lost)
    return held(made, Beat(renew=0))


@contextlib.asynccontextmanager
async def of_the_store(lost: asyncio.Event) -> AsyncIterator[None]:
    store: Any = Memory()
    async with drive_run(store, "r", "w", timing=Timing(term_s=1e-6)) as lease:

        async def taken() -> None:
            await lost.wait()
            claim = store.objects[keys.claim("r", 1)].replace(b'"epoch":1', b'"epoch":2')
            await store.create(keys.claim("r", lease.epoch + 1), claim)

        taking = asyncio.create_task(taken())
        try:
            yield
        finally:
            taking.cancel()


CONTEXTS = pytest.mark.parametrize("context", [plain, of_the_cluster, of_the_store])


@CONTEXTS
def test_a_loss_in_the_moment_of_leaving_is_told_or_does_not_matter(context: Context) -> None:
    async def leaving(turns: int) -> str:
        lost = asyncio.Event()
        task = asyncio.current_task()
        assert task is not None
        ended = "left"
        try:
            async with context(lost):
                await asyncio.sleep(0.001)
                lost.set()
                for _ in range(turns):
                    await asyncio.sleep(0)
        except LeaseLostError:
            ended = "lost"
        assert task.cancelling() == 0
        await asyncio.sleep(0.001)  # a cancellation that was left behind would strike here
        return ended

    assert {asyncio.run(leaving(turns)) for turns in range(40)} <= {"left", "lost"}
    assert asyncio.run(leaving(2000)) == "lost"


@CONTEXTS
def test_whoever_cancels_the_body_meanwhile_finds_it_cancelled(context: Context) -> None:
    async def cancelled(late: bool) -> bool:
        lost = asyncio.Event()

        async def body() -> None:
            async with context(lost):
                await asyncio.sleep(30)

        running = asyncio.create_task(body())
        await asyncio.sleep(0.002)
        if late:
            lost.set()
        running.cancel()
        done, _ = await asyncio.wait({running}, timeout=5)
        return bool(done) and running.cancelled()

    assert asyncio.run(cancelled(late=False))
    asyncio.run(cancelled(late=True))


def test_an_error_of_the_body_is_what_comes_out() -> None:
    async def course() -> int:
        lost = asyncio.Event()
        task = asyncio.current_task()
        assert task is not None

        async def body() -> None:
            async with beside(fails_when(lost)):
                try:
                    lost.set()
                    await asyncio.sleep(30)
                finally:
                    raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await body()
        return task.cancelling()

    assert asyncio.run(course()) == 0


def test_a_body_that_swallows_its_end_does_not_hide_the_loss() -> None:
    async def course() -> None:
        lost = asyncio.Event()
        async with beside(fails_when(lost)):
            lost.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(30)

    with pytest.raises(LeaseLostError):
        asyncio.run(course())


def test_work_that_ends_well_ends_nothing() -> None:
    async def course() -> str:
        async with beside(asyncio.sleep(0)):
            await asyncio.sleep(0.01)
        return "whole"

    assert asyncio.run(course()) == "whole"
