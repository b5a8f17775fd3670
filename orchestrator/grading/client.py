"""The driver's side of the grader service: HTTP over its unix socket."""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import TYPE_CHECKING, Self

from orchestrator.errors import GraderError, StoreError
from orchestrator.records.ids import TrialId
from orchestrator.records.verdict import Verdict

if TYPE_CHECKING:
    import aiohttp

_TRIES = 3
_PAUSE_SECONDS = 0.2
_VERDICT_BYTES = 8 << 20


class GraderClient:
    """Implements ``interfaces.Grader``. Passing failures are tried again twice; grading is idempotent, so that is safe."""

    def __init__(self, socket: str, token: str) -> None:
        self._socket = socket
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Harmless when repeated."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def grade(self, run: str, trial: TrialId) -> Verdict:
        """Return the verdict of a committed trial.

        Raises GraderError: ``grader_unreachable`` when nobody answers, ``grader_refused`` when the service knows no such committed trial,
        otherwise with the cause that the service gave.
        """
        for left in reversed(range(_TRIES)):
            try:
                return await self._once(run, trial)
            except GraderError as error:
                if not left or error.cause == "grader_refused":
                    raise
            await asyncio.sleep(_PAUSE_SECONDS * (_TRIES - left))
        raise AssertionError  # the last try returns or raises

    async def _once(self, run: str, trial: TrialId) -> Verdict:
        import aiohttp

        body = {"run": run, "trial": str(trial)}
        try:
            async with self._open().post("http://grader/grade", json=body) as response:
                data = await response.content.read(_VERDICT_BYTES + 1)
                while len(data) <= _VERDICT_BYTES and (more := await response.content.read(_VERDICT_BYTES)):
                    data += more
        except (aiohttp.ClientError, OSError) as error:
            msg = f"the grader service does not answer on {self._socket} ({type(error).__name__})"
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
                connector=aiohttp.UnixConnector(self._socket, limit=0),
                headers={"Authorization": f"Bearer {self._token}"},
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            )
        return self._session


def _refused(status: int, data: bytes, trial: TrialId) -> GraderError:
    try:
        error = json.loads(data)["error"]
        kind, message = str(error["type"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        kind, message = "grader_answer", f"an answer with HTTP status {status} that is no error of the service"
    permanent = status in {400, 401, 404, 409}
    return GraderError(f"grading {trial}: {message}", cause="grader_refused" if permanent else kind)
