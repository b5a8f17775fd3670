"""Names of hosts that a task may reach, in one canonical form, and the rules that say which.

A rule is ``HOST``, ``*.HOST`` (every name below, not the name itself) or ``*`` (every host), with ``:PORT`` or ``:*``; without a port it
means 443. Names are compared in lower case, in their ASCII form, without a dot at the end.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_ANY = "*"
HTTPS = 443


@dataclass(frozen=True)
class HostRule:
    """One entry of an allowlist. ``host`` is canonical; ``below`` means the names below it; ``port`` is None for every port."""

    host: str
    below: bool
    port: int | None

    @classmethod
    def parse(cls, text: str) -> HostRule:
        """Return a rule. Raises ValueError that says what is wrong."""
        host, port = _split(text)
        if host == _ANY:
            return cls("", below=True, port=port)
        below = host.startswith("*.")
        return cls(canonical_host(host.removeprefix("*.") if below else host), below=below, port=port)

    def allows(self, host: str, port: int) -> bool:
        """Return whether a canonical host and port are meant."""
        if self.port is not None and port != self.port:
            return False
        if not self.below:
            return host == self.host
        return not self.host or host.endswith(f".{self.host}")


def _rule(text: str) -> str:
    HostRule.parse(text)
    return text


HostRuleText = Annotated[str, AfterValidator(_rule)]
"""A rule as it is written, checked."""


def allows(rules: Iterable[HostRule], host: str, port: int) -> bool:
    """Return whether one of the rules allows a canonical host and port."""
    return any(rule.allows(host, port) for rule in rules)


def canonical_host(text: str) -> str:
    """Return a host name or address in its one form. Raises ValueError.

    Numbers that some resolvers read as addresses (``127.1``, ``0x7f000001``, ``2130706433``) are refused, so an address has one spelling.
    """
    plain = text.removeprefix("[").removesuffix("]") if text.startswith("[") else text
    if is_address(plain):
        return str(ipaddress.ip_address(plain))
    try:
        name = plain.encode("idna").decode("ascii").lower().removesuffix(".")
    except UnicodeError:
        msg = f"{text!r} is no host name"
        raise ValueError(msg) from None
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        msg = f"{text!r} is no host name"
        raise ValueError(msg)
    if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", labels[-1]):
        msg = f"{text!r} ends like an address and is none; write addresses in full"
        raise ValueError(msg)
    return name


def authority(text: str) -> tuple[str, int]:
    """Return canonical host and port of ``HOST:PORT``, as a CONNECT request names them. Raises ValueError."""
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]{2,45}\]|[^\s:/@\[\]]{1,255}):([0-9]{1,5})", text)
    if match is None or not 0 < int(match[2]) < 65536:
        msg = f"{text[:300]!r} is not HOST:PORT"
        raise ValueError(msg)
    return canonical_host(match[1]), int(match[2])


def is_address(host: str) -> bool:
    """Return whether a host is an IP address."""
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _split(text: str) -> tuple[str, int | None]:
    if text.startswith("["):
        host, bracket, rest = text.partition("]")
        host, colon, port = host + bracket, rest[:1], rest[1:]
    elif text.count(":") > 1:
        return text, HTTPS
    else:
        host, colon, port = text.partition(":")
    if not colon:
        return host, HTTPS
    if port == _ANY:
        return host, None
    if not port.isdigit() or not 0 < int(port) < 65536:
        msg = f"{port!r} is no port; write HOST, HOST:PORT or HOST:*"
        raise ValueError(msg)
    return host, int(port)
