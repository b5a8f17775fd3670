"""Frozen states on their way to a reader: fetched, verified, and parsed only in a limited child without credentials."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from orchestrator.dataset.rows import TrialRow
from orchestrator.errors import NotFoundError, StoreError
from orchestrator.interfaces import BundleSource, ObjectStore
from orchestrator.records.base import BlobRef
from orchestrator.report import state_child

DIFF_CPU_SECONDS = 20
UNPACK_CPU_SECONDS = 600
ANSWER_BYTES = 16 * 2**20
"""More is not read from the child."""
WALL_SECONDS = 900
OUTPUT_AREA_BYTES = 16 * 2**20
"""Size of the sandbox's output area, beside the task's disk."""


async def fetch_blob(store: ObjectStore, blob: BlobRef, file: IO[bytes]) -> None:
    """Copy a blob into an open file and go back to its start. Raises StoreError when the bytes are not what the record says."""
    found = hashlib.sha256()
    size = 0
    async for block in store.stream(blob.key):
        found.update(block)
        size += len(block)
        if size > blob.size:
            break
        file.write(block)
    if size != blob.size or found.hexdigest() != blob.sha256:
        msg = f"blob {blob.key} is not what its record says: expected {blob.size} bytes with digest {blob.sha256[:12]}"
        raise StoreError(msg, cause="digest_mismatch")
    file.seek(0)


async def read_blob(store: ObjectStore, blob: BlobRef) -> bytes:
    """Return a verified blob. Raises StoreError."""
    with tempfile.TemporaryFile() as file:
        await fetch_blob(store, blob, file)
        return file.read()


async def read_state(
    store: ObjectStore, bundles: BundleSource, row: TrialRow, target: Path | None = None
) -> tuple[list[dict[str, Any]], str | None]:
    """Return what the child says about the winner's state, and None or why it did not get to the end.

    Without ``target`` it compares with the pristine files, with it it writes the files there. Raises StoreError.
    """
    state = row.outcome.state if row.outcome else None
    if state is None:
        return [], "no state was frozen"
    try:
        pristine: Path | None = await bundles.fetch("sandbox", row.task.bundles.sandbox)
    except NotFoundError:
        pristine = None
    room = row.task.environment.resources.disk + OUTPUT_AREA_BYTES
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(2)]
        await fetch_blob(store, state.entries, files[0])
        await fetch_blob(store, state.changes, files[1])
        entries, changes = (file.fileno() for file in files)
        job = _job(pristine, target, room) | {"entries": entries, "changes": changes}
        answers, problem = await _run(job, (entries, changes))
    if not answers or answers[-1].get("done") is not True:
        problem = problem or "it ended early"
    elif pristine is None:
        problem = "the task's own files are not in the store any more, so there is nothing to compare with"
    return [answer for answer in answers if "done" not in answer], problem


def _job(pristine: Path | None, target: Path | None, room: int) -> dict[str, Any]:
    return {
        "mode": "unpack" if target else "diff",
        "pristine": str(pristine.absolute()) if pristine else None,
        "root": str(target.absolute()) if target else None,
        "room": room,
        "cpu": UNPACK_CPU_SECONDS if target else DIFF_CPU_SECONDS,
    }


async def _run(job: dict[str, Any], files: Sequence[int]) -> tuple[list[dict[str, Any]], str | None]:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-I", "-S", "-X", "utf8", str(Path(state_child.__file__)), json.dumps(job)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={},
        cwd="/",
        pass_fds=tuple(files),
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(WALL_SECONDS):
            out, err = await asyncio.gather(_read(child.stdout, ANSWER_BYTES), _read(child.stderr, 1 << 16))
            if len(out) > ANSWER_BYTES:
                child.kill()
            await child.wait()
    except TimeoutError:
        return [], f"reading it took more than {WALL_SECONDS} seconds"
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return _lines(out), _problem(child.returncode or 0, err)


async def _read(stream: asyncio.StreamReader | None, most: int) -> bytes:
    """Read to the end, or a little more than ``most``."""
    found = bytearray()
    while stream and len(found) <= most and (block := await stream.read(1 << 16)):
        found += block
    return bytes(found)


def _lines(out: bytes) -> list[dict[str, Any]]:
    answers = []
    for line in out.split(b"\n")[:-1]:
        answer = json.loads(line)
        if isinstance(answer, dict):
            answers.append(answer)
    return answers


def _problem(code: int, err: bytes) -> str | None:
    if code == 0:
        return None
    last = err.decode(errors="backslashreplace").strip().split("\n")[-1]
    if code < 0:
        return f"reading it took too much time or memory (signal {-code})"
    return f"it could not be read: {last[:300]}"
