"""SQL over the dataset: DuckDB with one view for each table, over the parts of one snapshot, and nothing else in reach.

The SQL may come from anybody who may read the dataset. It can read the parts, and it can neither read another file, nor
write any, nor reach the network, nor load code: file access is closed but for the parts, the configuration is locked, and
since DuckDB would also write to a path that may be read, ``onlyread`` takes nothing but statements that read.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.dataset.columns import TABLES
from orchestrator.dataset.commits import Part, load_snapshot
from orchestrator.dataset.files import PartFiles
from orchestrator.dataset.onlyread import refuse_all_but_reading
from orchestrator.dataset.schema import SQL_TYPES, UNKNOWN, Column, Table
from orchestrator.errors import InfrastructureError, SpecError, StoreError, nearest
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys

if TYPE_CHECKING:
    import duckdb

MACROS = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
"""Aggregates of numbers beside DuckDB's own: exact, by linear interpolation (type 7 of Hyndman and Fan 1996), as in every report."""

COLUMNS = "columns"
"""One view more: what each column of each table means."""


@dataclass(frozen=True)
class Source:
    """The committed parts of one table, as files."""

    parts: Sequence[Part]
    paths: Sequence[Path]


@dataclass(frozen=True, kw_only=True)
class QueryResult:
    """What a statement gave."""

    columns: tuple[tuple[str, str], ...]
    """Names and SQL types."""
    rows: list[tuple[Any, ...]]
    """Values of Python: numbers, text, bytes, times with their zone, lists, None."""
    notes: tuple[str, ...] = ()
    """What a reader must know, one sentence each."""


async def query(store: ObjectStore, sql: str, cache: Path, *, suite: str | None = None) -> QueryResult:
    """Answer one SELECT from the dataset as it is now; with ``suite``, from the parts of that suite alone.

    Raises SpecError for SQL that is refused or wrong, and StoreError when parts cannot be read.
    """
    connection = connect()
    try:
        wanted = refuse_all_but_reading(connection, sql)
        snapshot = await load_snapshot(store)
        files = PartFiles(store, cache)
        sources = {}
        for name in [*TABLES, COLUMNS]:
            # Only what the statement reads is looked at, or fetched.
            if wanted is None or name in wanted:
                parts = [part for part in snapshot.of_table(name) if suite in {None, part.suite}]
                sources[name] = Source(parts, await files.paths(parts))
        empty = [] if snapshot.runs else await _hints(store)
        with tempfile.TemporaryDirectory(prefix="orch-sql-") as scratch:
            found = await asyncio.to_thread(_answer, connection, sources, sql, Path(scratch))
        return replace(found, notes=(*found.notes, *empty))
    except asyncio.CancelledError:
        connection.interrupt()
        raise
    finally:
        connection.close()


async def _hints(store: ObjectStore) -> list[str]:
    """Return what to do about a dataset without any run, when the store has runs."""
    runs = sorted(run for key in await store.list(keys.RUNS) if (run := keys.run_of_manifest(key)))
    return [f"the dataset is empty; add a run with: orchestrate rebuild {runs[-1]}"] if runs else []


def connect() -> duckdb.DuckDBPyConnection:
    """Return a database in memory that loads no extension and sees no variable of this program."""
    import duckdb

    options: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_community_extensions": False,
        "python_enable_replacements": False,
    }
    return duckdb.connect(":memory:", config=options)


def _answer(
    connection: duckdb.DuckDBPyConnection, sources: Mapping[str, Source], sql: str, scratch: Path
) -> QueryResult:
    import duckdb

    try:
        notes = open_views(connection, sources, scratch)
        cursor = connection.execute(sql)
        columns = tuple((str(name), str(kind)) for name, kind, *_ in cursor.description or ())
        return QueryResult(columns=columns, rows=cursor.fetchall(), notes=notes)
    except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
        msg = f"the dataset could not be read: {_line(error)}"
        raise StoreError(msg, cause="dataset_query") from error
    except (duckdb.InternalException, duckdb.FatalException) as error:
        raise InfrastructureError(f"DuckDB failed: {_line(error)}", cause="duckdb") from error
    except duckdb.PermissionException as error:
        tables = ", ".join(TABLES)
        msg = f"a query reads the tables {tables} and nothing else: no other file, no network ({_line(error)})"
        raise SpecError(msg) from error
    except duckdb.CatalogException as error:
        # DuckDB's own "did you mean" names its system tables too.
        missing = re.match(r"Catalog Error: Table with name (\S+) does not exist", str(error))
        said = f"there is no table {missing[1]!r}{nearest(missing[1], TABLES)}" if missing else str(error)
        raise SpecError(
            f"{said}\nThe tables are {', '.join(TABLES)}; the view 'columns' says what they hold"
        ) from error
    except duckdb.Error as error:
        raise SpecError(str(error)) from error


