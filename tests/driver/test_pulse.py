"""An actor whose process was stopped or hangs: Ray does not notice it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from typing import Any

import pytest
from ray.exceptions import RayActorError

from orchestrator.driver.process import kill, this_process
from orchestrator.driver.ray import pulse
from orchestrator.errors import InfrastructureError
from orchestrator.records.lease import Process


def process_of(pid: int) -> Process:
    """Name another process of this machine."""
    real = os.getpid
    os.getpid = lambda: pid
    try:
        return this_process()
    finally:
        os.getpid = real


class Actor:
    """Answers so many times, then never again."""

    def __init__(self, answers: int, process: Process | None = None) -> None:
        self.answers, self.process = answers, process
        self.greet = self

    async def remote(self) -> Any:
        self.answers -= 1
        if self.answers < 0:
            await asyncio.Event().wait()
        return self.process


class DyingActor(Actor):
    async def remote(self) -> Any:
        raise RayActorError


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(pulse, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(pulse, "UP_SECONDS", 0.2)


def test_a_stopped_process_is_killed() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        child.send_signal(signal.SIGSTOP)
        process = process_of(child.pid)
        asyncio.run(pulse.end_when_silent("supervisor 1", Actor(3, process), process))
        assert child.wait(10) == -signal.SIGKILL


def test_one_that_cannot_be_reached_from_here_ends_the_pool_and_a_later_one_of_its_number_lives() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        mine = process_of(child.pid)
        away = mine.model_copy(update={"boot": "another", "host": "node7"})
        with pytest.raises(InfrastructureError, match=rf"supervisor 1, process {child.pid} on node7, gives no answer"):
            asyncio.run(pulse.end_when_silent("supervisor 1", Actor(3), away))
        assert kill(mine.model_copy(update={"started": 1}))
        assert child.poll() is None
        child.kill()


def test_one_that_died_is_left_to_ray() -> None:
    asyncio.run(pulse.end_when_silent("supervisor 1", DyingActor(0), this_process()))


def test_one_that_never_starts_is_named() -> None:
    with pytest.raises(InfrastructureError, match="supervisor 1 did not start within") as caught:
        asyncio.run(pulse.first_answer("supervisor 1", Actor(0)))
    assert caught.value.cause == "supervisors_die"
