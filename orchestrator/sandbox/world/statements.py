"""The statements of a file of SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator


def statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the statements of a file, each with the line in which it begins."""
    held, begin = "", 1
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if not held.strip():
            held, begin = "", number
        held += line
        if ";" in line and sqlite3.complete_statement(held):
            yield begin, held
            held = ""
    if _says_something(held):
        yield begin, held


def _says_something(text: str) -> bool:
    return any(line.strip() and not line.strip().startswith("--") for line in text.splitlines())