def open_views(connection: duckdb.DuckDBPyConnection, sources: Mapping[str, Source], scratch: Path) -> tuple[str, ...]:
    """Make the views and macros, then close everything else. Returns notes about what could not be read as it was written.

    ``scratch`` is an empty folder for what does not fit in memory.
    """
    connection.execute(f"SET temp_directory = {_text(str(scratch))}")
    connection.execute("SET TimeZone = 'UTC'")
    notes: list[str] = []
    for name, source in sources.items():
        made = _columns() if name == COLUMNS else _select(connection, TABLES[name], source, notes)
        connection.execute(f"CREATE VIEW {name} AS {made}")
    for name, share in MACROS.items():
        connection.execute(f"CREATE MACRO {name}(x) AS quantile_cont(x::DOUBLE, {share})")
    paths = [str(path) for source in sources.values() for path in source.paths]
    # The pattern that means a path is asked for first, then the path itself.
    connection.execute(f"SET allowed_paths = {_list(sorted({*paths, *map(_pattern, paths)}))}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return tuple(notes)


def _select(connection: duckdb.DuckDBPyConnection, table: Table, source: Source, notes: list[str]) -> str:
    nothing = ", ".join(f"CAST(NULL AS {SQL_TYPES[c.type]}) AS {_name(c.name)}" for c in table.columns)
    if not source.parts:
        return f"SELECT {nothing} WHERE false"
    names = ", ".join(_name(column.name) for column in table.columns)
    files = _list(_pattern(str(path)) for path in source.paths)
    if all(part.schema_digest == table.digest() for part in source.parts):
        return f"SELECT {names} FROM read_parquet({files}, hive_partitioning = false)"
    foreign = f"read_parquet({files}, union_by_name = true, hive_partitioning = false)"
    every = f"SELECT * FROM (SELECT {nothing} WHERE false) UNION ALL BY NAME SELECT * FROM {foreign}"
    notes += _unknown_words(connection, table, every)
    return f"SELECT {', '.join(_known(column) for column in table.columns)} FROM ({every})"


def _columns() -> str:
    facts = [(table.name, c.name, SQL_TYPES[c.type], c.doc) for table in TABLES.values() for c in table.columns]
    rows = ", ".join(f"({', '.join(map(_text, row))})" for row in facts)
    return f"""SELECT * FROM (VALUES {rows}) facts("table", "column", "type", doc)"""


def _known(column: Column) -> str:
    name = _name(column.name)
    if not column.words:
        return name
    return f"CASE WHEN {_is_unknown(column)} THEN '{UNKNOWN}' ELSE {name} END AS {name}"


def _is_unknown(column: Column) -> str:
    # NULL is in no list and not outside of one either.
    return f"{_name(column.name)} NOT IN ({', '.join(map(_text, column.words))})"


def _unknown_words(connection: duckdb.DuckDBPyConnection, table: Table, every: str) -> list[str]:
    columns = [column for column in table.columns if column.words]
    if not columns:
        return []
    counts = ", ".join(f"count(*) FILTER ({_is_unknown(column)})" for column in columns)
    found = connection.execute(f"SELECT {counts} FROM ({every})").fetchone() or ()
    return [
        f"{table.name}.{column.name}: {count} values are of a newer version and shown as {UNKNOWN!r}"
        for column, count in zip(columns, found, strict=True)
        if count
    ]


def _pattern(path: str) -> str:
    """Return the pattern that means just this path: to DuckDB every path is a pattern."""
    return re.sub(r"([*?\[])", r"[\1]", path)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _list(texts: Any) -> str:
    return "[" + ", ".join(map(_text, texts)) + "]"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
