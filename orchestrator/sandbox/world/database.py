"""SQLite within limits: what may be said to it, how long it may take, and which time it is there."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from typing import Any, Literal

Mode = Literal["own", "seed", "tool", "read"]
"""Who speaks: this program, the seed, a tool, a question of a tool that changes nothing."""

OWN_TABLES = ("_calls", "_outbox", "_approvals", "_rates")
"""Tables that no tool and no seed writes."""
_PAGE = 4096
_SPARE_PAGES = 4096
_EVERY = 2000
"""Steps of SQLite's machine between two looks at the clock; some tens of microseconds."""
_LENGTH = 4 << 20
"""Most bytes of one value or row."""
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: _LENGTH,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 8 << 20,
    sqlite3.SQLITE_LIMIT_COLUMN: 500,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 500,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 100,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 500,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 20,
}
_READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_FUNCTION})
_WRITING = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})
_MAKING = frozenset(
    {
        sqlite3.SQLITE_CREATE_TABLE,
        sqlite3.SQLITE_CREATE_INDEX,
        sqlite3.SQLITE_CREATE_VIEW,
        sqlite3.SQLITE_CREATE_TRIGGER,
        sqlite3.SQLITE_ALTER_TABLE,
        sqlite3.SQLITE_DROP_TABLE,
        sqlite3.SQLITE_DROP_INDEX,
        sqlite3.SQLITE_DROP_VIEW,
        sqlite3.SQLITE_DROP_TRIGGER,
        sqlite3.SQLITE_REINDEX,
        sqlite3.SQLITE_ANALYZE,
    }
)
_FORBIDDEN = frozenset({"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit", "randomblob"})
_ZERO_NOW = ("date", "time", "datetime", "julianday", "unixepoch")
_CURRENT = {"current_timestamp": "datetime", "current_date": "date", "current_time": "time"}


class TooSlowError(Exception):
    """A call took longer than it may."""


