"""The life of one sandbox, from outside: prepare, start, watch, freeze, clean up. Standard library only.

A keeper reads a specification (one line of JSON) and then commands (``stop``, ``freeze``; one a line) on its standard input and writes
events, one JSON object a line, on its standard output: ``started``, ``finding``, ``ended``, ``frozen``, ``error``. When its input ends it
kills the tree and leaves.
"""

from __future__ import annotations

import binascii
import os
import time

from orchestrator.sandbox.keeper.program import KeeperError
from orchestrator.sandbox.keeper.small import read_json, write_json
from orchestrator.sandbox.keeper.watch import Commands, Watch

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Protocol

    from orchestrator.sandbox.keeper.areas import Areas
    from orchestrator.sandbox.keeper.cgroup import Group
    from orchestrator.sandbox.keeper.program import Program

    class Stage(Protocol):
        """The sized file systems and what lies on them."""

        @property
        def writable(self) -> Sequence[str | int]:
            """Folders of the sized file systems, by path or open."""
            ...

        @property
        def areas(self) -> Areas:
            """What is frozen."""
            ...

    class Launch(Protocol):
        """One sandbox of one kind."""

        @property
        def stage(self) -> Stage:
            """What it is made from."""
            ...

        @property
        def group(self) -> Group:
            """Its limits, once it is started."""
            ...

        def start(self) -> Program:
            """Prepare everything and bring the program up to its gate. Raises KeeperError and OSError."""
            ...

        def leave(self) -> list[str]:
            """Kill and remove everything, also after a ``start`` that failed. Returns what would not go."""
            ...


def run(open_launch: Callable[[dict[str, Any]], Launch]) -> int:
    """Keep one sandbox of the kind that ``open_launch`` makes. Returns the exit code: 0, or 1 after an ``error`` event."""
    commands = Commands(0)
    line = commands.first_line()
    if line is None:
        return 0
    try:
        spec = read_json(line)
        keep(spec, open_launch(spec), commands)
    except KeeperError as error:
        say("error", cause=error.cause, message=str(error))
        return 1
    except OSError as error:
        say("error", cause="sandbox_setup", message=f"{error.strerror or error} ({error.filename or 'no file'})")
        return 1
    return 0


def keep(spec: dict[str, Any], launch: Launch, commands: Commands) -> None:
    """Lay, start, watch, freeze, clean up. Raises KeeperError and OSError; whatever happens, nothing stays behind."""
    try:
        program = launch.start()
        watch = Watch(spec, program, launch.group, launch.stage.writable, commands)
        program.release()
        say("started", at=time.time(), labels=watch.labels)
        ending = watch.until_end()
        program.close()
        if ending is None:
            return
        say("ended", **ending)
        if commands.wait_for("freeze"):
            freeze(spec, launch.stage.areas, program.output.tail())
            commands.wait_for("")
    finally:
        for place in launch.leave():
            say("finding", type="sandbox_left", detail=place)


def freeze(spec: dict[str, Any], areas: Areas, output: bytes) -> None:
    """Send the state to the sink and say ``frozen`` or ``error``."""
    from orchestrator.sandbox.keeper.freeze import Freezer, read_final
    from orchestrator.sandbox.keeper.sinks import SinkError, to_folder, to_relay

    sink = spec["sink"]
    blobs: dict[str, Any] = {}
    opened = areas.open_areas()
    findings: list[tuple[str, str]] = []
    if sink is not None:
        freezer = Freezer(opened, areas.pristine(), spec["exclude"], spec["limits"]["disk"])
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
            say("error", cause=error.store or "freeze", message=str(error), store=bool(error.store))
            return
        findings = freezer.findings
        if freezer.findings_cut:
            findings.append(("findings_cut", f"{freezer.findings_cut} more were seen"))
    final = read_final(opened["output"])
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
