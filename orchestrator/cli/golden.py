"""``orchestrate golden``: keep what a person accepted, and see where trials leave it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.options import JsonOption, RunArgument, StoreOption, run_async, settings_from

if TYPE_CHECKING:
    from orchestrator.dataset.rows import RunData
    from orchestrator.driver.golden import Diff
    from orchestrator.interfaces import ObjectStore
    from orchestrator.settings import Settings

SuiteOption = Annotated[
    Path | None,
    typer.Option(
        "--suite", metavar="FOLDER", help="The run's suite on this machine; tasks/ID when absent.", show_default=False
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    golden = typer.Typer(
        help="Keep accepted trajectories and compare trials with them.", no_args_is_help=True, rich_markup_mode=None
    )
    golden.command()(accept)
    golden.command()(diff)
    app.add_typer(golden, name="golden")


def accept(
    run: RunArgument,
    trial: Annotated[str, typer.Argument(metavar="TRIAL", help="TASK[@AGENT][:N]")],
    name: Annotated[str, typer.Option("--name", help="Of the golden run; a task may have several.")] = "accepted",
    reason: Annotated[str, typer.Option("--reason", help="Why it is accepted.")] = "",
    by: Annotated[
        str | None, typer.Option("--by", help="Who accepts it; you, when absent.", show_default=False)
    ] = None,
    suite: SuiteOption = None,
    store: StoreOption = None,
) -> None:
    """Keep the trajectory of a trial beside its task.

    Written is golden/NAME.json in the task's folder: its tool calls and its ending, for review and version control. Nothing is replaced.
    """
    run_async(_accept(run, trial, (name, by, reason), suite, settings_from(store=store)))


def diff(
    run: RunArgument = "last",
    trial: Annotated[
        str | None,
        typer.Argument(
            metavar="[TRIAL]", help="TASK[@AGENT][:N]; all with a golden run, when absent.", show_default=False
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Every move, side by side.")] = False,
    suite: SuiteOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Name where trials leave their golden run.

    For each trial the first departure that lasts: its move, its kind, and whether the trial came back. Of several golden runs the nearest
    counts.
    """
    run_async(_diff(run, trial, suite, settings_from(store=store), full=full, as_json=as_json))


async def _accept(
    run: str, trial: str, words: tuple[str, str | None, str], suite: Path | None, settings: Settings
) -> None:
    from datetime import UTC, datetime

    from orchestrator.driver.golden import Wish, accept
    from orchestrator.report.select import resolve_trial
    from orchestrator.report.show import find_row

    name, by, reason = words
    store, data = await _run(run, settings)
    row = find_row(data, resolve_trial(data, trial))
    wish = Wish(name=name, by=by, reason=reason, at=datetime.now(UTC))
    made = await accept(store, data, row, _folder(data, suite) / row.trial.task, wish)
    passed = "" if row.result == "passed" else f"; note: the trial is {row.result}"
    print(f"{made.file}: {len(made.golden.moves)} moves, {made.golden.ending}{passed}")


async def _diff(
    run: str, trial: str | None, suite: Path | None, settings: Settings, *, full: bool, as_json: bool
) -> None:
    from orchestrator.driver.golden import diff, load_goldens
    from orchestrator.errors import SpecError
    from orchestrator.report.select import resolve_trial
    from orchestrator.report.show import find_row

    store, data = await _run(run, settings)
    folder = _folder(data, suite)
    goldens = {task.id: load_goldens(folder / task.id) for task in data.manifest.tasks}
    rows = [
        row
        for row in data.rows
        if goldens[row.trial.task] and row.outcome is not None and row.outcome.trajectory is not None
    ]
    if trial is not None:
        rows = [find_row(data, resolve_trial(data, trial))]
        if not goldens[rows[0].trial.task]:
            msg = f"task {rows[0].trial.task} has no golden run in {folder}; keep one with `orchestrate golden accept`"
            raise SpecError(msg)
    if not rows:
        msg = f"no task of run {data.manifest.run} has a golden run in {folder}; keep one with `orchestrate golden accept`"
        raise SpecError(msg)
    found: list[tuple[str, Diff]] = [
        (str(row.trial), await diff(store, data, row, goldens[row.trial.task])) for row in rows
    ]
    if as_json:
        trials = [{"trial": name, **_as_json(each)} for name, each in found]
        print(json.dumps({"schema_version": 1, "run": data.manifest.run, "trials": trials}, indent=2))
        return
    width = max(len(name) for name, _ in found)
    for name, each in found:
        print(f"{name:{width}}  {_words(each)}")
        if full or trial is not None:
            _print_moves(each)


async def _run(text: str, settings: Settings) -> tuple[ObjectStore, RunData]:
    from orchestrator import wiring
    from orchestrator.dataset.rows import collect
    from orchestrator.report.select import resolve_run

    store = wiring.object_store(settings.store)
    return store, await collect(store, await resolve_run(store, text))


def _folder(data: RunData, suite: Path | None) -> Path:
    from orchestrator.errors import SpecError

    folder = Path("tasks") / data.manifest.suite if suite is None else suite
    if not (folder / "suite.yaml").is_file():
        msg = f"golden runs are kept beside tasks, and {folder} is no suite; say where {data.manifest.suite} is with --suite FOLDER"
        raise SpecError(msg)
    return folder


def _words(each: Diff) -> str:
    """Return one line: where the trial left the golden run."""
    compared, departure = each.compared, each.compared.departure
    other = f"not of the same task ({', '.join(each.differs)} differ); " if each.differs else ""
    slips = f"{compared.slips} single difference{'s' if compared.slips != 1 else ''}" if compared.slips else ""
    if departure is None:
        same = "the same" if each.is_same else slips or "the same moves"
        ended = "" if each.ending == each.golden.ending else f"; ended as {each.ending}, not {each.golden.ending}"
        return f"{other}{same}{ended} ({each.name})"
    place = departure.golden if departure.golden is not None else len(each.golden.moves)
    kind = departure.kind.replace("_", " ")
    back = "came back" if departure.recovered and each.ending == each.golden.ending else "did not come back"
    besides = f"; {slips} besides" if slips else ""
    return f"{other}leaves {each.name} at move {place + 1} of {len(each.golden.moves)}: {kind}; {back}{besides}"


def _as_json(each: Diff) -> dict[str, Any]:
    departure = each.compared.departure
    left = None
    if departure is not None:
        left = {
            "golden_move": None if departure.golden is None else departure.golden + 1,
            "move": None if departure.trial is None else departure.trial + 1,
            "kind": departure.kind,
            "recovered": departure.recovered and each.ending == each.golden.ending,
        }
    return {
        "golden": each.name,
        "comparable": not each.differs,
        "differs": list(each.differs),
        "same_trajectory": each.is_same,
        "same_moves": each.compared.is_equal,
        "single_differences": each.compared.slips,
        "departure": left,
        "ending": each.ending,
        "golden_ending": each.golden.ending,
    }


def _print_moves(each: Diff) -> None:
    from orchestrator.report.text import clean

    def shown(move: Any) -> str:
        return "-" if move is None else clean(f"{move.tool} {move.arguments} -> {move.outcome}", 150)

    for one, other in each.compared.pairs:
        golden = None if one is None else each.golden.moves[one]
        trial = None if other is None else each.moves[other]
        if golden == trial:
            print(f"  = {shown(golden)}")
            continue
        print(f"  - {shown(golden)}")
        print(f"  + {shown(trial)}")
    sys.stdout.flush()
