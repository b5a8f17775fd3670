"""What trials wait for: one line each, told as it changes, and counted for a person."""

from __future__ import annotations

from collections.abc import Mapping

_WHY_CHARS = 300


def unheard(why: str) -> None:
    """Take what nobody wants to hear."""


def waiting(reasons: Mapping[str, int], most: int = 3) -> str:
    """Return how many trials wait for what, the most frequent reason first: ``7 trials wait: …; 1 trial waits: …``; empty: none does.

    Every character can be seen, whoever has made the reasons.
    """
    every = sorted(reasons.items(), key=lambda each: (-each[1], each[0]))
    said = [f"{count:,} {'trial waits' if count == 1 else 'trials wait'}: {_seen(why)}" for why, count in every[:most]]
    return "; ".join(said) + (f"; and {len(every) - most} more reasons" if len(every) > most else "")


def _seen(why: str) -> str:
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in why[:_WHY_CHARS])
