"""``orchestrate query``, ``rebuild`` and ``export``: the rows of all runs."""

from __future__ import annotations

import json
import math
import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.options import JsonOption, RunArgument, StoreOption, run_async, settings_from

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.dataset.query import QueryResult
    from orchestrator.exports.write import Wish
    from orchestrator.settings import Settings

FormatOption = Annotated[
    str,
    typer.Option("--format", metavar="FORMAT", help="Rows: parquet, csv, delta. Trials: otel, atif, inspect."),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (query, rebuild, export):
        app.command()(command)


def query(
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="One SELECT over runs, trials, launches, steps, grades, metrics.")
    ],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask the dataset of all runs in SQL. p50(x), p95(x) and p99(x) are exact; the view 'columns' says what each column means."""
    run_async(_query(sql, settings_from(store=store), as_json=as_json))


def rebuild(run: RunArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Make a run's rows anew from its records. Rows that are there already are not doubled."""
    run_async(_rebuild(run, settings_from(store=store), as_json=as_json))


def export(
    run: RunArgument,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="New or empty folder.")] = None,
    kind: FormatOption = "parquet",
    endpoint: Annotated[
        str | None,
        typer.Option("--endpoint", metavar="URL", help="With otel: send it to this collector (OTLP over HTTP)."),
    ] = None,
    without_content: Annotated[
        bool,
        typer.Option("--without-content", help="Of trials: leave out prompts, answers, arguments, results, evidence."),
    ] = False,
    store: StoreOption = None,
) -> None:
    """Write a run's rows, or its trials, for other programs.

    Rows are one file for each table.
    otel: OpenTelemetry spans, also sent to a collector; OTEL_EXPORTER_OTLP_HEADERS has its headers. atif: one trajectory for each trial.
    inspect: one .eval log for each agent.
    """
    from orchestrator.dataset.export import check_format
    from orchestrator.exports.write import TRACE_FORMATS, Wish
    from orchestrator.settings import otlp_headers

    settings = settings_from(store=store)
    for name in TRACE_FORMATS:
        if kind == name:
            wish = Wish(kind=name, folder=out, endpoint=endpoint, headers=otlp_headers(), content=not without_content)
            run_async(_export_traces(run, wish, settings))
            return
    check_format(kind)
    if out is None or endpoint is not None or without_content:
        msg = "rows are written into a folder: name a new one with --out DIR; --endpoint and --without-content are for trials"
        raise typer.BadParameter(msg, param_hint="--format")
    run_async(_export(run, kind, out, settings))


async def _query(sql: str, settings: Settings, *, as_json: bool) -> None:
    from orchestrator import wiring
    from orchestrator.dataset.query import query
    from orchestrator.driver.dataset import part_cache

    found = await query(wiring.object_store(settings.store), sql, part_cache(settings))
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    if as_json:
        print(json.dumps(_as_json(found), indent=2))
    else:
        _print_rows(found)


def _as_json(found: QueryResult) -> dict[str, Any]:
    """Return rows as objects. Raises SpecError for columns of one name, of which only one could be shown."""
    from orchestrator.errors import SpecError

    names = [name for name, _ in found.columns]
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        msg = f"two columns are named {double[0]!r}; name them apart with AS"
        raise SpecError(msg)
    return {
        "schema_version": 1,
        "columns": [{"name": name, "type": kind} for name, kind in found.columns],
        "rows": [dict(zip(names, map(_plain, row), strict=True)) for row in found.rows],
        "notes": list(found.notes),
    }


