"""Tries a world before anything runs: the seed, every statement of the tools, the file of functions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from orchestrator.sandbox.world import pages
from orchestrator.sandbox.world.calls import READY_ARGUMENTS, TABLES
from orchestrator.sandbox.world.database import Database, Mode, TooSlowError
from orchestrator.sandbox.world.functions import BrokenError, load
from orchestrator.sandbox.world.statements import statements

_SEED_SECONDS = 60.0


class SeedError(Exception):
    """A statement of the seed cannot be run."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        """Of the file, from 1, in which the statement begins."""


def sow(database: Database, seed: str) -> None:
    """Make the tables of the world, its own and the seed's, and their rows. Raises SeedError."""
    database.own("begin immediate")
    for _, statement in statements(TABLES):
        database.own(statement)
    database.give(_SEED_SECONDS)
    for line, statement in statements(seed):
        try:
            database.plant(statement)
        except (sqlite3.Error, TooSlowError, ValueError) as error:
            raise SeedError(line, str(error)) from error
    database.own("commit")


def problems(database: Database, world: dict[str, Any], source: str | None) -> list[dict[str, Any]]:
    """Return what is wrong with the tools over a sown database, each with its place in ``tools.yaml``, or with ``tools.py``."""
    database.give(_SEED_SECONDS)
    found = [
        problem for place, mode, sql, names in _all(world) if (problem := _tried(database, place, mode, sql, names))
    ]
    if source is not None:
        try:
            load(source, "tools.py")
        except BrokenError as error:
            found.append({"file": "tools.py", "path": [], "message": str(error)})
    return found


def _tried(database: Database, place: list[Any], mode: Mode, sql: str, names: list[str]) -> dict[str, Any] | None:
    try:
        database.explain(mode, sql, dict.fromkeys([*names, "now", "call"]))
    except (sqlite3.Error, sqlite3.Warning, TooSlowError) as error:
        return {"file": "tools.yaml", "path": place, "message": _words(str(error), mode)}
    return None


def _words(message: str, mode: Mode) -> str:
    if message == "not authorized":
        return (
            "this may only read: a SELECT, and of no settings"
            if mode == "read"
            else "this may only read and change rows, and not those of _calls, _outbox, _approvals"
        )
    return f"the database does not take it: {message}"


def _all(world: dict[str, Any]) -> Iterator[tuple[list[Any], Mode, str, list[str]]]:
    """Yield every statement with its place, who says it, and the names that it may use."""
    by_name = {}
    for group in ("tools", "outbox"):
        for index, tool in enumerate(world[group]):
            names = list(
                READY_ARGUMENTS[tool["name"]] if group == "outbox" else tool["arguments"].get("properties", {})
            )
            by_name[tool["name"]] = names
            yield from ((place, mode, sql, names) for place, mode, sql in _of_tool([group, index], tool))
    for index, rule in enumerate(world["approvals"]):
        if rule["when"] is not None:
            yield ["approvals", index, "when"], "read", rule["when"], by_name[rule["tool"]]


def _of_tool(place: list[Any], tool: dict[str, Any]) -> Iterator[tuple[list[Any], Mode, str]]:
    for number, condition in enumerate(tool["requires"]):
        yield [*place, "requires", number, "sql"], "read", condition["sql"]
    if isinstance(tool["requires_approval"], dict):
        yield [*place, "requires_approval", "when"], "read", tool["requires_approval"]["when"]
    for number, statement in enumerate(tool.get("sql", ())):
        yield [*place, "sql", number], "tool", statement
    for name, part in (tool.get("result") or {}).items():
        for kind in ("row", "rows", "value"):
            if part[kind] is not None:
                paged = tool["page"] is not None and tool["page"]["of"] == name
                yield [*place, "result", name, kind], "read", pages.cut(part[kind], 0, 1) if paged else part[kind]
