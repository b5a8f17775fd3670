"""Checks that all run, whatever happens to the others: one that hangs or fails is a finding like any other."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from orchestrator.errors import OrchestrateError
from orchestrator.storage.health import Fact, State

_FAREWELL_S = 2.0
"""For so long a check that took too long may clean up."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing to look at."""

    name: str
    look: Callable[[], Awaitable[Sequence[Fact]]]
    """Runs in a thread with an event loop of its own."""
    limit_s: float = 20.0
    """Seconds that it may take."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check found."""

    name: str
    facts: tuple[Fact, ...]
    hangs: bool = False
    """Whether it has not come back: then this process does not end by itself."""

    @property
    def state(self) -> State:
        """The worst of its facts."""
        states = [fact.state for fact in self.facts]
        return "problem" if "problem" in states else "warning" if "warning" in states else "ok"


class _Running:
    """A check in a thread that nobody has to wait for."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._facts: tuple[Fact, ...] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Sequence[Fact]] | None = None
        self._thread = threading.Thread(target=self._run, name=f"check {check.name}", daemon=True)
        self._begun = time.monotonic()
        self._thread.start()

    def finding(self) -> Finding:
        """Return what it found, once it has ended or its time is over."""
        check = self._check
        self._thread.join(max(0.0, self._begun + check.limit_s - time.monotonic()))
        if self._facts is None and self._loop is not None and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join(_FAREWELL_S)
        if self._facts is not None:
            return Finding(name=check.name, facts=self._facts, hangs=self._thread.is_alive())
        late = Fact(state="problem", said=f"did not end within {check.limit_s:g} s", advice="see what it waits for")
        return Finding(name=check.name, facts=(late,), hangs=self._thread.is_alive())

    def _run(self) -> None:
        try:
            asyncio.run(self._look())
        except asyncio.CancelledError:
            return
        except OrchestrateError as error:
            self._facts = (Fact(state="problem", said=str(error)),)
        except Exception as error:  # noqa: BLE001 - a check that cannot look is a finding; the others go on
            said = f"could not look: {type(error).__name__}: {error}"
            self._facts = (Fact(state="problem", said=said),)

    async def _look(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.ensure_future(self._check.look())
        self._facts = tuple(await self._task)


def run_checks(checks: Sequence[Check]) -> list[Finding]:
    """Run all checks at the same time and return their findings in the same order."""
    running = [_Running(check) for check in checks]
    return [each.finding() for each in running]
