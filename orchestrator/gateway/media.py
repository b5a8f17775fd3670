"""Images and files that a request names by an address: the provider would fetch them, so the address is a way out of the sandbox.

What the address says leaves with it. So it is held to the same rule as a connection of the agent's own: the task must list the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from orchestrator.gateway.findings import printable
from orchestrator.gateway.refusal import Refusal
from orchestrator.spec.hosts import HostRule, allows, canonical_host

_MEDIA = frozenset(
    {
        *("image_url", "video_url", "audio_url", "file_url", "file", "image", "document", "url"),
        *("input_image", "input_file", "input_audio", "input_video", "computer_screenshot", "input_screenshot"),
    }
)
"""Type words of parts that hold an image or a file; ``url`` is that of a source of the Messages API. Citations are none of them."""
_NAMED = ("image_url", "video_url", "audio_url", "file_url")
"""Keys that name an address in a part of any type."""
_KEYS = (*_NAMED, "url", "file_data", "data")
_PORTS = {"https": 443, "http": 80}


def check_media(items: Sequence[Mapping[str, Any]], rules: Iterable[HostRule]) -> None:
    """Refuse a conversation that names an image or file at a host which the task does not list. Raises Refusal with a finding."""
    rules = tuple(rules)
    for address in _addresses(items):
        host, allowed = _judged(address, rules)
        if not allowed:
            msg = (
                f"an image or file at {printable(host, 200)} would be fetched by the provider, which is a way out of the sandbox that "
                "this task does not list (environment.network); send its bytes (base64) instead"
            )
            raise Refusal(403, "remote_media", msg, finding=True)


def _judged(address: str, rules: tuple[HostRule, ...]) -> tuple[str, bool]:
    """Return what to call the address, and whether it may be fetched."""
    try:
        parts = urlsplit(address.strip())
        port = parts.port or _PORTS.get(parts.scheme.lower())
        host = canonical_host(parts.hostname or "")
    except ValueError:
        return address, False
    return host, port is not None and parts.scheme.lower() in _PORTS and allows(rules, host, port)


def _addresses(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield every address of a part; bytes that came along (``data:``, plain base64) are none."""
    left: list[Any] = list(items)
    while left:
        value = left.pop()
        if isinstance(value, list):
            left.extend(value)
        elif isinstance(value, Mapping):
            left.extend(each for each in value.values() if isinstance(each, list | Mapping))
            yield from _of_part(value)


def _of_part(part: Mapping[str, Any]) -> Iterator[str]:
    kind = part.get("type")
    for key in _KEYS if isinstance(kind, str) and kind in _MEDIA else _NAMED:
        value = part.get(key)
        inner = value.get("url") if isinstance(value, Mapping) else value
        if isinstance(inner, str) and ":" in inner[:64] and not inner.lstrip().lower().startswith("data:"):
            yield inner
