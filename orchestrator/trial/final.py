"""Read how an agent says that it ended, in a limited child, so that no byte of it is parsed beside a credential."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from orchestrator.errors import SandboxError
from orchestrator.records.state import FinalAnswer, Finding
from orchestrator.spec.agent import Adapter

_PROGRAM = Path(__file__).with_name("final_child.py")
_SECONDS = 60
_OUTPUT_BYTES = 4 << 20
"""Most of the end of an output that is looked at."""


async def read_final(raw: bytes) -> tuple[FinalAnswer | None, tuple[Finding, ...]]:
    """Return the answer of a ``/output/final.json``, or the finding that says why there is none.

    Raises SandboxError when the child could not be started, or got no processor for a minute.
    """
    return _understand(await _ask(raw), "invalid_final")


async def read_adapted(adapter: Adapter, output: bytes) -> tuple[FinalAnswer | None, tuple[Finding, ...]]:
    """Return what the end of an agent's output says in the form of its adapter, or the finding that says why there is nothing.

    Raises SandboxError as ``read_final``.
    """
    return _understand(await _ask(output[-_OUTPUT_BYTES:], adapter), "no_adapted_ending")


async def _ask(raw: bytes, *arguments: str) -> bytes:
    """Return what the child prints. Raises SandboxError."""
    try:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(_PROGRAM),
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
        )
    except OSError as error:
        msg = f"the program that reads how an agent ended could not be started: {error}"
        raise SandboxError(msg, cause="final_reader") from error
    try:
        printed, _ = await asyncio.wait_for(child.communicate(raw), timeout=_SECONDS)
    except TimeoutError as error:
        child.kill()
        await child.wait()
        # Its own limit of processor time is far below, so nothing that it reads can be the reason.
        msg = f"the program that reads how an agent ended did not end within {_SECONDS} s; is the machine overloaded?"
        raise SandboxError(msg, cause="final_reader") from error
    return printed


def _understand(printed: bytes, kind: str) -> tuple[FinalAnswer | None, tuple[Finding, ...]]:
    try:
        said = json.loads(printed)
        if "final" in said:
            return FinalAnswer.model_validate_json(json.dumps(said["final"])), ()
        detail = str(said["error"])
    except (ValueError, KeyError, TypeError):  # the child died of its limits
        detail = "it could not be read within 256 MiB and 2 s"
    return None, (Finding(type=kind, detail=detail, source="freezer"),)
