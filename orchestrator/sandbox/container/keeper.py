"""The keeper of a container: one small trusted program per launch, outside of it. Standard library only.

When it is killed, its end of the container's standard input closes, the container's first process ends, and the kernel kills the rest.
"""

from __future__ import annotations

import binascii
import os
import sys

from orchestrator.sandbox.container.enter import READY, enter
from orchestrator.sandbox.container.stage import Stage
from orchestrator.sandbox.container.start import Holder
from orchestrator.sandbox.inside import AGENT_ID, etc_files
from orchestrator.sandbox.keeper import cgroup, life
from orchestrator.sandbox.keeper.child import memory_file
from orchestrator.sandbox.keeper.door import open_door
from orchestrator.sandbox.keeper.program import (
    KILL_SECONDS,
    KeeperError,
    Program,
    Tail,
    is_exiting,
    kill,
    kill_namespace,
    readable,
)
from orchestrator.sandbox.keeper.users import take_user

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from typing import Any

    from orchestrator.sandbox.keeper.cgroup import Group


FURNISH_SECONDS = 60.0
"""Longest time until everything is attached inside of a container."""


class ContainerProgram(Program):
    """The agent's program, a child of the keeper, in a container whose first process is ours."""

    own_processes = 2  # the shell and its waiting child

    def __init__(self, pid: int, first: int, output: Tail, gate: int, group: Group) -> None:
        super().__init__(output)
        self.command = os.pidfd_open(pid)
        self.first_pid = first
        self._pid = pid
        self._gate = gate
        self._group = group
        self._status: int | None = None

    def release(self) -> None:
        """Open the gate: the program starts. Raises OSError."""
        os.write(self._gate, b"\n")
        os.close(self._gate)

    def settle(self) -> None:
        """Tell a program that has ended from a container that was ended under it. Raises KeeperError."""
        self._group.remember()
        if is_exiting(self.first_pid) and not self._group.oom_kills():
            msg = "the container was stopped or removed by somebody else while the program ran"
            raise KeeperError(msg, "sandbox_removed")

    def close(self) -> None:
        """Kill everything and wait until it is dead. Harmless when repeated. Raises KeeperError."""
        if self._status is not None:
            return
        self._group.remember()
        kill(self.first)
        if not readable(self.command, KILL_SECONDS):
            msg = f"the program of a killed sandbox was still there after {KILL_SECONDS:g} s"
            raise KeeperError(msg, "sandbox_unkillable")
        self._status = os.waitpid(self._pid, 0)[1]  # the namespace ends only when this is reaped, too
        kill_namespace(self.first)
        while self.output.read():
            pass

    def exit(self) -> tuple[int | None, int | None]:
        """Return exit code and signal of the program, one of them None, once it is closed."""
        code = os.waitstatus_to_exitcode(self._status or 0)
        return (code, None) if code >= 0 else (None, -code)


class ContainerLaunch:
    """One sandbox in a container, limited by the control groups of the engine."""

    def __init__(self, spec: dict[str, Any]) -> None:
        user = take_user() or AGENT_ID
        self._spec = spec = {**spec, "owner": [user, user], "etc": etc_files(user)}
        self._holder = Holder(spec)
        self._program: ContainerProgram | None = None
        self.group: Group
        self.stage = Stage(spec)

    def start(self) -> Program:
        """Make the stage while the engine makes the container, and bring the program up to its gate. Raises KeeperError and OSError."""
        self._holder.begin()
        self.stage.make()
        pid = self._holder.wait()
        limits = self._spec["limits"]
        self.group = cgroup.adopt(
            pid, {"memory": limits["memory_total"], "pids": limits["processes"] + 2, "cpu": limits["cpu"]}
        )
        missing = {"memory", "pids"} - self.group.controllers
        if missing:
            msg = f"the engine did not limit the container's {' and '.join(sorted(missing))}: its control groups are not to be had here"
            raise KeeperError(msg, "sandbox_limits")
        self._program = self._enter(pid)
        if self._spec["door"] is not None:
            open_door(self._spec["door"], pid)
        return self._program

    def leave(self) -> list[str]:
        """Kill everything and have the engine remove the container. Returns what would not go."""
        if self._program is not None:
            self._program.close()
        elif self._holder.first >= 0:
            kill_namespace(self._holder.first)
        return self._holder.remove()

    def _enter(self, first: int) -> ContainerProgram:
        """Start the child that becomes the program, and wait until it is at its gate. Raises KeeperError and OSError."""
        spec = self._spec
        reader, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reader, False)
        heard, report = os.pipe2(os.O_CLOEXEC)
        waiting, gate = os.pipe2(os.O_CLOEXEC)
        descriptors = {1: writer, 2: writer}
        if spec["stdin"]:
            descriptors[0] = memory_file("stdin", binascii.a2b_base64(spec["stdin"]))
        if spec["channel"] is not None:
            descriptors[3] = spec["channel"]
        child = enter(spec, first, self.stage, self.group, descriptors, report, waiting)
        program = ContainerProgram(child, first, Tail(reader, spec["limits"]["output"]), gate, self.group)
        program.first = self._holder.first
        for descriptor in {*descriptors.values(), report, waiting}:
            os.close(descriptor)
        said = os.read(heard, 4096) if readable(heard, FURNISH_SECONDS) else b"it took too long"
        os.close(heard)
        if said != READY:
            program.close()
            reason = said.decode("utf-8", "replace") or "its first process ended"
            msg = f"the container could not be furnished: {reason}"
            raise KeeperError(msg)
        return program


def main() -> int:
    """Keep one container. Returns the exit code."""
    return life.run(ContainerLaunch)


if __name__ == "__main__":
    sys.exit(main())