class Database:
    """One connection to a world's database."""

    def __init__(self, path: str, *, most_bytes: int, rows: int, now: str | None, seed: int) -> None:
        self._mode: Mode = "own"
        self._deadline = float("inf")
        self._rows = rows
        self._pages = max(16, most_bytes // _PAGE)
        self.now = now
        self.random = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._connection = sqlite3.connect(path, isolation_level=None, cached_statements=64)
        self._connection.text_factory = lambda data: data.decode("utf-8", "replace")
        for pragma in (
            "journal_mode = delete",
            "synchronous = off",  # what a process has written outlives it; a machine that dies takes its launches with it
            "foreign_keys = on",
            "trusted_schema = on",  # the schema is the seed's, and its defaults use the functions below
            "cell_size_check = on",
            "temp_store = memory",
            "mmap_size = 0",
            "cache_size = -8192",
            f"page_size = {_PAGE}",
            f"max_page_count = {self._pages}",
        ):
            self._connection.execute(f"pragma {pragma}")
        for kind, limit in _LIMITS.items():
            self._connection.setlimit(kind, limit)
        self._connection.set_authorizer(self._authorize)
        self._connection.set_progress_handler(self._is_late, _EVERY)
        self._override()

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._connection.in_transaction

    def make_room(self) -> None:
        """Let a database that is full hold what this program still has to write."""
        self._connection.execute(f"pragma max_page_count = {self._pages + _SPARE_PAGES}")

    def close(self) -> None:
        """Close it."""
        self._connection.close()

    def give(self, seconds: float) -> None:
        """Allow so much time from now on."""
        self._deadline = time.monotonic() + seconds

    def own(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement of this program and return its rows. Raises sqlite3.Error."""
        self._mode = "own"
        return self._connection.execute(sql, values).fetchall()

    def read(self, sql: str, values: dict[str, Any], most: int | None = None) -> list[dict[str, Any]]:
        """Run a question that changes nothing; rows as mappings. Raises sqlite3.Error and TooSlowError."""
        return self._run("read", sql, values, most)

    def write(self, sql: str, values: dict[str, Any]) -> int:
        """Run a statement of a tool and return how many rows it changed. Raises sqlite3.Error and TooSlowError."""
        before = self._connection.total_changes
        self._run("tool", sql, values, None)
        return self._connection.total_changes - before

    def either(self, sql: str, values: dict[str, Any]) -> list[dict[str, Any]]:
        """Run a statement of a tool; rows as mappings. Raises sqlite3.Error and TooSlowError."""
        return self._run("tool", sql, values, None)

    def plant(self, sql: str) -> None:
        """Run a statement of the seed. Raises sqlite3.Error and TooSlowError."""
        self._run("seed", sql, {}, None)

    def explain(self, mode: Mode, sql: str, values: dict[str, Any]) -> None:
        """Have a statement compiled and not run. Raises sqlite3.Error."""
        self._run(mode, f"explain {sql}", values, None)

    def _run(self, mode: Mode, sql: str, values: dict[str, Any], most: int | None) -> list[dict[str, Any]]:
        most = self._rows if most is None else most
        self._mode = mode
        try:
            cursor = self._connection.execute(sql, values)
            rows = cursor.fetchmany(most + 1)
            cursor.close()
        except sqlite3.OperationalError as error:
            if str(error) == "interrupted":
                msg = "it took too long"
                raise TooSlowError(msg) from None
            raise
        finally:
            self._mode = "own"
        if len(rows) > most and not sql.startswith("explain "):
            msg = f"more than {most} rows came back"
            raise sqlite3.DataError(msg)
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _is_late(self) -> int:
        return self._mode != "own" and time.monotonic() > self._deadline

    def _authorize(self, action: int, first: str | None, second: str | None, _name: str | None, _by: str | None) -> int:
        if self._mode == "own" or _is_allowed(self._mode, action, (first or "").lower(), (second or "").lower()):
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_DENY

    def _override(self) -> None:
        """Make everything that differs from one run to the next follow the seed and the world's clock."""
        chance = self.random
        self._connection.create_function("random", 0, lambda: chance.getrandbits(64) - (1 << 63))
        if self.now is None:
            return
        plain = sqlite3.connect(":memory:", isolation_level=None)
        plain.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LENGTH)
        for name in _ZERO_NOW:
            self._connection.create_function(name, -1, _at(plain, name, self.now, 0), deterministic=True)
        self._connection.create_function("strftime", -1, _at(plain, "strftime", self.now, 1), deterministic=True)
        if sqlite3.sqlite_version_info >= (3, 43):
            self._connection.create_function("timediff", 2, _at(plain, "timediff", self.now, 2), deterministic=True)
        for name, base in _CURRENT.items():
            self._connection.create_function(name, 0, _at(plain, base, self.now, 0), deterministic=True)


def _at(plain: sqlite3.Connection, name: str, now: str, fixed: int) -> Callable[..., Any]:
    """Return a function of SQLite about times, for which it is always ``now``. ``fixed``: arguments before the time."""

    def run(*values: Any) -> Any:
        told = [now if isinstance(each, str) and each.strip().lower() == "now" else each for each in values]
        if len(told) == fixed and name != "timediff":
            told.append(now)
        marks = ", ".join("?" * len(told))
        return plain.execute(f"select {name}({marks})", told).fetchone()[0]

    return run


def _is_allowed(mode: Mode, action: int, first: str, second: str) -> bool:
    if action == sqlite3.SQLITE_FUNCTION:
        return second not in _FORBIDDEN
    if action == sqlite3.SQLITE_READ:
        return not first.startswith("pragma_")
    if action in _READING:
        return True
    if mode == "read":
        return False
    if action in _WRITING:
        is_schema = first.startswith("sqlite_")
        return first not in OWN_TABLES and (mode == "seed" or not is_schema)
    return mode == "seed" and action in _MAKING and first not in OWN_TABLES
