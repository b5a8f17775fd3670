"""One gateway as its clients reach it: over a unix socket or the network, with patience for a connection that breaks."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator.errors import GatewayError, LeaseLostError, StoreError

if TYPE_CHECKING:
    import aiohttp

_CONNECT_SECONDS = 10
_ANSWER_SECONDS = 120.0
POLL_SECONDS = 45.0
"""How long an answer to a long poll may take: a gateway that is gone with its node says nothing at all."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 3.0
Answer = TypeVar("Answer", bound=BaseModel)
RESTARTED = "gateway_restarted"
"""Cause of an error: the gateway does not know the launch any more."""
_KINDS = {"unknown_launch": RESTARTED}
_STALE = "stale_epoch"
_UNANSWERED = frozenset({"gateway_unreachable", "gateway_lost", "gateway_timeout"})


class Line:
    """Asks one gateway. Whatever is asked may be asked again, so a question without an answer is repeated for ``patience_s``."""

    def __init__(self, url: str, token: str, *, socket: str | None = None, patience_s: float = 0) -> None:
        self.url = url.rstrip("/")
        self.place = socket or self.url
        """Where it is, for messages."""
        self._token = token
        self._socket = socket
        self._patience_s = patience_s
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def ask(
        self,
        method: str,
        path: str,
        answer: type[Answer],
        body: BaseModel | None = None,
        query: Mapping[str, str] | None = None,
        seconds: float = _ANSWER_SECONDS,
    ) -> Answer:
        """Return the answer.

        Raises GatewayError, StoreError for a store that fails behind the gateway, and LeaseLostError when a driver of a higher epoch has
        asked it something.
        """
        status, data = await self.send(method, path, body, query, seconds)
        if status != 200:
            raise _refused(status, data, f"{method} {path}")
        try:
            return answer.model_validate_json(data)
        except (ValidationError, StoreError) as error:
            msg = f"the gateway's answer to {method} {path} is not a {answer.__name__}"
            raise GatewayError(msg, cause="gateway_garbled") from error

    async def send(
        self,
        method: str,
        path: str,
        body: BaseModel | None = None,
        query: Mapping[str, str] | None = None,
        seconds: float = _ANSWER_SECONDS,
    ) -> tuple[int, bytes]:
        """Return status and body of the answer, whatever it is. Raises GatewayError when there is none."""
        end = time.monotonic() + self._patience_s
        pause = _FIRST_PAUSE
        while True:
            try:
                return await self._once(method, path, body, query, seconds)
            except GatewayError:
                if time.monotonic() + pause > end:
                    raise
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - so that clients do not march in step
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _once(
        self, method: str, path: str, body: BaseModel | None, query: Mapping[str, str] | None, seconds: float
    ) -> tuple[int, bytes]:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS)

        data = body.model_dump_json().encode() if body is not None else None
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            async with self._connected().request(
                method,
                f"{self.url}{path}",
                data=data,
                headers=headers,
                params=query,
                allow_redirects=False,
                timeout=timeout,
            ) as response:
                return response.status, await response.read()
        except aiohttp.ClientConnectorError as error:
            msg = f"the gateway at {self.place} cannot be reached: {error.os_error.strerror}"
            raise GatewayError(msg, cause="gateway_unreachable") from None
        except TimeoutError:
            msg = f"the gateway did not answer {method} {path} within {seconds:g} s"
            raise GatewayError(msg, cause="gateway_timeout") from None
        except (aiohttp.ClientError, OSError) as error:
            msg = f"the connection to the gateway broke at {method} {path}: {type(error).__name__}"
            raise GatewayError(msg, cause="gateway_lost") from None

    def _connected(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=(
                    aiohttp.TCPConnector(limit=0)
                    if self._socket is None
                    else aiohttp.UnixConnector(self._socket, limit=0)
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._session


def is_unanswered(error: GatewayError) -> bool:
    """Return whether nobody answered."""
    return error.cause in _UNANSWERED


def error_of(data: bytes) -> tuple[str, str] | None:
    """Return type and message of a refusal's body; None when it is none of ours."""
    try:
        error = json.loads(data)["error"]
        return str(error["type"]), str(error["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _refused(status: int, data: bytes, what: str) -> GatewayError | StoreError | LeaseLostError:
    found = error_of(data)
    if found is None:
        why = " and knows no such request: it is older or newer than this driver" if status in {404, 405} else ""
        return GatewayError(f"the gateway answered {what} with status {status}{why}", cause="gateway_garbled")
    kind, message = found
    if kind == _STALE:
        return LeaseLostError(f"the gateway refused {what}: {message}")
    if status == 503:  # nothing else of the gateway's is answered so
        return StoreError(f"the gateway could not {what}: {message}", cause=kind)
    return GatewayError(f"the gateway refused {what}: {message}", cause=_KINDS.get(kind, kind))
