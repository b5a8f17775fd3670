"""The service's side of the checker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import Any, Literal

from pydantic import Base64Bytes, Field, ValidationError

from grader_service.checks.case import LimitedEnd, LimitedJob
from grader_service.room import Room
from orchestrator.errors import RefusedError, SandboxError
from orchestrator.interfaces import Ending
from orchestrator.records.base import Record
from orchestrator.records.outcome import Exit

log = logging.getLogger("grader_service")

_REPLY_BYTES = 4 << 20


class _Reply(Record):
    code: int | None
    signal: int | None
    cause: Literal["exited", "out_of_memory", "wall_clock", "stopped"]
    started: float
    ended: float
    answer: Base64Bytes | None
    output: Base64Bytes = Field(max_length=64 << 10)


class CheckerChildren:
    """Implements ``LimitedChildren``: jobs for ``grader-service checker``, which sees this service's folder at the same path."""

    def __init__(self, socket: str, room: Room | None = None) -> None:
        """``room``: of the checker's scratch folder."""
        self._socket = socket
        self._room = room or Room()

    async def preflight(self, version: str, check_memory_bytes: int, *, patience: float = 60) -> None:
        """Wait until the checker answers. Raises RefusedError when it is of another version or too small, or does not come."""
        deadline = asyncio.get_running_loop().time() + patience
        while True:
            try:
                found = await self._ask({"job_bytes": 2 * check_memory_bytes})
            except SandboxError as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise RefusedError(str(error)) from error
                await asyncio.sleep(0.1)
            else:
                break
        if "problem" in found:
            raise RefusedError(str(found["problem"]))
        if found.get("version") != version:
            msg = f"the checker on {self._socket} is {found.get('version')}, this service {version}: give both the same image"
            raise RefusedError(msg)
        if not found.get("landlock"):
            log.warning(
                "the kernel has no Landlock: a broken parser could read the files of trials graded at the same time"
            )

    async def run(self, job: LimitedJob) -> LimitedEnd:
        """Run one limited child to its end. Raises SandboxError, and StoreError for a state that the checker never has room for."""
        told: dict[str, Any] = {
            "state": str(job.state),
            "pristine": str(job.pristine or job.state / "nothing"),
            "hidden": str(job.hidden or job.state / "nothing"),
            "limit_bytes": job.state_bytes,
            "checks": list(job.checks),
            "lay": job.lay,
            "seconds": job.check_seconds,
            "memory_bytes": job.check_memory_bytes,
        }
        request = {"job": told, "wall_seconds": job.wall_seconds, "disk_bytes": job.disk_bytes}
        async with self._room.taken(await asyncio.to_thread(_laid_bytes, job)):
            raw = await self._ask(request)
        if "problem" in raw:
            msg = f"{job.name}: {str(raw['problem'])[:500]}"
            raise SandboxError(msg, cause="grader_checker")
        try:
            reply = _Reply.model_validate(raw, strict=False)
        except ValidationError as error:
            msg = f"{job.name}: the checker's reply cannot be read ({error.error_count()} problems)"
            raise SandboxError(msg, cause="grader_checker") from error
        ending = Ending(
            exit=Exit(code=reply.code, signal=reply.signal), cause=reply.cause, started=reply.started, ended=reply.ended
        )
        return LimitedEnd(ending=ending, answer=reply.answer, output=reply.output)

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Exchange one line each. Raises SandboxError; leaving early ends the job."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket, limit=_REPLY_BYTES)
        except OSError as error:
            msg = f"the checker does not answer on {self._socket} ({error.strerror or type(error).__name__})"
            raise SandboxError(msg, cause="grader_checker") from error
        try:
            writer.write(json.dumps(request).encode() + b"\n")
            await writer.drain()
            line = await reader.readline()
        except (OSError, ValueError) as error:
            msg = f"the checker on {self._socket} broke off ({type(error).__name__})"
            raise SandboxError(msg, cause="grader_checker") from error
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return _decoded(line)


def _laid_bytes(job: LimitedJob) -> int:
    """Return the most that a job lays: what the agent changed, and what it left as it was. Not what its task allows it to leave."""
    pristine = () if job.pristine is None else job.pristine.rglob("*")
    return sum(file.lstat().st_size for file in (job.state / "changes.tar", *pristine))


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        msg = "the checker ended without a reply: its container may have met a limit"
        raise SandboxError(msg, cause="grader_checker")
    return found
