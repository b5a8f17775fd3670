"""The runner's report in ``/output/final.json`` (zlib, JSON): what became of the tests, and whether the subject was asked anything.

``{"exit_status": n, "tests": [[id, outcome, message], …], "errors": [[file, message], …], "asked": bool}``. Once the subject was asked, a
command that goes wrong may have the agent to blame: then it fails, and is no error of its author's.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

_FILE = Path("/output/final.json")


def read() -> dict[str, Any]:
    """Return the report as it stands, an empty one at first."""
    if not _FILE.exists():
        return {"exit_status": 0, "tests": [], "errors": [], "asked": False}
    report: dict[str, Any] = json.loads(zlib.decompress(_FILE.read_bytes()))
    return report


def packed(report: dict[str, Any]) -> bytes:
    """Return the bytes of a report. A message can carry surrogates that stand alone, which strict readers of JSON refuse."""
    return zlib.compress(json.dumps(report, ensure_ascii=False).encode("utf-8", "replace"))


def write(data: bytes) -> None:
    """Replace the report."""
    fresh = _FILE.with_suffix(".new")
    fresh.write_bytes(data)
    fresh.replace(_FILE)


def note_asked() -> None:
    """Write down that the subject is being asked."""
    report = read()
    if not report["asked"]:
        write(packed({**report, "asked": True}))
