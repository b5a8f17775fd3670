"""The Python that runs this program: it runs the keepers, and bubblewrap sandboxes see it when they ask for ``python3``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import RefusedError


@dataclass(frozen=True)
class Interpreter:
    """The Python that runs this program, without any virtual environment."""

    program: Path
    """The real program, no link."""
    prefix: Path
    """Folder that holds its library."""


def interpreter() -> Interpreter:
    """Return the base interpreter of this process. Raises RefusedError when there is none."""
    base = Path(sys.base_prefix).resolve()
    names = [f"python{sys.version_info[0]}.{sys.version_info[1]}", "python3", "python"]
    for name in names:
        if (base / "bin" / name).is_file():
            return Interpreter((base / "bin" / name).resolve(), base)
    msg = f"no Python interpreter in {base / 'bin'} (looked for {', '.join(names)}); sandboxes need the one that runs this program"
    raise RefusedError(msg)
