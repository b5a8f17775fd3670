"""Connections to one API server: who we are, for how long we wait, and every foreign error as an ``ApiError``."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import isinf
from typing import TYPE_CHECKING, Any

import orjson

from orchestrator.errors import SpecError
from orchestrator.sandbox.kubernetes.connect import Connection
from orchestrator.sandbox.kubernetes.errors import Doing, failed, foreign, refused

if TYPE_CHECKING:
    import aiohttp

ANSWER_SECONDS = 65.0
"""A little more than the API server's own limit for a request."""
_CONNECT_SECONDS = 10.0
_CONNECTIONS = 256
_HEADERS = {"Accept": "application/json", "Content-Type": "application/json"}


@dataclass(slots=True)
class Call:
    """One request."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    params: dict[str, str] | None = None
    silence_seconds: float | None = None
    """For answers without an end: how long they may be quiet; inf: for ever. None: the answer has its time as a whole."""


@dataclass(slots=True)
class Answer:
    """What came back."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class Transport:
    """Sends requests, with a fresh token each, and with one more try after a 401."""

    def __init__(self, connection: Connection, answer_seconds: float) -> None:
        self._connection = connection
        self._seconds = answer_seconds
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    async def close(self) -> None:
        """Close all connections. What is sent later fails, as it would without a network: nobody would close its connection."""
        self._closed = True
        session, self._session = self._session, None
        for task in self._closing:
            task.cancel()
        if session is not None:
            await session.close()

    async def answered(self, doing: Doing, call: Call) -> Answer:
        """Send a request and return its whole answer, whatever the status. Raises ApiError."""
        try:
            response = await self._allowed(doing, call)
            try:
                return Answer(response.status, await response.read(), response.headers)
            finally:
                response.release()
        except foreign() as error:
            raise failed(doing, error) from error

    @asynccontextmanager
    async def streamed(self, doing: Doing, call: Call) -> AsyncIterator[aiohttp.StreamReader]:
        """Send a request and give the body of its answer to be read inside. Raises ApiError, also for any status but 200."""
        try:
            async with await self._allowed(doing, call) as response:
                if response.status != 200:
                    raise refused(doing, response.status, await response.read(), response.headers.get("Retry-After"))
                yield response.content
        except foreign() as error:
            raise failed(doing, error) from error

    async def _allowed(self, doing: Doing, call: Call) -> aiohttp.ClientResponse:
        """Send a request, and once more when the token was refused."""
        response = await self._send(call)
        if response.status == 401:
            response.release()
            await self._renew(doing)
            response = await self._send(call)
        return response

    async def _send(self, call: Call) -> aiohttp.ClientResponse:
        session = self._connected()
        who = await self._connection.credentials.header()
        headers = _HEADERS if who is None else {**_HEADERS, "Authorization": who}
        return await session.request(
            call.method,
            self._connection.server + call.path,
            data=None if call.body is None else orjson.dumps(call.body),
            params=call.params,
            headers=headers,
            allow_redirects=False,
            proxy=self._connection.proxy,
            server_hostname=self._connection.server_name,
            timeout=_patience(self._seconds, call.silence_seconds),
        )

    async def _renew(self, doing: Doing) -> None:
        try:
            await self._connection.credentials.refresh()
        except SpecError as error:
            said = orjson.dumps({"reason": "Unauthorized", "message": str(error)})
            raise refused(doing, 401, said) from error

    def _connected(self) -> aiohttp.ClientSession:
        """Return the session; a new one after our certificate was replaced. What runs on the old one gets its time."""
        import aiohttp

        if self._closed:
            msg = "the client was closed"
            raise aiohttp.ClientConnectionError(msg)
        tls = self._connection.credentials.tls()
        if self._session is None or tls is not self._tls:
            old, self._tls = self._session, tls
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=tls if tls is not None else True),
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=2**18,
            )
            if old is not None:
                task = asyncio.create_task(_close_later(old, self._seconds))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
        return self._session


@lru_cache(maxsize=100)
def _patience(seconds: float, silence_seconds: float | None) -> aiohttp.ClientTimeout:
    import aiohttp

    if silence_seconds is None:
        return aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS)
    silence = None if isinf(silence_seconds) else silence_seconds
    return aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=silence)


async def _close_later(session: aiohttp.ClientSession, seconds: float) -> None:
    """Close a session when its requests have had their time. A watch on it ends by that, and is taken up on the new one."""
    try:
        await asyncio.sleep(seconds)
    finally:
        await session.close()
