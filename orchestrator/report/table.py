"""Tables from one set of rows: coloured and fitted on a terminal, plain and whole in a pipe. Nothing in a cell is ever read as markup."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column."""

    title: str
    right: bool = False
    """Numbers stand at the right."""
    flexible: bool = False
    """Cut first when the terminal is narrow. Nothing is cut in a pipe."""


@dataclass(frozen=True)
class Cell:
    """Text and how it looks on a terminal."""

    text: str
    style: str = ""


GAP = "  "
"""Between columns."""
NARROWEST = 12
"""Cells that a flexible column keeps."""
Row = Sequence[Cell | str]


def say(console: Console, text: str = "", style: str = "") -> None:
    """Print one line. A long one goes on under its own indent on a terminal and stays whole in a pipe."""
    lines = [text]
    if console.is_terminal and cell_len(text) > console.width:
        # A quoted line keeps its bar, so that what follows a break cannot be taken for ours either.
        indent = re.match(r" *(?:│ )?", text)[0]  # type: ignore[index]  # it matches the empty text too
        lines = textwrap.wrap(text, max(20, console.width), subsequent_indent=indent, break_on_hyphens=False)
    for line in lines:
        console.print(Text(line, style=style), soft_wrap=True, highlight=False)


def flow(console: Console, pieces: Sequence[str], *, indent: str = "", style: str = "") -> None:
    """Print pieces one after the other and start a new line only between pieces."""
    gap, line = "   ", ""
    for piece in pieces:
        if line and cell_len(indent + line + gap + piece) > console.width:
            say(console, indent + line, style)
            line = ""
        line = f"{line}{gap}{piece}" if line else piece
    if line:
        say(console, indent + line, style)


def show_table(console: Console, columns: Sequence[Column], rows: Sequence[Row], indent: int = 2) -> None:
    """Print rows under their titles."""
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    widths = [
        max(cell_len(text) for text in (column.title, *(row[place].text for row in cells)))
        for place, column in enumerate(columns)
    ]
    if console.is_terminal:
        widths = _shrink(columns, widths, console.width - indent)
    for row in ([Cell(column.title, "dim") for column in columns], *cells):
        line = Text(" " * indent)
        for place, (column, width, cell) in enumerate(zip(columns, widths, row, strict=True)):
            line.append(GAP if place else "")
            line.append(_fit(cell.text, width, right=column.right), cell.style)
        line.rstrip()
        console.print(line, soft_wrap=True, highlight=False)


def _shrink(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """Take what is too much from the flexible columns, the last one first, down to a width that still says something."""
    found = list(widths)
    while sum(found) + len(GAP) * (len(found) - 1) > room:
        flexible = [place for place, column in enumerate(columns) if column.flexible and found[place] > NARROWEST]
        if not flexible:
            break
        found[flexible[-1]] -= 1
    return found


def _fit(text: str, width: int, *, right: bool) -> str:
    shown = set_cell_size(text, width - 1) + "…" if cell_len(text) > width else text
    space = " " * (width - cell_len(shown))
    return space + shown if right else shown + space
