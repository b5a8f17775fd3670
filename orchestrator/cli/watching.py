"""Follow a run that another process drives: one live line on a terminal, plain lines when piped, the report at its end."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from orchestrator.cli.screen import Screen
from orchestrator.driver.lookout import Lookout
from orchestrator.driver.standing import Standing

if TYPE_CHECKING:
    from orchestrator.driver.kubernetes.sight import JobSight, JobWatch
    from orchestrator.interfaces import ObjectStore
    from orchestrator.settings import Settings

_GIVE_UP_TERMS = 10
"""Terms of silence after which a driver is not waited for any longer."""
_STUCK_SECONDS = 60.0
"""For so long a Job's driver that cannot start is waited for, once it was said why."""
_LEAVES, _STOPS = "stops watching, not the run", "stops it in order, twice leaves it alone"
"""What an interrupt does."""
_SURE = frozenset({"running", "complete"})
"""States that no Job changes."""
_NOBODY = frozenset({"waiting", "interrupted", "silent"})
"""States in which nobody is known to drive the run."""


async def watch_run(text: str, interval: float, settings: Settings, *, as_json: bool) -> int:
    """Follow a run and print its report at its end. Returns the exit code that ``submit`` would have ended with."""
    from orchestrator import wiring
    from orchestrator.cli.remote import job_watch
    from orchestrator.driver.committed import load_manifest
    from orchestrator.report.select import resolve_run

    store = wiring.object_store(settings.store)
    run = await resolve_run(store, text)
    async with job_watch(settings, await load_manifest(store, run)) as watch:
        return await follow_to_its_end(store, run, interval, settings, watch, as_json=as_json)


async def follow_to_its_end(
    store: ObjectStore,
    run: str,
    interval: float,
    settings: Settings,
    watch: JobWatch | None,
    *,
    as_json: bool,
    since: int | None = None,
) -> int:
    """Follow a run, with its Job if there is one, print its report, and return the exit code that its driver would have.

    ``since``: it was started here, after the driver of this epoch, so that an interrupt stops it.
    """
    from orchestrator.cli.read import print_report

    standing, job = await _follow(store, run, interval, watch, _LEAVES if since is None else _STOPS)
    await print_report(store, settings, run, as_json=as_json)
    holder = standing.sight.holder
    unheard = (
        holder is None or holder.release is None or holder.claim.epoch <= (since or 0)
    )  # else it said itself how it ended
    failed = job is not None and job.state == "failed" and unheard
    if failed and job is not None and watch is not None:
        words = await watch.last_words(job)
        print(f"{job}" + (f"; the end of its log:\n{words}" if words else ""), file=sys.stderr)
    return _ending(standing, settings, job, unheard=failed)


async def _follow(
    store: ObjectStore, run: str, interval: float, watch: JobWatch | None, interrupt: str = _LEAVES
) -> tuple[Standing, JobSight | None]:
    """Look until nobody drives the run any longer and no Job will, or nothing is left of it."""
    from orchestrator.cli.overview_view import live_line
    from orchestrator.dataset.rows import RunReader

    reader, lookout = RunReader(store, run), Lookout(store, run)
    told, line, over = "", "", False
    with Screen(lambda: line) as screen:
        while True:
            sight = await lookout.look()  # before the records, so that a driver that has let go has written them all
            standing = Standing(await reader.read(), sight)
            job = await watch.look() if watch is not None and standing.state not in _SURE else None
            told = _tell(screen, standing, (watch, job), interrupt, told)
            before, line = line, live_line(standing)
            if line != before and screen.takes_turn():
                screen.say(line)
            if not _goes_on(standing, watch, job):
                if over or job is None or job.may_come:
                    return standing, job
                over = True  # the Job has ended since the store was looked at: what its driver wrote last is there now
                continue
            await asyncio.sleep(interval)


def _goes_on(standing: Standing, watch: JobWatch | None, job: JobSight | None) -> bool:
    """Return whether there is anything to wait for."""
    state = standing.state
    if state in _SURE:
        return state == "running"
    if watch is not None and job is not None:  # also after a stop: it may have been started again
        return job.may_come and watch.stuck_s < _STUCK_SECONDS
    waits = state in {"waiting", "silent"} or (state == "interrupted" and watch is not None)
    return waits and not _is_given_up(standing)


def _tell(
    screen: Screen, standing: Standing, seen: tuple[JobWatch | None, JobSight | None], interrupt: str, told: str
) -> str:
    """Say once who drives, and that nobody does, or gives no sign of life. Returns what was said."""
    from orchestrator.report.program import program

    watch, job = seen
    run, holder, state = standing.data.manifest.run, standing.sight.holder, standing.state
    words = ""
    if job is not None:
        words = str(job)
    elif watch is not None and watch.unseen:
        words = f"the cluster does not answer, so the run's Job is not seen: {watch.unseen}"
    elif state == "waiting":
        words = f"run {run} waits for a driver; start one with: {program()} resume {run}"
    elif state == "running":
        words = f"{holder} drives run {run}; Ctrl-C {interrupt}"
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


def _ending(standing: Standing, settings: Settings, job: JobSight | None, *, unheard: bool = False) -> int:
    """Say what is left and return the exit code: what its driver said, or for one that died or fell silent, 5."""
    from orchestrator.cli.announce import ending
    from orchestrator.cli.overview_view import driver_words, next_step
    from orchestrator.report.text import plural

    holder, state = standing.sight.holder, standing.state
    if unheard or state in _NOBODY or (job is not None and job.may_come):
        left, who = plural(standing.left, "trial"), driver_words(standing.sight)
        if job is not None and job.may_come:
            who = f"{job}; it starts by itself once that is mended"
        print(f"{who}; {left} left; go on with: {next_step(standing)}", file=sys.stderr)
        return 5
    release = holder.release if holder else None
    by = None
    if release is not None and release.reason == "stopped":
        by = release.detail.removeprefix("by ") if release.detail.startswith("by ") else "an interrupt, at once,"
    return ending(standing.data.manifest, standing.execution(), settings, stopped_by=by)
