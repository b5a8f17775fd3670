"""The driver's side of the grader service: HTTP over its unix socket, or over the network."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Self

from orchestrator.errors import GraderError, StoreError
from orchestrator.interfaces.waits import unheard
from orchestrator.records.ids import TrialId
from orchestrator.records.verdict import Verdict

if TYPE_CHECKING:
    import aiohttp
    from aiohttp import AddrInfoType

_TRIES = 3
_PAUSE_SECONDS = 0.2
_AWAY_SECONDS = 120.0
"""How long a service on the network may be away: so long takes a new pod of it."""
_LONGEST_PAUSE_SECONDS = 5.0
_ASK_SECONDS = 5.0
"""Between questions what grading waits for."""
_VERDICT_BYTES = 8 << 20
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 30, 10, 3
"""TCP keep-alive: an answer may take minutes, and a host that is gone never says so."""


class GraderClient:
    """Implements ``interfaces.Grader``. Passing failures are tried again; grading is idempotent, so that is safe."""

    def __init__(self, address: str, token: str, *, away_seconds: float = _AWAY_SECONDS) -> None:
        """``address``: the path of a unix socket, or ``http://HOST:PORT``, which may be away for so long before that is an error."""
        self._url = address.rstrip("/") if address.startswith(("http://", "https://")) else None
        self._address = address
        self._away_seconds = away_seconds if self._url else 0.0
        self._token = token
        self._session: aiohttp.ClientSession | None = None
        self._open_requests: dict[object, tuple[str, str, Callable[[str], None]]] = {}
        """Run, trial and who wants to hear what it waits for, of each request without an answer."""
        self._asking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Harmless when repeated."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def grade(self, run: str, trial: TrialId, waits: Callable[[str], None] = unheard) -> Verdict:
        """Return the verdict of a committed trial; ``waits`` is told why that takes longer.

        Raises GraderError: ``grader_unreachable`` when nobody answers, ``grader_refused`` when the service knows no such committed trial,
        otherwise with the cause that the service gave.
        """
        tries, patience, pause = _TRIES, math.inf, _PAUSE_SECONDS
        while True:
            try:
                with self._told(run, trial, waits):
                    return await self._once(run, trial)
            except GraderError as error:
                if error.cause == "grader_unreachable" and self._away_seconds:
                    patience = min(patience, time.monotonic() + self._away_seconds)
                    over = time.monotonic() + pause > patience
                else:
                    tries, patience = tries - 1, math.inf
                    over = not tries or error.cause == "grader_refused"
                if over:
                    raise
                waits(str(error))
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    @contextlib.contextmanager
    def _told(self, run: str, trial: TrialId, waits: Callable[[str], None]) -> Iterator[None]:
        """Have ``waits`` told what the service says of a request while the context is open."""
        mark = object()
        self._open_requests[mark] = (run, str(trial), waits)
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        try:
            yield
        finally:
            del self._open_requests[mark]

    async def _ask(self) -> None:
        """Ask now and then, one request for all trials of a run, until none is open."""
        while True:
            await asyncio.sleep(_ASK_SECONDS)
            if not self._open_requests:
                return
            for run in {run for run, _, _ in self._open_requests.values()}:
                found = await self._waits(run)
                for of, trial, waits in list(self._open_requests.values()):
                    if of == run:
                        waits(str(found.get(trial, "")))

    async def _waits(self, run: str) -> Mapping[str, object]:
        """Return what trials wait for; nothing when the service does not say: its answers to the requests themselves count."""
        import aiohttp

        try:
            async with self._open().get(f"{self._url or 'http://grader'}/waits", params={"run": run}) as response:
                found = (await response.json())["waits"] if response.status == HTTPStatus.OK else {}
        except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError):
            return {}
        return found if isinstance(found, dict) else {}

    async def _once(self, run: str, trial: TrialId) -> Verdict:
        import aiohttp

        body = {"run": run, "trial": str(trial)}
        try:
            async with self._open().post(f"{self._url or 'http://grader'}/grade", json=body) as response:
                data = await response.content.read(_VERDICT_BYTES + 1)
                while len(data) <= _VERDICT_BYTES and (more := await response.content.read(_VERDICT_BYTES)):
                    data += more
        except (aiohttp.ClientError, OSError) as error:
            msg = f"the grader service does not answer on {self._address} ({type(error).__name__})"
            raise GraderError(msg, cause="grader_unreachable") from error
        if response.status != 200:
            raise _refused(response.status, data, trial)
        try:
            return Verdict.from_bytes(data, f"the verdict of {trial}")
        except StoreError as error:
            raise GraderError(str(error), cause="grader_answer") from error

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._connector(),
                headers={"Authorization": f"Bearer {self._token}"},
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            )
        return self._session

    def _connector(self) -> aiohttp.BaseConnector:
        import aiohttp

        if self._url is None:
            return aiohttp.UnixConnector(self._address, limit=0)
        return aiohttp.TCPConnector(limit=0, socket_factory=_kept_alive)


def _kept_alive(address: AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", _IDLE_SECONDS), ("TCP_KEEPINTVL", _PROBE_SECONDS), ("TCP_KEEPCNT", _PROBES)):
        if hasattr(socket, option):  # a Mac has other names
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def _refused(status: int, data: bytes, trial: TrialId) -> GraderError:
    try:
        error = json.loads(data)["error"]
        kind, message = str(error["type"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        kind, message = "grader_answer", f"an answer with HTTP status {status} that is no error of the service"
    permanent = status in {400, 401, 404, 409}
    return GraderError(f"grading {trial}: {message}", cause="grader_refused" if permanent else kind)
