"""``orchestrate list`` and ``status``: which runs there are, and how far one is. Nothing here writes to the store."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import JsonOption, RunArgument, StoreOption, run_async, settings_from

if TYPE_CHECKING:
    from orchestrator.settings import Settings


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("list")(list_runs)
    app.command()(status)


def list_runs(
    suite: Annotated[str | None, typer.Option("--suite", metavar="SUITE", help="Runs of this suite only.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Show so many, the newest.")] = 20,
    everything: Annotated[bool, typer.Option("--all", help="Show all.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs of the store, newest first."""
    run_async(_list(suite, None if everything else limit, settings_from(store=store), as_json=as_json))


def status(run: RunArgument = "last", store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show how far a run is, who drives it, and how to go on.

    Also of a run that another machine drives; only reads.
    """
    run_async(_status(run, settings_from(store=store), as_json=as_json))


async def _list(suite: str | None, most: int | None, settings: Settings, *, as_json: bool) -> None:
    from orchestrator import wiring
    from orchestrator.cli.overview_view import list_json, print_list
    from orchestrator.driver.overview import overview
    from orchestrator.report.program import program

    found = await overview(wiring.object_store(settings.store), settings, suite=suite, most=most)
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    if as_json:
        print(json.dumps(list_json(found), indent=2))
        return
    if found.lines:
        print_list(found)
    else:
        of_suite = f" of suite {suite}" if suite else ""
        begin = f"start one with: {program()} submit SUITE"
        print(f"the store {settings.store} has no run{of_suite} yet; {begin}", file=sys.stderr)
    if found.more:
        print(f"{found.more:,} older; --all shows them", file=sys.stderr)


async def _status(text: str, settings: Settings, *, as_json: bool) -> None:
    from orchestrator import wiring
    from orchestrator.cli.overview_view import print_status, status_json
    from orchestrator.cli.remote import job_words
    from orchestrator.dataset.rows import collect
    from orchestrator.driver.lease import read_holder
    from orchestrator.driver.lookout import by_the_calendar
    from orchestrator.driver.standing import Standing
    from orchestrator.driver.wishes import last_wish
    from orchestrator.report.select import resolve_run

    store = wiring.object_store(settings.store)
    run = await resolve_run(store, text)
    holder = await read_holder(store, run)
    sight = by_the_calendar(holder)
    standing = Standing(await collect(store, run), sight, await last_wish(store, run))
    job = ("", False)
    if standing.state not in {"running", "complete"}:
        job = await job_words(settings, standing.data.manifest, holder)
    if as_json:
        print(json.dumps(status_json(standing, job), indent=2))
    else:
        print_status(standing, job=job)
