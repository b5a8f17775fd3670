"""Patterns over relative paths: ``*`` stays within one folder, ``**`` as a whole part crosses folders, ``?`` is one character.

Everything else stands for itself, brackets included. Standard library only and without ``re``: programs that start once per launch load it,
and the time stays proportional to pattern times path even for a hostile path.
"""

from __future__ import annotations


def matches(pattern: str, path: str) -> bool:
    """Return whether the whole path fits the pattern.

    ``a/**`` fits everything below ``a`` but not ``a`` itself; ``**/x`` fits ``x`` at any depth, the top included; ``a/**/b`` fits ``a/b``.
    """
    return _parts_match([part for part in pattern.split("/") if part], path.split("/"))


def matches_any(patterns: tuple[str, ...] | list[str], path: str) -> bool:
    """Return whether the path fits at least one of the patterns."""
    return any(matches(pattern, path) for pattern in patterns)


def covers_folder(pattern: str, folder: str) -> bool:
    """Return whether the pattern fits everything that can be below the folder, so that nobody has to look into it."""
    return pattern == "**" or (pattern.endswith("/**") and matches(pattern[:-3], folder))


def _parts_match(pattern: list[str], parts: list[str]) -> bool:
    at = here = 0
    star, resume = -1, 0
    while here < len(parts):
        if at < len(pattern) and pattern[at] == "**":
            if at == len(pattern) - 1:
                return True
            star, resume = at, here
            at += 1
        elif at < len(pattern) and _part_matches(pattern[at], parts[here]):
            at += 1
            here += 1
        elif star >= 0:
            resume += 1
            at, here = star + 1, resume
        else:
            return False
    return at == len(pattern)


def _part_matches(pattern: str, text: str) -> bool:
    at = here = 0
    star, resume = -1, 0
    while here < len(text):
        if at < len(pattern) and pattern[at] == "*":
            star, resume = at, here
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", text[here]):
            at += 1
            here += 1
        elif star >= 0:
            resume += 1
            at, here = star + 1, resume
        else:
            return False
    return all(character == "*" for character in pattern[at:])
