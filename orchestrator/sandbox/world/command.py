"""How the program that holds worlds is started."""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = str(Path(__file__).parents[3])

COMMAND = (
    sys.executable,
    "-I",
    "-S",
    "-c",
    f"import sys; sys.path.insert(0, {_ROOT!r}); from orchestrator.sandbox.world.zygote import main; main()",
)
"""Isolated, without packages: it sees the standard library and this package."""
