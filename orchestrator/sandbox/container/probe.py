"""A tiny image of this machine's own shell, so that containers can be tried where no registry is reached."""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path

from orchestrator.errors import RefusedError
from orchestrator.sandbox.container.engine import Engine, Image

_SHELL = "/bin/sh"
_REPOSITORY = "localhost/orchestrate-probe"


async def probe_image(engine: Engine) -> Image:
    """Return the image, made now unless it is there. Raises EngineError, and RefusedError without a shell."""
    data = await asyncio.to_thread(_archive)
    reference = f"{_REPOSITORY}:{hashlib.sha256(data).hexdigest()[:16]}"
    found = await engine.image(reference)
    if found is not None:
        return found
    with tempfile.TemporaryDirectory(prefix="orchestrate-probe-") as folder:
        archive = Path(folder, "root.tar")
        await asyncio.to_thread(archive.write_bytes, data)
        return await engine.load(archive, reference)


def _archive() -> bytes:
    """Return a tar of the shell and the libraries that it is linked to; equal files give equal bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in [_SHELL, *_libraries(_SHELL)]:
            data = Path(path).read_bytes()
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode = len(data), 0o755
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _libraries(program: str) -> list[str]:
    if not Path(program).exists():
        msg = f"this machine has no {program}, from which the container backend makes its first container"
        raise RefusedError(msg)
    try:
        done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    except OSError as error:
        msg = f"the container backend makes its first container from this machine's {program}, and cannot start ldd: {error.strerror}"
        raise RefusedError(msg) from error
    return sorted(set(re.findall(r"(/\S+)(?= \(0x)", done.stdout)))
