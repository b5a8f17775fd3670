"""``orchestrate report``, ``show``, ``logs`` and ``pull``: read what the store holds. Nothing here writes to it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import JsonOption, RunArgument, StoreOption, run_async, settings_from

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.dataset.measured import Measured
    from orchestrator.dataset.rows import RunData
    from orchestrator.interfaces import ObjectStore
    from orchestrator.records.ids import TrialId
    from orchestrator.settings import Settings

TrialArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[TRIAL]",
        help="TASK[@AGENT][:N]; the first failure, or the only trial, when absent.",
        show_default=False,
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (report, show, logs, pull):
        app.command()(command)


def report(
    run: RunArgument = "last",
    prices: Annotated[
        str | None,
        typer.Option(
            metavar="current|RUN", help="Count costs at the prices that would hold now, or at those of another run."
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the report of a run."""
    settings = settings_from(store=store)
    run_async(_report(run, settings, prices, as_json=as_json))


def show(run: RunArgument, trial: TrialArgument = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show one trial: its ending, checks, changes, last output.

    Each check is shown with what was expected and what was there.
    """
    run_async(_show(run, trial, settings_from(store=store), as_json=as_json))


def logs(
    run: RunArgument,
    trial: TrialArgument = None,
    driver: Annotated[
        bool, typer.Option("--driver", help="Instead: what the run's driver on the cluster wrote.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the trial, or the driver, ends.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print what one trial did, step by step.

    Model calls, tool calls, results, refusals. Of a trial that runs, what there is so far.
    """
    settings = settings_from(store=store)
    if driver:
        run_async(_driver_log(run, settings, follow=follow))
    else:
        run_async(_logs(run, trial, settings, as_json=as_json, follow=follow))


def pull(
    run: RunArgument,
    trial: Annotated[str, typer.Argument(metavar="TRIAL", help="TASK[@AGENT][:N]")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New or empty folder.")],
    store: StoreOption = None,
) -> None:
    """Copy the files of one trial into a folder.

    The frozen workspace, trajectory, output and verdict.
    """
    run_async(_pull(run, trial, folder, settings_from(store=store)))


def console() -> Console:
    """Return where tables go: coloured and as wide as the terminal, plain and wide when piped."""
    from rich.console import Console

    found = Console(highlight=False, markup=False, emoji=False)
    return found if found.is_terminal else Console(highlight=False, markup=False, emoji=False, width=200)


async def print_report(
    store: ObjectStore, settings: Settings, run: str, prices: str | None = None, *, as_json: bool
) -> None:
    """Print the report of a run on standard output; ``prices``: at other prices than its own, ``current`` ones or those of a run."""
    from orchestrator import wiring
    from orchestrator.dataset.measured import read_metrics
    from orchestrator.dataset.rows import collect
    from orchestrator.driver.dataset import part_cache
    from orchestrator.report.jsonform import as_json as json_form
    from orchestrator.report.summary import summarise
    from orchestrator.report.terminal import render_terminal

    data = await collect(store, run)
    measured = await read_metrics(store, part_cache(settings), wiring.event_reader(store), data)
    if prices is not None:
        data, measured = await _at_prices(store, settings, data, measured, prices)
    summary = summarise(data, measured=measured)
    if as_json:
        print(json.dumps(json_form(summary), indent=2))
    else:
        render_terminal(summary, console())


async def _at_prices(
    store: ObjectStore, settings: Settings, data: RunData, measured: Measured, whose: str
) -> tuple[RunData, Measured]:
    """Return a run and its metrics at other prices. Raises SpecError."""
    from datetime import UTC, datetime
    from functools import cache

    from orchestrator import wiring
    from orchestrator.dataset.repriced import read_responses, reprice
    from orchestrator.driver.committed import load_manifest
    from orchestrator.driver.dataset import part_cache
    from orchestrator.plan.prices import known_price
    from orchestrator.report.select import resolve_run

    if whose == "current":
        now, said = datetime.now(UTC), "the prices that hold now"
        price = cache(lambda agent, model: known_price(model, data.manifest.agent(agent).agent, settings, now))
    else:
        other = await load_manifest(store, await resolve_run(store, whose))
        known = {model: price for agent in other.agents for model, price in agent.prices.items()}
        price, said = cache(lambda _, model: known.get(model)), f"the prices of run {other.run}"
    responses = await read_responses(store, part_cache(settings), wiring.event_reader(store), data)
    repriced = reprice(data, responses, price, said)
    return repriced.data, repriced.metrics(measured)


async def _report(text: str, settings: Settings, prices: str | None, *, as_json: bool) -> None:
    from orchestrator import wiring
    from orchestrator.report.select import resolve_run

    store = wiring.object_store(settings.store)
    await print_report(store, settings, await resolve_run(store, text), prices, as_json=as_json)


async def _resolve(run: str, trial: str | None, settings: Settings) -> tuple[ObjectStore, RunData, TrialId]:
    from orchestrator import wiring
    from orchestrator.dataset.rows import collect
    from orchestrator.report.select import resolve_run, resolve_trial

    store = wiring.object_store(settings.store)
    data = await collect(store, await resolve_run(store, run))
    return store, data, resolve_trial(data, trial)


async def _show(run: str, trial: str | None, settings: Settings, *, as_json: bool) -> None:
    store, data, found = await _resolve(run, trial, settings)
    await _print_trial(store, settings, data, found, as_json=as_json)


async def _print_trial(store: ObjectStore, settings: Settings, data: RunData, trial: TrialId, *, as_json: bool) -> None:
    from orchestrator import wiring
    from orchestrator.report.show import show_trial

    bundles = wiring.bundle_source(store, settings.cache)
    events = wiring.event_reader(store)
    shown = await show_trial(store, bundles, events, data, trial, None if as_json else console())
    if as_json:
        print(json.dumps(shown, indent=2))


async def print_trial(store: ObjectStore, settings: Settings, run: str, trial: TrialId, *, as_json: bool) -> bool:
    """Show one trial of a run and return whether it passed."""
    from orchestrator.dataset.rows import collect

    data = await collect(store, run)
    await _print_trial(store, settings, data, trial, as_json=as_json)
    return any(row.trial == trial and row.result == "passed" for row in data.rows)


async def _logs(run: str, trial: str | None, settings: Settings, *, as_json: bool, follow: bool) -> None:
    from orchestrator.cli.following import follow_trial, print_raw
    from orchestrator.report.logs import show_logs
    from orchestrator.report.show import find_row

    store, data, found = await _resolve(run, trial, settings)
    outcome = find_row(data, found).outcome
    if follow and (outcome is None or outcome.outcome_class == "infra"):
        await follow_trial(store, data.manifest.run, found, None if as_json else console())
        return
    events, missing = await show_logs(store, data, found, None if as_json else console())
    if as_json:
        print_raw(events)
        if missing:
            print(f"note: {missing}", file=sys.stderr)


async def _driver_log(text: str, settings: Settings, *, follow: bool) -> None:
    from orchestrator import wiring
    from orchestrator.cli.remote import print_driver_log
    from orchestrator.report.select import resolve_run

    run = await resolve_run(wiring.object_store(settings.store), text)
    await print_driver_log(run, settings, follow=follow)


async def _pull(run: str, trial: str, folder: Path, settings: Settings) -> None:
    from orchestrator import wiring
    from orchestrator.report.pull import pull_trial

    store, data, found = await _resolve(run, trial, settings)
    await pull_trial(store, wiring.bundle_source(store, settings.cache), data, found, folder, console())
