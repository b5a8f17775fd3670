"""The keeper of a bubblewrap sandbox: one small trusted program per launch, outside of the sandbox. Standard library only.

When it is killed, the kernel kills the tree: bwrap dies with its parent.
"""

from __future__ import annotations

import sys

from orchestrator.sandbox.bubblewrap.stage import Stage
from orchestrator.sandbox.bubblewrap.start import start
from orchestrator.sandbox.keeper import cgroup, life

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from typing import Any

    from orchestrator.sandbox.keeper.program import Program


class BubblewrapLaunch:
    """One sandbox by bwrap, limited by control groups that the keeper makes."""

    def __init__(self, spec: dict[str, Any]) -> None:
        limits = spec["limits"]
        self._spec = spec
        self._program: Program | None = None
        ours = 3 if spec["watch"] else 2
        self.group = cgroup.make(
            spec["name"], {"memory": limits["memory_total"], "pids": limits["processes"] + ours, "cpu": limits["cpu"]}
        )
        self.stage = Stage(spec)

    def start(self) -> Program:
        """Make the stage and bring the program up to its gate. Raises KeeperError and OSError."""
        self.stage.make()
        self._program = start(self._spec, self.stage, self.group)
        return self._program

    def leave(self) -> list[str]:
        """Kill everything; the stage goes with the keeper. Returns the control groups that would not go."""
        if self._program is not None:
            self._program.close()
        return self.group.remove()


def main() -> int:
    """Keep one sandbox. Returns the exit code."""
    return life.run(BubblewrapLaunch)


if __name__ == "__main__":
    sys.exit(main())
