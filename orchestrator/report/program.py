"""How this program was called, for hints that can be typed as they stand."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

NAME = "orchestrate"


def program(called: str | None = None, here: Path | None = None) -> str:
    """Return the words that call this program again: its name where PATH finds it, else its path as seen from the current folder.

    ``called`` is the first word of the command line and ``here`` the current folder; those of this process when absent.
    """
    path = _script(Path(sys.argv[0] if called is None else called))
    if path is None:
        return NAME
    found = shutil.which(NAME)
    if found is not None and os.path.realpath(found) == os.path.realpath(path):
        return NAME
    here = Path.cwd() if here is None else here
    full = Path(os.path.normpath(path.absolute()))
    return shlex.quote(str(full.relative_to(here) if full.is_relative_to(here) else full))


def _script(called: Path) -> Path | None:
    """Return the program's script; None when another program uses this one as a library, and knows best how it is called."""
    if called.name == NAME:
        return called
    beside = Path(sys.executable).parent / NAME
    return (
        beside if called.name == "__main__.py" and called.parent.name == "orchestrator" and beside.is_file() else None
    )
