"""Containers of programs that are gone: told from live ones by their owner's label, and removed."""

from __future__ import annotations

import contextlib

from orchestrator.sandbox.container.engine import OWNER_LABEL, Engine, EngineError
from orchestrator.sandbox.container.owner import is_gone


async def sweep(engine: Engine) -> list[str]:
    """Remove the containers whose owner is gone, and return them. Usually there are none: containers end with their keepers.

    An owner in another PID namespace looks dead from here and is left alone. Raises EngineError when the engine cannot list.
    """
    gone = [name for name, label in (await engine.containers(OWNER_LABEL)).items() if is_gone(label)]
    for name in gone:
        with contextlib.suppress(EngineError):  # another sweep may have been faster
            await engine.remove(name)
    return gone
