"""Follow a run that another process drives: one live line on a terminal, plain lines when piped, the report at its end."""

from __future__ import annotations

import asyncio
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from orchestrator.driver.lookout import Lookout
from orchestrator.driver.standing import Standing

if TYPE_CHECKING:
    from rich.live import Live

    from orchestrator.interfaces import ObjectStore
    from orchestrator.settings import Settings

_GIVE_UP_TERMS = 10
"""Terms of silence after which a driver is not waited for any longer."""
_LINE_EVERY_SECONDS = 10.0


async def watch_run(text: str, interval: float, settings: Settings, *, as_json: bool) -> int:
    """Follow a run and print its report at its end. Returns the exit code that ``submit`` would have ended with."""
    from orchestrator import wiring
    from orchestrator.cli.read import print_report
    from orchestrator.report.select import resolve_run

    store = wiring.object_store(settings.store)
    run = await resolve_run(store, text)
    with Screen() as screen:
        standing = await _follow(store, run, interval, screen)
    await print_report(store, run, as_json=as_json)
    return _ending(standing, settings)


class Screen:
    """Where the state of the run is shown, always on standard error. Use as a context manager."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._line = ""
        self._printed = float("-inf")

    def __enter__(self) -> Screen:
        """Begin to show."""
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, highlight=False)
            self._live = Live(console=console, get_renderable=lambda: self._line, refresh_per_second=4, transient=True)
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing."""
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def show(self, line: str) -> None:
        """Show the state; when piped, now and then, and only what has changed."""
        changed, self._line = line != self._line, line
        if self._live is None and changed and time.monotonic() - self._printed >= _LINE_EVERY_SECONDS:
            self.say(line)
            self._printed = time.monotonic()

    def say(self, text: str) -> None:
        """Say something that stays."""
        if self._live is not None:
            self._live.console.print(text, markup=False)
        else:
            print(text, file=sys.stderr, flush=True)


async def _follow(store: ObjectStore, run: str, interval: float, screen: Screen) -> Standing:
    """Look until nobody drives the run any longer, or nothing is left of it."""
    from orchestrator.cli.overview_view import live_line
    from orchestrator.dataset.rows import RunReader

    reader, lookout = RunReader(store, run), Lookout(store, run)
    told = ""
    while True:
        sight = await lookout.look()  # before the records, so that a driver that has let go has written them all
        standing = Standing(await reader.read(), sight)
        state = standing.state
        told = _tell(screen, standing, told)
        screen.show(live_line(standing))
        if state not in {"running", "silent", "waiting"} or _is_given_up(standing):
            return standing
        await asyncio.sleep(interval)


def _tell(screen: Screen, standing: Standing, told: str) -> str:
    """Say once who drives, and that nobody does, or gives no sign of life. Returns what was said."""
    from orchestrator.report.program import program

    run, holder, state = standing.data.manifest.run, standing.sight.holder, standing.state
    words = ""
    if state == "waiting":
        words = f"run {run} waits for a driver; start one with: {program()} resume {run}"
    elif state == "running":
        words = f"{holder} drives run {run}; Ctrl-C stops watching, not the run"
    elif state == "silent" and holder is not None:
        words = (
            f"{holder} gives no sign of life for {holder.claim.term_s:.0f} s; it may come back. "
            f"To take the run from it: {program()} resume {run}"
        )
    if words and words != told:
        screen.say(words)
    return words or told


def _is_given_up(standing: Standing) -> bool:
    holder = standing.sight.holder
    return (
        standing.state == "silent"
        and holder is not None
        and standing.sight.silent_s >= _GIVE_UP_TERMS * holder.claim.term_s
    )


def _ending(standing: Standing, settings: Settings) -> int:
    """Say what is left and return the exit code: what its driver said, or for one that died or fell silent, 5."""
    from orchestrator.cli.announce import ending
    from orchestrator.cli.overview_view import driver_words, next_step
    from orchestrator.report.text import plural

    holder, state = standing.sight.holder, standing.state
    if state in {"interrupted", "silent"}:
        left = plural(standing.left, "trial")
        print(f"{driver_words(standing.sight)}; {left} left; go on with: {next_step(standing)}", file=sys.stderr)
        return 5
    release = holder.release if holder else None
    by = None
    if release is not None and release.reason == "stopped":
        by = release.detail.removeprefix("by ") if release.detail.startswith("by ") else "an interrupt, at once,"
    return ending(standing.data.manifest, standing.execution(), settings, stopped_by=by)
