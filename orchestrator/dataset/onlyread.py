"""Which SQL may run: one statement that reads, by the parser's own tree and not by its words.

A statement that begins with SELECT can write: DuckDB takes COPY, INSERT, UPDATE and DELETE in a WITH clause, and there are
functions that run the SQL they are given. So everything that a query is built of is on a list here, and what is not on it
is refused. Scalar functions are not listed: they reach no file and run no SQL.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from orchestrator.errors import SpecError

if TYPE_CHECKING:
    import duckdb

SHAPES = frozenset(
    {
        "SELECT_NODE",
        "SET_OPERATION_NODE",
        "CTE_NODE",
        "RECURSIVE_CTE_NODE",
        "BASE_TABLE",
        "SUBQUERY",
        "JOIN",
        "PIVOT",
        "EMPTY",
        "EXPRESSION_LIST",
        "SHOW_REF",
        "TABLE_FUNCTION",
        "DISTINCT_MODIFIER",
        "LIMIT_MODIFIER",
        "LIMIT_PERCENT_MODIFIER",
        "ORDER_MODIFIER",
        "ORDER_DEFAULT",
        "ASCENDING",
        "DESCENDING",
    }
)
"""Nodes of the tree that are no expressions: queries, what they read from, and how they are ordered and cut."""
TABLE_FUNCTIONS = frozenset({"unnest", "range", "generate_series"})
"""Functions that may stand where a table stands."""


def refuse_all_but_reading(connection: duckdb.DuckDBPyConnection, sql: str) -> frozenset[str] | None:
    """Return the names that a statement reads from, in lower case; None: it may be any. Nothing is run.

    Raises SpecError for anything but one statement that reads: SELECT, WITH, VALUES, DESCRIBE, SUMMARIZE, SHOW.
    """
    (text,) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone() or ("{}",)
    tree = json.loads(text)
    if tree.get("error", True):
        message = str(tree.get("error_message", "it cannot be parsed"))
        raise SpecError(f"SQL: {message}" if tree.get("error_type") == "parser" else _refusal("this is none"))
    if len(tree["statements"]) != 1:
        raise SpecError(_refusal(f"there are {len(tree['statements'])} statements"))
    names: set[str] = set()
    listing = False
    for node in _nodes(tree):
        kind = node.get("type")
        if not isinstance(kind, str) or "class" in node:
            continue
        if kind not in SHAPES:
            raise SpecError(_refusal(f"there is {kind.removesuffix('_QUERY_NODE').replace('_', ' ')} in it"))
        listing = listing or kind == "SHOW_REF"
        if kind == "BASE_TABLE":
            names.add(str(node.get("table_name")).lower())
        if kind == "TABLE_FUNCTION":
            name = str(node.get("function", {}).get("function_name"))
            if name.lower() not in TABLE_FUNCTIONS:
                known = ", ".join(sorted(TABLE_FUNCTIONS))
                raise SpecError(_refusal(f"the table function {name!r} is none of {known}"))
    return None if listing else frozenset(names)


def _refusal(what: str) -> str:
    return f"a query is one SELECT (or WITH, VALUES, DESCRIBE, SUMMARIZE): it reads the dataset and changes nothing; {what}"


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            yield each
            pending += each.values()
        elif isinstance(each, list):
            pending += each
