"""Long lists in parts. A token is a place in the list; it means the same as long as the list does not change."""

from __future__ import annotations

import re
from typing import Any

from orchestrator.sandbox.world.functions import CallError

_FAR = 10**9


def offset(token: Any) -> int:
    """Return the place that a token names; 0 without one. Raises CallError."""
    if token is None:
        return 0
    found = re.fullmatch(r"page-([0-9]{1,9})", token) if isinstance(token, str) else None
    if found is None:
        raise CallError("invalid_page_token", "page_token must be a next_page_token that this tool gave", 400)
    return int(found[1])


def cut(sql: str, begin: int, size: int) -> str:
    """Return a statement for one page and one row more."""
    return f"select * from ({sql.rstrip().rstrip(';')}\n) limit {size + 1} offset {min(begin, _FAR)}"  # noqa: S608 - the author's statement


def next_token(rows: int, begin: int, size: int) -> str | None:
    """Return the token of the next page; None when this was the last."""
    return f"page-{begin + size}" if rows > size else None
