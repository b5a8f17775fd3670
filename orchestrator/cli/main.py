"""Where the process begins."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit.

    0: done. 1: regression or failed validation. 2: usage or spec error. 3: spending limit. 4: cannot judge. 5: infrastructure.
    130: interrupted.
    """
    try:
        from orchestrator.cli.app import (
            run_command,
        )  # here, so that an interrupt while it loads has a code and no traceback
        from orchestrator.cli.streams import guard_streams

        guard_streams()
        code = run_command(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
