"""Feel whether an actor answers. Ray notices a process that died, never one that was stopped or hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from orchestrator.driver.process import kill
from orchestrator.errors import InfrastructureError
from orchestrator.records.lease import Process

UP_SECONDS = 300.0
"""How long an actor may take to start, or to come back. Meanwhile Ray says every two seconds that it is not there."""
SILENT_SECONDS = 120.0
"""How long a process that answered before may give no answer; one that is busy answers within seconds."""
_PAUSE_SECONDS = 10.0
_Answer = TypeVar("_Answer")


async def first_answer(who: str, actor: Any) -> Process:
    """Return the process of an actor. Raises RayActorError when it has died, InfrastructureError when it does not start."""
    try:
        return await asyncio.wait_for(awaited(actor.greet.remote()), UP_SECONDS)
    except TimeoutError:
        msg = f"{who} did not start within {UP_SECONDS:.0f} s: see whether the machine is overloaded, or a process of Ray is stopped"
        raise InfrastructureError(msg, cause="supervisors_die") from None


async def end_when_silent(who: str, actor: Any, process: Process) -> None:
    """Kill the process when it gives no answer any more: Ray makes another. Returns once it is dead.

    Raises InfrastructureError when it is on another machine, where it cannot be killed from here.
    """
    from ray.exceptions import RayActorError

    try:
        while True:
            await asyncio.sleep(_PAUSE_SECONDS)
            await asyncio.wait_for(awaited(actor.greet.remote()), SILENT_SECONDS)
    except RayActorError:
        return
    except TimeoutError:
        if not kill(process):
            msg = f"{who}, process {process.pid} on {process.host}, gives no answer for {SILENT_SECONDS:.0f} s: end it and resume"
            raise InfrastructureError(msg, cause="supervisors_die") from None


async def awaited(answer: Awaitable[_Answer]) -> _Answer:
    """Return what an awaitable of Ray returns, as a coroutine that can be a task."""
    return await answer
