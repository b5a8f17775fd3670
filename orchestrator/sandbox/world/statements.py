"""SQL files as their statements: each can be tried, and blamed, alone."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator

_TOKEN = re.compile(
    r"'[^']*(?:'|\Z)|\"[^\"]*(?:\"|\Z)|`[^`]*(?:`|\Z)|\[[^\]]*(?:\]|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)|;", re.DOTALL
)
"""What may hold a semicolon that ends nothing, and a semicolon."""
_COMMENT = re.compile(r"--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)


def statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the statements of a file, each with the line in which it begins, comments before it included."""
    begin, line = 0, 1
    for end in _ends(text):
        held = text[begin:end]
        if _COMMENT.sub("", held).strip():
            blank = len(held) - len(held.lstrip())
            yield line + held.count("\n", 0, blank), held
        begin, line = end, line + held.count("\n")


def _ends(text: str) -> Iterator[int]:
    begin = 0
    for token in _TOKEN.finditer(text):
        # A semicolon within a trigger ends no statement yet.
        if token[0] == ";" and sqlite3.complete_statement(text[begin : token.end()]):
            begin = token.end()
            yield begin
    yield len(text)
