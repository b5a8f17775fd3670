"""The ``sql`` check: one SELECT over a SQLite file that an agent left. The file may be anything."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from grader_service.child.results import Result
from grader_service.child.workspace import Broken, Unusable, Workspace

_ROWS = 10_000
_STEPS = 50_000_000
_EVERY = 10_000
_JOURNALS = ("-wal", "-journal", "-shm")
_AUTHOR = ("syntax error", "incomplete input", "unrecognized token", "one statement at a time")
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
_FORBIDDEN_FUNCTIONS = frozenset(
    {"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit", "zeroblob", "randomblob"}
)


def check_sql(spec: dict[str, Any], world: Workspace) -> Result:
    """Evaluate a ``sql`` check. Rows are compared with their types; text, numbers and null never equal each other."""
    _prove_readable(spec["query"])
    try:
        if spec["database"] is None:
            with guarded(opened(f"{world.state}/world.db"), "the world's database") as ask:
                rows = [tuple(row.values()) for row in ask(spec["query"], _ROWS)]
        else:
            world.lay()
            rows = _query(world, spec["database"], spec["query"])
    except Unusable as reason:
        return Result(False, spec["expect"], str(reason), (str(reason),))
    wanted = [tuple(row) for row in spec["expect"]]
    if spec["ordered"]:
        equal = [_key(row) for row in rows] == [_key(row) for row in wanted]
    else:
        equal = Counter(map(_key, rows)) == Counter(map(_key, wanted))
    evidence = () if equal else _difference(rows, wanted)
    return Result(equal, [list(row) for row in wanted], [list(row) for row in rows], evidence)


def _query(world: Workspace, path: str, query: str) -> list[tuple[Any, ...]]:
    where, entry = world.find(path)
    world.bring(entry.path + end for end in _JOURNALS)
    try:
        connection = sqlite3.connect(_uri(where), uri=True, isolation_level=None)
        try:
            return _rows(connection, query)
        finally:
            connection.close()
    except (sqlite3.Error, MemoryError, OverflowError) as error:
        msg = f"the query over {path} ended with: {str(error) or type(error).__name__}"
        raise Unusable(msg) from error


def opened(where: str) -> sqlite3.Connection:
    """Open a database of ours, which nobody writes any more. Raises Unusable where there is none."""
    if not os.path.isfile(where):  # noqa: PTH113
        msg = "the launch left no database of its world"
        raise Unusable(msg)
    return sqlite3.connect(f"file:{quote(where)}?mode=ro&immutable=1", uri=True, isolation_level=None)


@contextmanager
def guarded(connection: sqlite3.Connection, what: str) -> Iterator[Callable[[str, int], list[dict[str, Any]]]]:
    """Give what asks a database within limits and returns rows as mappings. What goes wrong inside raises Unusable."""

    def ask(query: str, most: int) -> list[dict[str, Any]]:
        cursor, rows = _asked(connection, query, most)
        names = [column[0] for column in cursor.description]
        return [dict(zip(_unique(names), row, strict=True)) for row in rows]

    try:
        yield ask
    except (sqlite3.Error, sqlite3.Warning, MemoryError, OverflowError) as error:
        msg = f"{what} cannot be asked: {str(error) or type(error).__name__}"
        raise Unusable(msg) from error
    finally:
        connection.close()


def _unique(names: list[str]) -> list[str]:
    return [name if names.count(name) == 1 else f"{name}:{place}" for place, name in enumerate(names)]


def _prove_readable(query: str) -> None:
    """Ask an empty database of our own first: what a database of the agent's says about the query may be made up. Raises Broken."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        connection.set_authorizer(_authorize)
        connection.execute("explain " + query)
    except (sqlite3.Error, ValueError) as error:
        if any(word in str(error) for word in _AUTHOR):
            msg = f"the query cannot run: {error}"
            raise Broken(msg) from error
    finally:
        connection.close()


def _uri(where: str) -> str:
    """Read-only and immutable; but a journal left by a killed writer belongs to the database, and our own copy may replay it."""
    left = any(os.path.isfile(where + end) and os.path.getsize(where + end) for end in _JOURNALS[:2])  # noqa: PTH113, PTH202
    return f"file:{quote(where)}?mode=rw" if left else f"file:{quote(where)}?mode=ro&immutable=1"


def _rows(connection: sqlite3.Connection, query: str) -> list[tuple[Any, ...]]:
    return _asked(connection, query, _ROWS)[1]


def _asked(connection: sqlite3.Connection, query: str, most: int) -> tuple[sqlite3.Cursor, list[tuple[Any, ...]]]:
    connection.set_authorizer(None)
    connection.text_factory = lambda data: data.decode("utf-8", "backslashreplace")
    connection.execute("pragma trusted_schema = off")
    connection.execute("pragma cell_size_check = on")
    connection.execute("pragma mmap_size = 0")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 8 << 20)
    connection.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200)
    connection.set_authorizer(_authorize)
    left = [_STEPS // _EVERY]

    def tick() -> int:
        left[0] -= 1
        return left[0] < 0

    connection.set_progress_handler(tick, _EVERY)
    cursor = connection.execute(query)
    rows = cursor.fetchmany(most + 1)
    if len(rows) > most:
        msg = f"more than {most} rows came back"
        raise sqlite3.OperationalError(msg)
    return cursor, [tuple(f"x'{cell.hex()}'" if isinstance(cell, bytes) else cell for cell in row) for row in rows]


def _authorize(action: int, first: str | None, second: str | None, *_rest: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if (second or first or "").lower() in _FORBIDDEN_FUNCTIONS else sqlite3.SQLITE_OK
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _key(row: tuple[Any, ...]) -> tuple[tuple[str, Any], ...]:
    return tuple(
        ("n" if isinstance(c, int | float) and not isinstance(c, bool) else type(c).__name__, _hashable(c)) for c in row
    )


def _hashable(cell: Any) -> Any:
    return repr(cell) if isinstance(cell, list | dict) else cell


def _difference(rows: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> tuple[str, ...]:
    found, expected = Counter(map(_key, rows)), Counter(map(_key, wanted))
    lines = [f"unexpected row: {row!r}" for row in rows if found[_key(row)] > expected[_key(row)]]
    lines += [f"missing row: {row!r}" for row in wanted if expected[_key(row)] > found[_key(row)]]
    return tuple(lines[:50]) or ("the rows came in another order",)
