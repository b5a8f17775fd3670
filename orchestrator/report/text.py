"""Foreign text made harmless to look at: what an agent wrote must not move the cursor, hide, or pretend to be ours."""

from __future__ import annotations

import re
from collections.abc import Iterable

LINE_CHARS = 400
"""Longest line of foreign text, in characters."""

_UNSEEN = re.compile(r"[^\x20-\x7e]")


def _visible(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x100:
        return {"\t": "    ", "\n": "\\n", "\r": "\\r"}.get(character, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def clean(text: str, limit: int = LINE_CHARS) -> str:
    """Return one line in which every character can be seen.

    Control characters (ANSI escapes among them), bidirectional overrides, zero-width characters, line separators and
    lone surrogates become escapes; what is longer than ``limit`` characters is cut and says how much is gone.
    """
    more = len(text) - limit
    shown = _UNSEEN.sub(_visible, text[:limit])
    return f"{shown}… ({more:,} more characters)" if more > 0 else shown


def clean_lines(text: str, limit: int = LINE_CHARS) -> list[str]:
    """Return foreign text line by line, each made visible. Only a newline ends a line."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [clean(line.removesuffix("\r"), limit) for line in lines]


NONE = "-"
"""There is no such number."""


def percent(value: float | None) -> str:
    """Return a share as people read it; a dash when there is none."""
    return NONE if value is None else f"{100 * value:.1f}%"


def named(items: Iterable[object], most: int = 3) -> str:
    """Return the first items and how many more there are."""
    every = [clean(str(item), 120) for item in items]
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def plural(count: int, word: str) -> str:
    """Return ``1 trial``, ``2 trials``."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def duration(seconds: float) -> str:
    """Return a time that is only guessed, in one unit: ``75 s``, ``4 min``, ``2.5 h``; never less than a second."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def bytes_text(count: int) -> str:
    """Return a number of bytes for people, by thousands: ``999 B``, ``1.2 MB``."""
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.0f} {units[0]}" if units[0] == "B" or value >= 99.95 else f"{value:.1f} {units[0]}"
