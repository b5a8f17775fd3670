"""``orchestrate logs --follow``: what a trial does, as it does it, from any machine that reaches the store."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from orchestrator.driver.lookout import Lookout, Sight
from orchestrator.errors import StoreError
from orchestrator.report.following import Look, TrialLog
from orchestrator.report.logs import LogPrinter, raw, unfinished

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.interfaces import ObjectStore
    from orchestrator.records.ids import TrialId

LOOK_SECONDS = 2.0
"""Between two looks at the store."""
_LONGEST_PAUSE = 15.0
"""The longest pause after failures of the store, each twice the one before."""
QUIET_SECONDS = 60.0
"""For so long a launch may be silent whose driver is gone; then nothing more is waited for. In a pod it may go on alone."""
_SILENT_TERMS = 10
"""The same for a driver that gives no sign of life, in its own terms."""
_PASSES = frozenset(
    {
        "store_busy",
        "store_conflict",
        "store_unavailable",
        "store_unreachable",
        "store_answer",
        "store_not_found",
        "store_clock",
    }
)
"""Failures of a store after which another try is worth while."""


def print_raw(events: Iterable[dict[str, Any]]) -> None:
    """Print events as JSON, one a line, at once."""
    for event in events:
        print(json.dumps(event))
    sys.stdout.flush()


async def follow_trial(store: ObjectStore, run: str, trial: TrialId, console: Console | None) -> None:
    """Print a trial's events as they come, until it is sealed or nobody will go on with it. Raises StoreError for what does not pass."""
    follower = _Follower(store, run, trial, LogPrinter(console, run, trial) if console else None)
    pause = LOOK_SECONDS
    while True:
        try:
            if await follower.look():
                return
            pause = LOOK_SECONDS
        except StoreError as error:
            if error.cause not in _PASSES:
                raise
            follower.say(f"{error}; trying again")
            pause = min(_LONGEST_PAUSE, 2 * pause)
        await asyncio.sleep(pause)


class _Follower:
    """Looks at the trial, and at whoever drives its run."""

    def __init__(self, store: ObjectStore, run: str, trial: TrialId, printer: LogPrinter | None) -> None:
        self._log = TrialLog(store, run, trial)
        self._lookout = Lookout(store, run)
        self._printer = printer
        self._trial = trial
        self._said = ""
        self._launch: int | None = None
        self._heard = time.monotonic()

    async def look(self) -> bool:
        """Print what is new and return whether it was the last."""
        sight = await self._lookout.look()  # before the events: a driver that has let go has written all it will
        look = await self._log.look()
        self._print(look)
        if look.state == "sealed":
            return True
        if not look.events and self._is_over(look, sight):
            left = unfinished(look) if look.launch else f"{self._trial} has not begun"
            self.say(f"{left}; nobody drives the run any longer")
            return True
        return False

    def say(self, words: str) -> None:
        """Say something beside the events, once."""
        if words != self._said:
            self._said = words
            print(words, file=sys.stderr, flush=True)

    def _print(self, look: Look) -> None:
        if look.events:
            self._heard = time.monotonic()
        if self._printer is None:
            print_raw(map(raw, look.events))
        else:
            if look.launch != self._launch:
                self._printer.title(f"launch {look.launch}")
            for event in look.events:
                self._printer.event(event)
            if look.state == "sealed":
                self._printer.end()
        if look.state == "waiting":
            self.say(f"{self._trial} has left nothing yet: its first events come some seconds after it begins")
        elif look.state == "lost":
            self.say(f"{unfinished(look)}; waiting for another launch")
        self._launch = look.launch or self._launch

    def _is_over(self, look: Look, sight: Sight) -> bool:
        holder = sight.holder
        if (
            holder is None
            or sight.state == "driving"
            or (holder.release is not None and holder.release.reason == "yielded")
        ):
            return False
        if sight.state == "silent" and sight.silent_s < _SILENT_TERMS * holder.claim.term_s:
            return False
        return look.state != "running" or time.monotonic() - self._heard >= QUIET_SECONDS
