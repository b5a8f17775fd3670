"""Read an agent's ``/output/final.json`` in a limited child, so that no byte of it is parsed beside a credential."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from orchestrator.errors import SandboxError
from orchestrator.records.state import FinalAnswer, Finding

_PROGRAM = Path(__file__).with_name("final_child.py")
_SECONDS = 60


async def read_final(raw: bytes) -> tuple[FinalAnswer | None, tuple[Finding, ...]]:
    """Return the answer, or the finding that says why there is none.

    Raises SandboxError when the child could not be started, or got no processor for a minute.
    """
    try:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(_PROGRAM),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
        )
    except OSError as error:
        msg = f"the program that reads final.json could not be started: {error}"
        raise SandboxError(msg, cause="final_reader") from error
    try:
        printed, _ = await asyncio.wait_for(child.communicate(raw), timeout=_SECONDS)
    except TimeoutError as error:
        child.kill()
        await child.wait()
        # Its own limit of processor time is far below, so nothing in the file can be the reason.
        msg = f"the program that reads final.json did not end within {_SECONDS} s; is the machine overloaded?"
        raise SandboxError(msg, cause="final_reader") from error
    return _understand(printed)


def _understand(printed: bytes) -> tuple[FinalAnswer | None, tuple[Finding, ...]]:
    try:
        said = json.loads(printed)
        if "final" in said:
            return FinalAnswer.model_validate_json(json.dumps(said["final"])), ()
        return None, (_invalid(str(said["error"])),)
    except (ValueError, KeyError, TypeError):  # the child died of its limits
        return None, (_invalid("it could not be read within 256 MiB and 2 s"),)


def _invalid(detail: str) -> Finding:
    return Finding(type="invalid_final", detail=detail, source="freezer")
