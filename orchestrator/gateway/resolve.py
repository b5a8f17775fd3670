"""Names of services to addresses, for pods that have no DNS."""

from __future__ import annotations

import asyncio
import socket


async def resolve(target: str) -> str:
    """Return ``IP:PORT`` of ``HOST:PORT``, IPv4 where there is one. Raises OSError."""
    host, _, port = target.rpartition(":")
    found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return f"[{address[0]}]:{port}" if family == socket.AF_INET6 else f"{address[0]}:{port}"
