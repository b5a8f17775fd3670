"""Sends OTLP requests as JSON over HTTP, as a collector takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import orjson

from orchestrator.errors import InfrastructureError, SpecError

Signal = Literal["traces", "logs"]
_ATTEMPTS = 5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_AGAIN = frozenset({429, 502, 503, 504})
"""Answers after which OTLP says to try again."""
_TIMEOUT_SECONDS = 60.0
_SAID = 300
"""Characters of an answer that are shown."""


def check_endpoint(url: str) -> str:
    """Return the address of a collector, without a slash at its end. Raises SpecError."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        msg = f"--endpoint {url!r} is no address of a collector; write http://HOST:4318 or https://HOST/PATH, without /v1/traces"
        raise SpecError(msg)
    return url.rstrip("/").removesuffix("/v1/traces").removesuffix("/v1/logs")


class OtlpSender:
    """Sends to one collector; to be opened as a context."""

    def __init__(self, endpoint: str, headers: Mapping[str, str]) -> None:
        """``headers`` go with every request; they may hold a key, so that no message shows them."""
        self._endpoint = endpoint
        self._headers = {"Content-Type": "application/json", **headers}

    async def __aenter__(self) -> OtlpSender:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
        self._session = aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def send(self, signal: Signal, request: dict[str, Any]) -> None:
        """Send one request, several times if the collector is busy. Raises InfrastructureError when it does not take it whole."""
        body = orjson.dumps(request)
        pause, url = _FIRST_PAUSE, f"{self._endpoint}/v1/{signal}"
        for attempt in range(1, _ATTEMPTS + 1):
            status, said, wait = await self._once(url, body)
            if status == 200:
                _check_whole(url, said)
                return
            if attempt == _ATTEMPTS or status not in {0, *_AGAIN}:
                break
            await asyncio.sleep(min(_LONGEST_PAUSE, wait or pause))
            pause *= 2
        what = f"answered with status {status}: {said[:_SAID]!r}" if status else f"cannot be reached: {said}"
        msg = f"the collector at {url} {what}; what was sent before is there, and a second export sends the same again"
        raise InfrastructureError(msg, cause="otlp")

    async def _once(self, url: str, body: bytes) -> tuple[int, str, float | None]:
        """Return status, text and how long to wait; status 0 when there was no answer."""
        import aiohttp

        try:
            async with self._session.post(url, data=body, headers=self._headers, allow_redirects=False) as response:
                wait = response.headers.get("Retry-After", "")
                text = (await response.content.read(1 << 16)).decode(errors="replace")
                return response.status, text, float(wait) if wait.isdigit() else None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return 0, str(error) or type(error).__name__, None


def _check_whole(url: str, said: str) -> None:
    """Raise InfrastructureError when the collector says that it left something out."""
    try:
        part = orjson.loads(said or "{}").get("partialSuccess") or {}
        left = int(part.get("rejectedSpans") or part.get("rejectedLogRecords") or 0)
    except (ValueError, AttributeError, TypeError):
        return  # an answer of another form: it was taken
    if left:
        msg = f"the collector at {url} left out {left} of what was sent: {str(part.get('errorMessage', ''))[:_SAID]!r}"
        raise InfrastructureError(msg, cause="otlp")
