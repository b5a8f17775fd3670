"""A driver that is told to end: where what runs outlives it, it lets go of the run; elsewhere it stops in order."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from orchestrator.cli.signals import Stop, stoppable
from orchestrator.errors import LetGoError, StoppedError
from orchestrator.records.lease import Wish


class Pool:
    def __init__(self) -> None:
        self.stopped = asyncio.Event()

    async def stop(self) -> None:
        self.stopped.set()


def told(number: signal.Signals, *, outlived: bool, twice: bool = False) -> tuple[object, bool, bool]:
    """Have a signal come while a pool works. Returns what came of the work, whether the pool was stopped, and whether it was let go."""

    async def course() -> tuple[object, bool, bool]:
        stop, pool = Stop("Go on with: resume r1"), Pool()
        stop.outlived = outlived

        async def work() -> str:
            stop.use(pool)
            os.kill(os.getpid(), number)
            await pool.stopped.wait()
            if twice:
                os.kill(os.getpid(), number)
                await asyncio.sleep(30)
            return "ended in order"

        try:
            ended: object = await stoppable(work(), stop)
        except (LetGoError, StoppedError) as error:
            ended = error
        return ended, pool.stopped.is_set(), stop.lets_go

    return asyncio.run(course())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_outlives_its_driver_is_let_go(number: signal.Signals) -> None:
    ended, stopped, lets_go = told(number, outlived=True)
    assert isinstance(ended, LetGoError)
    assert ended.exit_code == 75
    assert "what runs goes on. Go on with: resume r1" in str(ended)
    assert (stopped, lets_go) == (False, True)


@pytest.mark.parametrize(
    ("number", "outlived"),
    [(signal.SIGTERM, False), (signal.SIGHUP, False), (signal.SIGINT, True), (signal.SIGINT, False)],
)
def test_a_person_at_the_keyboard_and_a_machine_that_keeps_its_sandboxes_stop_in_order(
    number: signal.Signals, outlived: bool
) -> None:
    assert told(number, outlived=outlived) == ("ended in order", True, False)


def test_a_driver_that_is_told_to_end_while_it_stops_leaves_the_rest_of_that_to_the_next_one() -> None:
    async def course() -> tuple[object, bool]:
        stop, pool = Stop("Go on with: resume r1"), Pool()
        stop.outlived = True

        async def work() -> None:
            stop.use(pool)
            await stop.requested(Wish(number=1, wants="stop", at=0, by="anna@box"))
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(30)

        with pytest.raises(LetGoError) as caught:
            await stoppable(work(), stop)
        return caught.value.exit_code, pool.stopped.is_set()

    assert asyncio.run(course()) == (75, True)


def test_a_second_interrupt_leaves_at_once() -> None:
    ended, _, lets_go = told(signal.SIGINT, outlived=True, twice=True)
    assert isinstance(ended, StoppedError)
    assert not lets_go