def _plain(value: Any) -> Any:
    """Return a value of SQL as a value of JSON: bytes as hex, times as ISO 8601, what is no finite number as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return _plain(float(value))
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)


def _print_rows(found: QueryResult) -> None:
    """Print a table on a terminal, row by row where it is too wide for it; lines with tabs into a pipe."""
    from orchestrator.cli.read import console
    from orchestrator.report.text import clean, plural

    screen = console()
    names = [clean(name) for name, _ in found.columns]
    rows = [[clean(_shown(value)) for value in row] for row in found.rows]
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    if not screen.is_terminal:
        for line in (names, *rows):
            print("\t".join(line))
    elif sum(widths) + 2 * len(widths) <= screen.width:
        _print_table(screen, found, names, rows)
    else:
        for number, row in enumerate(rows, 1):
            print(f"-- row {number}")
            for name, value in zip(names, row, strict=True):
                print(f"{name:<{max(map(len, names))}}  {value}")
    print(plural(len(rows), "row"), file=sys.stderr)


def _print_table(screen: Console, found: QueryResult, names: list[str], rows: list[list[str]]) -> None:
    from rich.table import Table

    numbers = ("INT", "DOUBLE", "FLOAT", "DECIMAL")
    table = Table(box=None, pad_edge=False)
    for name, (_, kind) in zip(names, found.columns, strict=True):
        table.add_column(name, justify="right" if any(word in kind for word in numbers) else "left")
    for row in rows:
        table.add_row(*row)
    screen.print(table)


def _shown(value: Any) -> str:
    plain = _plain(value)
    if isinstance(plain, float):
        return f"{plain:.6g}"
    if isinstance(plain, dict | list):
        return json.dumps(plain, ensure_ascii=False)
    return json.dumps(plain) if plain is None or isinstance(plain, bool) else str(plain)


async def _rebuild(text: str, settings: Settings, *, as_json: bool) -> None:
    from orchestrator import wiring
    from orchestrator.driver.dataset import rebuild_rows
    from orchestrator.report.select import resolve_run

    store = wiring.object_store(settings.store)
    done = await rebuild_rows(store, settings, await resolve_run(store, text))
    for launch in done.gone:
        print(f"note: the trajectory of {launch} is gone; its steps are not in the dataset", file=sys.stderr)
    if done.also_lost:
        others = ", ".join(done.also_lost)
        print(f"note: a part that was lost held rows of other runs too; rebuild these: {others}", file=sys.stderr)
    if as_json:
        facts = {"restored": list(done.restored), "gone": list(done.gone), "also_lost": list(done.also_lost)}
        print(json.dumps({"schema_version": 1, "run": done.run, "added": done.added, "rows": done.rows, **facts}))
        return
    rows = ", ".join(f"{name} {count:,}" for name, count in done.rows.items())
    word = "added" if done.added else "restored" if done.restored else "nothing to add: its rows are there"
    print(f"{done.run}: {word} ({rows})")


async def _export(text: str, kind: str, folder: Path, settings: Settings) -> None:
    from orchestrator import wiring
    from orchestrator.dataset.export import check_format, export_run, file_of
    from orchestrator.driver.dataset import part_cache
    from orchestrator.report.select import resolve_run
    from orchestrator.report.text import plural

    checked = check_format(kind)
    store = wiring.object_store(settings.store)
    run = await resolve_run(store, text)
    for name, count in (await export_run(store, run, checked, folder, part_cache(settings))).items():
        print(f"{file_of(folder, name, checked)}: {plural(count, 'row')}")


async def _export_traces(text: str, wish: Wish, settings: Settings) -> None:
    from orchestrator import wiring
    from orchestrator.dataset.rows import collect
    from orchestrator.exports.write import export_traces
    from orchestrator.report.select import resolve_run
    from orchestrator.report.text import named, plural

    store = wiring.object_store(settings.store)
    data = await collect(store, await resolve_run(store, text))
    done = await export_traces(wiring.event_reader(store), data, wish)
    for why in sorted({why for _, why in done.left_out}):
        trials = [trial for trial, reason in done.left_out if reason == why]
        print(f"note: {plural(len(trials), 'trial')} left out, {why}: {named(trials)}", file=sys.stderr)
    where = [*([str(wish.folder)] if wish.folder else []), *([wish.endpoint] if wish.endpoint else [])]
    print(f"{plural(done.trials, 'trial')} of {data.manifest.run} to {' and '.join(where)}")
