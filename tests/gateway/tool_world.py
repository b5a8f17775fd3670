"""Tools for tests, and what a launch's record says of their calls."""

from __future__ import annotations

import asyncio
from typing import Any

from orchestrator.gateway.toolbox import ArgumentsError, Tool, ToolAnswer
from orchestrator.trace.read import read_events


class SlowTool:
    """A tool that answers when it is let go, and says what happened to it."""

    def __init__(self, seconds: float = 30) -> None:
        self.began = asyncio.Event()
        self.let_go = asyncio.Event()
        self.cancelled = False
        self.tool = Tool(
            name="slow",
            description="Waits.",
            schema={"type": "object", "properties": {"fail": {"type": "boolean"}}},
            prepare=self._prepare,
            seconds=seconds,
        )

    def _prepare(self, arguments: dict[str, Any]) -> Any:
        if set(arguments) - {"fail"}:
            msg = f"{', '.join(sorted(arguments))}: not known"
            raise ArgumentsError(msg)

        async def wait() -> ToolAnswer:
            self.began.set()
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
            if arguments.get("fail"):
                return ToolAnswer(outcome="error", kind="broken", message="it broke")
            return ToolAnswer(data={"waited": True})

        return wait


async def recorded(here: Any, inside: Any) -> list[Any]:
    """Seal a launch and return the events of its tools, refusals and endings."""
    seal = await here.client.seal(inside.launch)
    events = read_events(await here.store.get(seal.trajectory.key))
    return [each for each in events if each.type in {"tool_call", "tool_result", "refusal", "finish"}]
