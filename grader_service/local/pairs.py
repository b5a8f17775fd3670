"""Pairs of sandboxes on this machine, joined by a socketpair."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

from pydantic import JsonValue

from grader_service.checks.case import Ending, Frozen, Pair, PairEnd
from grader_service.subject.ready import READY
from orchestrator.errors import SandboxError
from orchestrator.interfaces import Sandbox, SandboxBackend, SandboxSpec
from orchestrator.records.manifest import ManifestTask

log = logging.getLogger("grader_service")

_READY_SECONDS = 60.0
"""How long a subject's side may take from its start until it serves."""
_WORDS_SECONDS = 10.0
"""How long a sandbox whose line has ended may take to end, and to say how."""


class LocalPairs:
    """Implements ``PairedSandboxes``."""

    def __init__(self, backend: SandboxBackend, containers: SandboxBackend | None) -> None:
        self._backend = backend
        self._containers = containers

    def identity(self, planned: ManifestTask) -> Mapping[str, JsonValue]:
        """Return the backend, and the id of the image that the agent worked in."""
        return {"backend": self._backend.name, "image": planned.image_id}

    async def run(self, name: str, planned: ManifestTask, pairs: Sequence[Pair]) -> Sequence[PairEnd]:
        """Run one pair after the other: the number of gradings is what bounds the machine. Raises SandboxError."""
        image = None if planned.image_id is None else planned.environment.image
        place = self._place_of(planned.id, image)
        return [
            await _run_pair(_Place(self._backend, pair.runner), _Place(place, replace(pair.subject, image=image)))
            for pair in pairs
        ]

    def _place_of(self, task: str, image: str | None) -> SandboxBackend:
        """Return where the agent's work runs. Raises SandboxError when it was made in an image and this service runs none."""
        if image is None:
            return self._backend
        if self._containers is None:
            msg = f"image {image} is needed to grade {task}, and this grader was started without a container engine"
            raise SandboxError(msg, cause="grader_engine")
        return self._containers


@dataclass(frozen=True)
class _Place:
    """One of the two sandboxes, and who makes it."""

    backend: SandboxBackend
    spec: SandboxSpec

    def open(self, channel: socket.socket) -> AbstractAsyncContextManager[Sandbox]:
        return self.backend.open(replace(self.spec, channel=channel.fileno()))


async def _run_pair(runner: _Place, subject: _Place) -> PairEnd:
    """Run both, the runner once the subject serves. The subject is killed when the runner has ended; its own ending is returned when it
    came first.
    """
    here, there = socket.socketpair()
    serves, over = asyncio.Event(), asyncio.Event()
    serving = asyncio.create_task(_serve(subject, there, here, serves, over))
    waiting = asyncio.create_task(serves.wait())
    try:
        await asyncio.wait({waiting, serving}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
        running = asyncio.create_task(_run(runner, here))
        try:
            await asyncio.wait({running, serving}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done() and serving.exception() is not None:
                running.cancel()
            ending, frozen = await _settled(running, serving)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        over.set()
        return PairEnd(runner=ending, frozen=frozen, subject=await serving)
    finally:
        for task in (waiting, serving):
            task.cancel()
        await asyncio.gather(waiting, serving, return_exceptions=True)
        here.close()
        there.close()


async def _proved(line: socket.socket, sandbox: Sandbox) -> None:
    """Wait until the subject serves: before that it has read no byte of the agent's. Raises SandboxError when it does not work.

    The line blocks again afterwards.
    """
    loop, received, why = asyncio.get_running_loop(), b"", "it ended before it served"
    line.setblocking(False)
    try:
        async with asyncio.timeout(_READY_SECONDS):
            while len(received) < len(READY) and (part := await loop.sock_recv(line, len(READY) - len(received))):
                received += part
    except TimeoutError:
        why = f"it did not serve within {_READY_SECONDS:g} s"
    except ConnectionError as error:
        why = str(error)
    line.setblocking(True)
    if received != READY:
        msg = f"the subject's side of a pair does not work: {why}{await _last_words(sandbox)}"
        raise SandboxError(msg, cause="grading_subject")


async def _last_words(sandbox: Sandbox) -> str:
    try:
        async with asyncio.timeout(_WORDS_SECONDS):
            ending = await sandbox.ended()
            words = (await sandbox.freeze()).output[-500:].decode("utf-8", "replace").strip()
    except TimeoutError:
        return ""
    return f", with {ending.exit}: {words}"


async def _settled(
    running: asyncio.Task[tuple[Ending, Frozen]], serving: asyncio.Task[Ending | None]
) -> tuple[Ending, Frozen]:
    try:
        return await running
    except asyncio.CancelledError:
        if serving.done() and (error := serving.exception()) is not None:
            raise error from None
        raise


async def _run(place: _Place, channel: socket.socket) -> tuple[Ending, Frozen]:
    async with place.open(channel) as sandbox:
        channel.close()
        ending = await sandbox.ended()
        return ending, await sandbox.freeze()


async def _serve(
    place: _Place, channel: socket.socket, line: socket.socket, serves: asyncio.Event, over: asyncio.Event
) -> Ending | None:
    """Return how the subject ended, if before all is over. Raises SandboxError when it did so before it served."""
    async with place.open(channel) as sandbox:
        channel.close()
        await _proved(line, sandbox)
        serves.set()
        ended = asyncio.create_task(sandbox.ended())
        waiting = asyncio.create_task(over.wait())
        try:
            await asyncio.wait({ended, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                return None
            ending = ended.result()
            if ending.exit.code != 0:  # 0: the runner closed the line first
                log.warning("a subject ended early with %s: %r", ending.exit, (await sandbox.freeze()).output[-500:])
            await waiting
            return ending
        finally:
            for task in (ended, waiting):
                task.cancel()
            await asyncio.gather(ended, waiting, return_exceptions=True)
