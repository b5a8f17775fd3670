"""The commands."""

import json
import sys

from .reader import FormatError
from .table import NoColumn, Table

USAGE = "usage: tabtool columns|select NAMES|total NAME|json FILE"


def load(name):
    """Return the table of a file, ``-`` for the standard input."""
    if name == "-":
        return Table.parse(sys.stdin.buffer.read().decode("utf-8"))
    with open(name, encoding="utf-8", newline="") as file:
        return Table.parse(file.read())


def show(command, names, table):
    """Return the lines that a command prints."""
    if command == "columns":
        return table.columns
    if command == "json":
        return [json.dumps(dict(zip(table.columns, row)), ensure_ascii=False) for row in table.rows]
    chosen = [table.column(name) for name in names]
    if command == "total":
        return [str(sum(int(value) for value in chosen[0]))]
    return ["\t".join(values) for values in zip(*chosen)]


def main(arguments):
    """Return the exit code."""
    wanted = {"columns": 2, "json": 2, "select": 3, "total": 3}
    if not arguments or wanted.get(arguments[0]) != len(arguments):
        print(USAGE, file=sys.stderr)
        return 2
    try:
        table = load(arguments[-1])
        lines = show(arguments[0], arguments[1].split(",") if len(arguments) == 3 else [], table)
    except FormatError as error:
        print(f"tabtool: {arguments[-1]}: {error}", file=sys.stderr)
        return 2
    except NoColumn as error:
        print(f"tabtool: no column {error.args[0]!r}", file=sys.stderr)
        return 2
    for line in lines:
        print(line)
    return 0
