"""What makes two calls of a tool the same: its name, and the canonical JSON (RFC 8785) of the arguments that make a difference."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import rfc8785

_MOST_EXACT = 2**53 - 1
"""The largest whole number that JSON gives every program alike."""

Masks = Sequence[tuple[str, ...]]
"""Where values are that make no difference; ``*`` is every name or every entry of a list."""


def masks_of(paths: Sequence[str]) -> Masks:
    """Return paths such as ``items.*.sent_at`` in parts."""
    return [tuple(path.split(".")) for path in paths]


def masked(value: Any, masks: Masks) -> Any:
    """Return a JSON value without what is masked. An entry of a list leaves null, so that those after it keep their places."""
    if not masks:
        return value
    if isinstance(value, dict):
        inner = {name: _below(masks, name) for name in value}
        return {name: masked(each, inner[name]) for name, each in value.items() if () not in inner[name]}
    if isinstance(value, list):
        below = [_below(masks, str(index)) for index in range(len(value))]
        return [None if () in within else masked(each, within) for each, within in zip(value, below, strict=True)]
    return value


def redacted(value: Any, masks: Masks, put: str) -> Any:
    """Return a JSON value with a text in the place of what is masked."""
    if () in masks:
        return put
    if isinstance(value, dict):
        return {name: redacted(each, _below(masks, name), put) for name, each in value.items()}
    if isinstance(value, list):
        return [redacted(each, _below(masks, str(index)), put) for index, each in enumerate(value)]
    return value


def _below(masks: Masks, name: str) -> Masks:
    return [mask[1:] for mask in masks if mask and mask[0] in {name, "*"}]


def canonical(value: Any) -> bytes:
    """Return the one text of a JSON value. Raises ValueError for what has none: no number, half a character.

    Whole numbers beyond those that are exact everywhere are told apart digit by digit, where RFC 8785 would take them for one.
    """
    return rfc8785.dumps(_exact(value))


def _exact(value: Any) -> Any:
    if isinstance(value, int) and abs(value) > _MOST_EXACT:
        return f"\0{value}"
    if isinstance(value, dict):
        return {name: _exact(each) for name, each in value.items()}
    return [_exact(each) for each in value] if isinstance(value, list) else value


def call_key(tool: str, arguments: Any, masks: Masks) -> str:
    """Return what equal calls have in common, as 64 hex digits. Raises ValueError."""
    return hashlib.sha256(tool.encode() + b"\0" + canonical(masked(arguments, masks))).hexdigest()


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the place and the canonical text of every single value. Raises ValueError."""
    inner: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        inner = [(f"{path}.{name}" if path else name, each) for name, each in value.items()]
    elif isinstance(value, list):
        inner = [(f"{path}[{index}]", each) for index, each in enumerate(value)]
    if not inner:
        yield path, canonical(value).decode()
    for place, each in inner:
        yield from leaves(each, place)
