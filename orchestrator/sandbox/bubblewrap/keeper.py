"""The keeper: one small trusted program per launch, outside of the sandbox. Standard library only.

It reads a specification (one line of JSON) and then commands (``stop``, ``freeze``; one a line) on its standard input and writes events,
one JSON object a line, on its standard output: ``started``, ``finding``, ``ended``, ``frozen``, ``error``. When its input ends it kills
the tree and leaves; when it is killed itself, the kernel kills the tree.

Read ``keep`` first: it is the life of a sandbox in order.
"""

from __future__ import annotations

import binascii
import os
import sys
import time

from orchestrator.sandbox.bubblewrap import cgroup
from orchestrator.sandbox.bubblewrap.small import read_json, write_json
from orchestrator.sandbox.bubblewrap.stage import Stage, StageError
from orchestrator.sandbox.bubblewrap.start import Program, StartError, start
from orchestrator.sandbox.bubblewrap.watch import Commands, Watch

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from typing import Any


def main() -> int:
    """Keep one sandbox. Returns the exit code: 0, or 1 after an ``error`` event."""
    commands = Commands(0)
    line = commands.first_line()
    if line is None:
        return 0
    spec = read_json(line)
    try:
        keep(spec, commands)
    except (StageError, StartError) as error:
        say("error", cause=error.cause, message=str(error))
        return 1
    except OSError as error:
        say("error", cause="sandbox_setup", message=f"{error.strerror or error} ({error.filename or 'no file'})")
        return 1
    return 0


def keep(spec: dict[str, Any], commands: Commands) -> None:
    """Lay, start, watch, freeze, clean up. Raises StageError, StartError, OSError; whatever happens, nothing stays behind."""
    limits = spec["limits"]
    group = cgroup.make(
        spec["name"], {"memory": limits["memory_total"], "pids": limits["processes"] + 2, "cpu": limits["cpu"]}
    )
    stage = Stage(spec)
    program: Program | None = None
    try:
        stage.make()
        program = start(spec, stage, group)
        watch = Watch(spec, program, group, stage, commands)
        program.release()
        say("started", at=time.time(), labels=watch.labels)
        ending = watch.until_end()
        program.close()
        if ending is None:
            return
        say("ended", **ending)
        if commands.wait_for("freeze"):
            freeze(spec, stage, program)
            commands.wait_for("")
    finally:
        if program is not None:
            program.close()
        for folder in group.remove():
            say("finding", type="cgroup_left", detail=folder)


def freeze(spec: dict[str, Any], stage: Stage, program: Program) -> None:
    """Send the state to the sink and say ``frozen`` or ``error``."""
    from orchestrator.sandbox.bubblewrap.freeze import Freezer, read_final
    from orchestrator.sandbox.bubblewrap.sinks import SinkError, to_folder, to_relay

    sink = spec["sink"]
    output = program.output.tail()
    blobs: dict[str, Any] = {}
    areas = stage.open_areas()
    findings: list[tuple[str, str]] = []
    if sink is not None:
        freezer = Freezer(areas, stage.pristine(), spec["exclude"], spec["limits"]["disk"])
        try:
            if sink["type"] == "folder":
                blobs["entries"] = to_folder(sink["folder"], "entries.jsonl", freezer.entries)
                blobs["changes"] = to_folder(sink["folder"], "changes.tar", freezer.changes)
            else:
                if output:
                    blobs["output_blob"] = to_relay(sink["socket"], sink["token"], "output", lambda: iter((output,)))
                blobs["entries"] = to_relay(sink["socket"], sink["token"], "entries", freezer.entries)
                blobs["changes"] = to_relay(sink["socket"], sink["token"], "changes", freezer.changes)
        except SinkError as error:
            say("error", cause="freeze", message=str(error))
            return
        findings = freezer.findings
        if freezer.findings_cut:
            findings.append(("findings_cut", f"{freezer.findings_cut} more were seen"))
    final = read_final(areas["output"])
    say(
        "frozen",
        **blobs,
        output=base64(output),
        final=None if final is None else base64(final),
        findings=findings,
    )


def base64(data: bytes) -> str:
    """Return the base64 text of bytes."""
    return binascii.b2a_base64(data, newline=False).decode()


def say(event: str, **fields: object) -> None:
    """Write one event. A reader that is gone is no error: the end of our input tells the same."""
    data = memoryview((write_json({"event": event, **fields}) + "\n").encode())
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        return


if __name__ == "__main__":
    sys.exit(main())
