"""Adds numbers."""


def add(a: int, b: int) -> int:
    """Return the sum."""
    return a - b
