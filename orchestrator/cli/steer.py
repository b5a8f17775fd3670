"""``orchestrate watch`` and ``stop``: follow, or end in order, what another process drives."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import JsonOption, RunArgument, StoreOption, run_async, settings_from

if TYPE_CHECKING:
    from orchestrator.driver.kubernetes.sight import JobWatch
    from orchestrator.driver.lookout import Lookout, Sight
    from orchestrator.interfaces import ObjectStore
    from orchestrator.settings import Settings

_LOOK_SECONDS = 1.0
_SAY_SECONDS = 12.0
"""Between two words on what a stop waits for."""


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(watch)
    app.command()(stop)


def watch(
    run: RunArgument = "last",
    interval: Annotated[
        float, typer.Option("--interval", min=0.2, max=3600, metavar="SECONDS", help="Time between two looks.")
    ] = 2.0,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Follow a run until it ends or its driver lets it go.

    Then the report, and the exit code that submit has. Ctrl-C leaves the run alone.
    """
    from orchestrator.cli.watching import watch_run

    raise typer.Exit(run_async(watch_run(run, interval, settings_from(store=store), as_json=as_json)))


def stop(
    run: RunArgument,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until its driver has let go.")] = True,
    store: StoreOption = None,
) -> None:
    """Stop a run that another process drives, here or elsewhere.

    As Ctrl-C there: nothing more is started, what runs is stopped, frozen and kept. It holds until somebody resumes the run: a driver that
    dies before it has stopped is followed by one that does.
    """
    raise typer.Exit(run_async(_stop(run, settings_from(store=store), wait=wait)))


async def _stop(text: str, settings: Settings, *, wait: bool) -> int:
    from orchestrator import wiring
    from orchestrator.cli.remote import NEXT_STOPS, job_watch, stop_job
    from orchestrator.driver.committed import load_manifest
    from orchestrator.driver.lookout import Lookout
    from orchestrator.driver.wishes import ask_to_stop
    from orchestrator.report.select import resolve_run
    from orchestrator.report.text import clean

    store = wiring.object_store(settings.store)
    run = await resolve_run(store, text)
    lookout = Lookout(store, run)
    async with job_watch(settings, await load_manifest(store, run)) as watch:
        sight = await lookout.look()
        if sight.holder is not None and sight.is_driven:
            before = await ask_to_stop(store, run)
            told = f"{sight.holder}, which drives run {run}, was asked to stop"
            print(told if before is None else f"{told} by {clean(before, 80)} already", flush=True)
            if not wait:
                print("it hears that with its next sign of life, which is seconds away")
        else:
            done = "" if watch is None else await stop_job(store, watch.api, watch.namespace, run)
            print(done or f"nobody drives run {run}: {who_drove(sight)}\n{await _what_is_left(store, run)}", flush=True)
            wait = wait and done == NEXT_STOPS
        return await _until_let_go(store, run, lookout, watch) if wait else 0


async def _until_let_go(store: ObjectStore, run: str, lookout: Lookout, watch: JobWatch | None) -> int:
    """Wait until a driver has let the run go, whichever of those that a Job makes it is."""
    import asyncio
    import time

    from orchestrator.driver.wishes import is_stop, last_wish
    from orchestrator.report.program import program

    said = time.monotonic()
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        sight = await lookout.look()
        if not is_stop(await last_wish(store, run)):
            print(
                f"somebody has resumed run {run} meanwhile; stop it again with: {program()} stop {run}", file=sys.stderr
            )
            return 5
        if sight.state != "driving" and not await _another_comes(sight, watch):
            break
        if time.monotonic() - said >= _SAY_SECONDS:
            said = time.monotonic()
            print(what_stops(sight), file=sys.stderr, flush=True)
    if sight.state == "silent":
        print(
            f"{sight.holder} gives no sign of life for {sight.silent_s:.0f} s. When it wakes up, it stops. "
            f"To take the run from it: {program()} resume {run}",
            file=sys.stderr,
        )
        return 5
    print(f"{who_drove(sight)}\n{await _what_is_left(store, run)}")
    return 0


def what_stops(sight: Sight) -> str:
    """Return in one line what a stop that was asked for still waits for."""
    from orchestrator.interfaces.waits import waiting
    from orchestrator.report.text import clean, plural

    holder = sight.holder
    if holder is None or sight.state != "driving":
        return "waiting: no driver has begun to stop the run; its Job makes the next one"
    phases = {} if holder.beat is None else holder.beat.phases
    waits = {} if holder.beat is None else holder.beat.waits
    now = ", ".join(f"{count:,} {clean(phase, 80)}" for phase, count in sorted(phases.items()))
    what = f"{plural(sum(phases.values()), 'trial')} of {holder}: {now}" if phases else f"{holder} to let the run go"
    more = f"; {waiting(waits)}" if waits else ""
    return f"waiting for {what}{more}; its last sign of life was {sight.silent_s:.0f} s ago"


async def _another_comes(sight: Sight, watch: JobWatch | None) -> bool:
    """Return whether a Job makes another driver, which has to stop what the last one has not."""
    release = sight.holder.release if sight.holder else None
    if watch is None or (release is not None and release.reason in {"ended", "stopped"}):
        return False
    job = await watch.look()
    return job is not None and job.may_come and not job.trouble


def who_drove(sight: Sight) -> str:
    """Return in one sentence who drove a run last and how that ended."""
    from orchestrator.report.text import clean

    holder = sight.holder
    if holder is None:
        return "nobody has begun with it"
    if holder.release is None:
        return f"{holder} drove it and was killed"
    reason, detail = holder.release.reason, clean(holder.release.detail)
    if reason == "ended":
        return f"{holder} drove it to its end"
    words = {
        "stopped": "was stopped",
        "paused": "paused it",
        "limit": "came to its spending limit",
        "failed": "failed",
        "removed": "let it go, because it is being removed",
        "yielded": "let it go, told to end by its machine or cluster",
    }
    return f"{holder} drove it and {words[reason]}" + (
        f" {detail}" if reason == "stopped" else f": {detail}" if detail else ""
    )


async def _what_is_left(store: ObjectStore, run: str) -> str:
    from orchestrator.driver.committed import load_manifest
    from orchestrator.driver.execute import what_is_left
    from orchestrator.report.program import program
    from orchestrator.report.text import plural

    left = await what_is_left(await load_manifest(store, run), store)
    count = len(left.to_run) + len(left.to_grade)
    if not count:
        return f"nothing is left to do; see it with: {program()} report {run}"
    return f"{plural(count, 'trial')} {'is' if count == 1 else 'are'} left; go on with: {program()} resume {run}"
