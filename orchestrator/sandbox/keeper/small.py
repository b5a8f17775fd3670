"""JSON and SHA-256 from the C parts of the standard library, without the packages around them. Standard library only.

``import json, hashlib`` takes a third of the keeper's start-up time; what the keeper needs of them is in ``_json`` and ``_hashlib``.
"""

from __future__ import annotations

import _json

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Sha256(Protocol):
        """What is used of a running digest."""

        def update(self, data: bytes | memoryview, /) -> None:
            """Take more bytes."""

        def hexdigest(self) -> str:
            """Return the digest so far, in hex."""
            ...


class _Rules:
    """Attributes that the C scanner reads."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str] = {}


def new_sha256() -> Sha256:
    """Return a new SHA-256: OpenSSL's, which uses the processor's own instructions, or Python's where there is none."""
    try:
        from _hashlib import openssl_sha256
    except ImportError:
        from hashlib import sha256

        return sha256()
    return openssl_sha256()


def read_json(text: str) -> Any:
    """Return the value of one JSON text without leading space. Raises ValueError."""
    try:
        value, _end = _json.make_scanner(_Rules)(text, 0)  # type: ignore[arg-type]  # any object with these attributes will do
    except StopIteration:
        msg = f"not JSON: {text[:100]!r}"
        raise ValueError(msg) from None
    return value


def write_json(value: object) -> str:
    """Return the JSON text of plain values, ASCII only, keys in their order."""
    encoder = _json.make_encoder(None, _refuse, _json.encode_basestring_ascii, None, ":", ",", False, False, False)
    return "".join(encoder(value, 0))


def json_text(text: str) -> str:
    """Return a string as JSON, not escaped beyond need: the form of ``canonical_json``."""
    return _json.encode_basestring(text)


def _refuse(value: object) -> object:
    msg = f"{type(value).__name__} has no JSON form"
    raise TypeError(msg)
