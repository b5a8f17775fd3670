"""Role tokens: bound to launch, role, generation and expiry by a key that never leaves the gateway."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from dataclasses import dataclass
from typing import Literal, get_args

Role = Literal["agent", "prepare", "freezer"]
_ROLES: dict[str, Role] = {role: role for role in get_args(Role)}
_FORM = re.compile(rf"orc-({'|'.join(_ROLES)})-([0-9a-f]{{24}})-([0-9]{{1,9}})-([0-9]{{1,12}})-([0-9a-f]{{64}})")


@dataclass(frozen=True)
class Claim:
    """What a valid token says."""

    role: Role
    launch: str
    generation: int
    """Counts the registrations of the launch: only the tokens of the last one are good."""


class TokenMint:
    """Makes and checks tokens."""

    def __init__(self, key: bytes | None = None) -> None:
        """``key``: that of an earlier process, whose tokens stay good; None: a fresh one."""
        self._key = key or secrets.token_bytes(32)
        self.name = hashlib.sha256(b"orchestrate/instance/v1\0" + self._key).hexdigest()[:16]
        """A name for whoever has this key, which tells nothing about it."""

    def make(self, role: Role, launch: str, generation: int, expires: int) -> str:
        """Return the token for one role of one launch, good until ``expires`` (seconds since 1970). Equal claims are equal tokens."""
        body = f"orc-{role}-{launch}-{generation}-{expires}"
        return f"{body}-{self._sign(body)}"

    def read(self, token: str) -> Claim | None:
        """Return what the token says, or None when it was not made here or is too old."""
        match = _FORM.fullmatch(token) if len(token) < 256 else None
        if match is None or not hmac.compare_digest(self._sign(token.rpartition("-")[0]), match[5]):
            return None
        if int(match[4]) < time.time():
            return None
        return Claim(_ROLES[match[1]], match[2], int(match[3]))

    def _sign(self, body: str) -> str:
        return hmac.new(self._key, body.encode(), hashlib.sha256).hexdigest()


def claimed_role(token: str) -> Role | None:
    """Return the role that a token claims, unproven: it spares whoever cannot check it a question. None: it is no token of ours."""
    match = _FORM.fullmatch(token) if len(token) < 256 else None
    return None if match is None else _ROLES[match[1]]


def bearer(authorization: str | None, api_key: str | None = None) -> str:
    """Return the token of an ``Authorization: Bearer`` or ``x-api-key`` header; empty when there is none."""
    if authorization and authorization[:7].lower() == "bearer ":
        return authorization[7:].strip()
    return (api_key or "").strip()
