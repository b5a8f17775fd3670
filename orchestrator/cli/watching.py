"""Follow a run that another process drives: one live line on a terminal, plain lines when piped, the report at its end."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from orchestrator.cli.screen import Screen
from orchestrator.driver.lookout import Lookout
from orchestrator.driver.standing import Standing

if TYPE_CHECKING:
    from orchestrator.interfaces import ObjectStore
    from orchestrator.settings import Settings

_GIVE_UP_TERMS = 10
"""Terms of silence after which a driver is not waited for any longer."""


async def watch_run(text: str, interval: float, settings: Settings, *, as_json: bool) -> int:
    """Follow a run and print its report at its end. Returns the exit code that ``submit`` would have ended with."""
    from orchestrator import wiring
    from orchestrator.cli.read import print_report
    from orchestrator.report.select import resolve_run

    store = wiring.object_store(settings.store)
    run = await resolve_run(store, text)
    standing = await _follow(store, run, interval)
    await print_report(store, run, as_json=as_json)
    return _ending(standing, settings)


async def _follow(store: ObjectStore, run: str, interval: float) -> Standing:
    """Look until nobody drives the run any longer, or nothing is left of it."""
    from orchestrator.cli.overview_view import live_line
    from orchestrator.dataset.rows import RunReader

    reader, lookout = RunReader(store, run), Lookout(store, run)
    told, line = "", ""
    with Screen(lambda: line) as screen:
        while True:
            sight = await lookout.look()  # before the records, so that a driver that has let go has written them all
            standing = Standing(await reader.read(), sight)
            told = _tell(screen, standing, told)
            before, line = line, live_line(standing)
            if line != before and screen.takes_turn():
                screen.say(line)
            if standing.state not in {"running", "silent", "waiting"} or _is_given_up(standing):
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
