"""Role tokens: bound to launch, role, generation and expiry by a key that is made here and never leaves the process."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from dataclasses import dataclass
from typing import Literal

Role = Literal["agent", "freezer"]
_FORM = re.compile(r"orc-(agent|freezer)-([0-9a-f]{24})-([0-9]{1,9})-([0-9]{1,12})-([0-9a-f]{64})")


@dataclass(frozen=True)
class Claim:
    """What a valid token says."""

    role: Role
    launch: str
    generation: int
    """Counts the registrations of the launch: only the tokens of the last one are good."""


class TokenMint:
    """Makes and checks tokens."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def make(self, role: Role, launch: str, generation: int, lifetime_s: float) -> str:
        """Return a token for one role of one launch that is good for ``lifetime_s`` seconds."""
        body = f"orc-{role}-{launch}-{generation}-{int(time.time() + lifetime_s) + 1}"
        return f"{body}-{self._sign(body)}"

    def read(self, token: str) -> Claim | None:
        """Return what the token says, or None when it was not made here or is too old."""
        match = _FORM.fullmatch(token) if len(token) < 256 else None
        if match is None or not hmac.compare_digest(self._sign(token.rpartition("-")[0]), match[5]):
            return None
        if int(match[4]) < time.time():
            return None
        role: Role = "agent" if match[1] == "agent" else "freezer"
        return Claim(role, match[2], int(match[3]))

    def _sign(self, body: str) -> str:
        return hmac.new(self._key, body.encode(), hashlib.sha256).hexdigest()


def bearer(authorization: str | None, api_key: str | None = None) -> str:
    """Return the token of an ``Authorization: Bearer`` or ``x-api-key`` header; empty when there is none."""
    if authorization and authorization[:7].lower() == "bearer ":
        return authorization[7:].strip()
    return (api_key or "").strip()
