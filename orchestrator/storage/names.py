"""What a store key may look like, the same for every kind of store."""

from __future__ import annotations

from orchestrator.errors import StoreError

_PART_BYTES = 255


def check_key(key: str) -> None:
    """Raise StoreError unless the key is relative, without empty, dotted, unprintable or overlong parts."""
    for part in key.split("/"):
        fault = _fault(part)
        if fault is not None:
            msg = f"{key[:200]!r} cannot be a store key: it {fault}"
            raise StoreError(msg, cause="store_key")


def check_prefix(prefix: str) -> None:
    """Raise StoreError unless keys can begin with the prefix."""
    if prefix.strip("/"):
        check_key(prefix.rstrip("/"))


def _fault(part: str) -> str | None:
    if not part:
        return "has an empty part"
    if part.startswith("."):
        return f"has the part {part!r}, which begins with a dot"
    if any(ord(char) < 32 for char in part) or "\\" in part:
        return f"has the part {part!r} with a control character or a backslash"
    try:
        size = len(part.encode())
    except UnicodeEncodeError:
        return "is not UTF-8 text"
    return f"has a part of {size} bytes; {_PART_BYTES} are possible" if size > _PART_BYTES else None
