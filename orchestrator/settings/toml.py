"""Lines and columns of a TOML file."""

from __future__ import annotations

import re

from orchestrator.settings.collected import Where

_HEADER = re.compile(r"\s*\[{1,2}\s*(.*?)\s*\]{1,2}\s*(#.*)?")
_ASSIGNMENT = re.compile(
    r"""(\s*)((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


def toml_lines(text: str) -> dict[Where, tuple[int, int]]:
    """Return line and column of each table and key; tomllib keeps none.

    Keys within inline tables have their table's.
    """
    lines: dict[Where, tuple[int, int]] = {}
    table: Where = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.fullmatch(line)
        assignment = None if header else _ASSIGNMENT.match(line)
        if header:
            table = tuple(part.strip("\"'") for part in _KEY.findall(header[1]))
            path, column = table, line.index("[") + 1
        elif assignment:
            path = (*table, *(part.strip("\"'") for part in _KEY.findall(assignment[2])))
            column = len(assignment[1]) + 1
        else:
            continue
        for end in range(1, len(path) + 1):
            lines.setdefault(path[:end], (number, column))
    return lines
