"""``orchestrate import``: what agents did elsewhere, into the store."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import JsonOption, StoreOption, run_async, settings_from

if TYPE_CHECKING:
    from orchestrator.importers.place import Imported, Names
    from orchestrator.importers.read import Reader
    from orchestrator.importers.recorded import Price, Trace
    from orchestrator.settings import Settings

SHOWN = 50
"""Problems that are printed."""

imports = typer.Typer(help="Bring what agents did elsewhere into the store.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(imports, name="import")


@imports.callback()
def _root() -> None:
    pass


@imports.command()
def traces(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files, or folders with JSON files.")],
    agent: Annotated[
        str, typer.Option("--agent", metavar="NAME", help="Agent of traces that do not name theirs.")
    ] = "agent",
    task: Annotated[
        str, typer.Option("--task", metavar="NAME", help="Task of traces that do not name theirs.")
    ] = "trace",
    suite: Annotated[str, typer.Option("--suite", metavar="NAME", help="Suite of the run.")] = "production",
    tools: Annotated[
        Path | None, typer.Option("--tools", metavar="FILE", help="JSON list of tools, where traces do not say them.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a run of traces that other programs wrote.

    Read are OpenTelemetry GenAI spans, ATIF, trajectories of ours and of tau-bench, and lists of chat messages. They become a run that
    nobody graded. A trace that is there already is not imported again.
    """
    from orchestrator.importers.place import Names
    from orchestrator.importers.read import Reader, read_tools
    from orchestrator.importers.recorded import Given, slug

    names = Names(suite=slug(suite, "production"), task=slug(task, "trace"), agent=slug(agent, "agent"))
    settings = settings_from(store=store)
    with tempfile.TemporaryDirectory(prefix="orch-import-") as folder:
        reader = Reader(Path(folder), Given(_prices(settings), read_tools(tools) if tools else None))
        found = list(reader.read(paths))  # before anything waits for the store, so that an interrupt ends it at once
        done = run_async(_place(found, names, settings))
    if as_json:
        print(json.dumps(_as_json(reader, done, len(found)), indent=2))
    else:
        _print(reader, done, len(found))
    if code := _print_problems(reader):
        raise typer.Exit(code)


async def _place(found: list[Trace], names: Names, settings: Settings) -> Imported:
    """Put traces into the store and their rows into the dataset."""
    from orchestrator import wiring
    from orchestrator.driver.dataset import commit_rows
    from orchestrator.importers.place import place_traces

    store = wiring.object_store(settings.store)
    done = await place_traces(store, found, names)
    for run in done.runs:
        await commit_rows(store, settings, run)
    return done


def _prices(settings: Settings) -> Price:
    """Return what says the price of a model: that of the settings, else the published one of today."""
    from datetime import UTC, datetime
    from functools import cache

    from orchestrator.plan.prices import known_price
    from orchestrator.spec.agent import Agent

    nobody, now = Agent(type="nop"), datetime.now(UTC)
    return cache(lambda model: known_price(model, nobody, settings, now))


def _as_json(reader: Reader, done: Imported, traces: int) -> dict[str, object]:
    return {
        "schema_version": 1,
        "files": reader.files,
        "traces": traces,
        "added": done.added,
        "known": traces - done.added,
        "runs": done.runs,
        "known_in": sorted(done.known_in),
        "left_out": reader.left_out,
        "problems": [str(problem) for problem in reader.problems],
        "more_problems": reader.more_problems,
    }


def _print(reader: Reader, done: Imported, traces: int) -> None:
    from orchestrator.report.program import program
    from orchestrator.report.text import named, plural

    print(
        f"{plural(traces, 'trace')} in {plural(reader.files, 'file')}: {done.added:,} new, {traces - done.added:,} known before"
    )
    if reader.left_out:
        print(
            f"left out: {plural(reader.left_out, 'export request')} with logs, metrics or profiles, which hold no traces"
        )
    for run in done.runs:
        print(f"look at them: {program()} report {run}")
    if not done.runs and done.known_in:
        print(f"nothing to add: they are in {named(sorted(done.known_in))}")


def _print_problems(reader: Reader) -> int:
    """Say what could not be read. Returns the exit code."""
    for problem in reader.problems[:SHOWN]:
        print(problem, file=sys.stderr)
    count = len(reader.problems) + reader.more_problems
    if count > SHOWN:
        print(f"… and {count - SHOWN:,} more", file=sys.stderr)
    if count:
        words = "everything else was imported; put these right and import again"
        print(f"{count:,} could not be read; {words}", file=sys.stderr)
    return 2 if count else 0
