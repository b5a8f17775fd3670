"""What runs beside an agent: wait until it is dead and the launch sealed, give its state to the relay, report. Standard library only.

Nothing of what the agent left is trusted: see ``keeper.freeze``. Memory is bounded by the container's limit: what needs more than that is
reported as lost, which is the agent's own doing. Read ``main`` first; ``README.md`` has the exit codes.
"""

# pathlib would double the start-up time.
# ruff: noqa: PTH123

from __future__ import annotations

import binascii
import os
import stat
import sys
import time

from orchestrator.records import headers
from orchestrator.sandbox.keeper.freeze import Freezer, read_final
from orchestrator.sandbox.keeper.lay import ListedPristine, Listing
from orchestrator.sandbox.keeper.linux import open_beneath
from orchestrator.sandbox.keeper.sinks import SinkError, to_relay
from orchestrator.sandbox.keeper.small import read_json
from orchestrator.sandbox.pod.orders import Orders
from orchestrator.sandbox.pod.talk import Gateway, Patience, insist
from orchestrator.sandbox.pod.usage import AREAS, DiskWatch, Walk, agent_limits
from orchestrator.sandbox.pod.world import (
    FREEZER_FAILED,
    FREEZER_UNKNOWN,
    RELAY_REFUSED,
    Environment,
    Places,
    PodError,
    own_environment,
    run,
)

TYPE_CHECKING = False  # importing ``typing`` would cost a tenth of the start
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

MOST_OUTPUT = 1 << 20
_MOST_ENDING = 4096
_LIMITS = {"out_of_memory": "out_of_memory", "processes": "out_of_processes"}
"""What a supervisor ends an agent for and nobody else can tell, in the words of outcomes."""
_HEAD_BYTES = 32  # of /log/output: see supervisor.c
_OTHERS_BYTES = 8 << 20
"""What of the container's memory is no heap: the interpreter's own files, and the kernel's notes about ours."""
_LEAST_HEAP = 12 << 20
_FOREVER = 1e9
_SETGID = 0o2000
"""The volume's own group bit, which every folder made on it inherits."""
MEASURE_SECONDS = 60.0
"""For looking at the size of everything: folders take no room on some file systems, so an agent may have made any number of them."""
AHEAD_BYTES = 1 << 30
"""What takes so long to read is read before a relay is asked to listen."""


def main(_arguments: list[str]) -> int:
    """Freeze one launch. Returns the exit code."""
    places = Places()
    return run(lambda: freezer(places, own_environment(FREEZER_FAILED)), places, FREEZER_FAILED)


def freezer(places: Places, environment: Environment) -> None:
    """Wait, freeze, report. Raises PodError and OSError."""
    token, address, relay, index = environment.need(
        "ORCHESTRATE_TOKEN", "ORCHESTRATE_GATEWAY", "ORCHESTRATE_RELAY", "ORCHESTRATE_GATEWAY_INDEX"
    )
    plan = environment.plan()
    gateway = Gateway(address, token)
    disk = DiskWatch(agent_limits(places, int(plan["disk_bytes"])))
    orders = Orders(places, gateway, disk, shared_lock=plan.get("shared_lock", True) is True)
    orders.listen()
    bound_memory()
    orders.until_sealed()
    delivery = Relay(relay, token, index)
    report = freeze(places, plan, delivery)
    cause = report["cause"]
    report["cause"] = _LIMITS.get(cause)
    # The cause is advice: an agent that had its supervisor killed wrote it itself. Whoever ends a pod tells us, too.
    told = cause == "terminated" or (orders.interrupted and not _ended_by_itself(cause))
    report["interrupted"] = orders.dying and told
    report["over_disk"] = orders.over_disk
    status, value = insist(gateway, "POST", "/launch/frozen", _FOREVER, report, unknown=FREEZER_UNKNOWN)
    if status != 200:
        raise PodError(
            FREEZER_FAILED, "freezer_failed", f"the gateway answered HTTP {status} to the report: {value!r:.500}"
        )


class Relay:
    """Where the parts go, until the pod is ended."""

    def __init__(self, address: str, token: str, index: str) -> None:
        self._address = address
        self._token = token
        self._fields = ((headers.GATEWAY, index),)

    def give(self, part: str, blob: Callable[[], Iterator[bytes]]) -> str | None:
        """Deliver one part, however long it takes. Returns why the relay will never take it, if that is so. Raises PodError."""
        patience = Patience(_FOREVER)
        while True:
            try:
                to_relay(self._address, self._token, part, blob, self._fields, tries=1)
            except SinkError as error:
                if error.status == 401:
                    patience.unknown(self._address, FREEZER_UNKNOWN)
                elif error.status == 413:
                    return str(error)
                elif error.status and error.status not in (408, 425, 429):
                    raise PodError(RELAY_REFUSED, "relay_refused", str(error)) from error
                sys.stderr.write(f"{error}; trying again\n")
                patience.wait(str(error))
            else:
                return None


def freeze(places: Places, plan: dict[str, Any], relay: Relay) -> dict[str, Any]:
    """Deliver what there is. Returns the report, and in it as ``cause`` how the supervisor says that it ended. Raises PodError."""
    printed = read_output(places)
    ending = read_ending(places)
    if printed:
        relay.give("output", lambda: iter((printed,)))
    report: dict[str, Any] = {
        "output_b64": _base64(printed),
        "exit": {"code": ending.get("code"), "signal": ending.get("signal")} if ending else None,
        "started": ending.get("started") or _started(places),
        "ended": ending.get("ended") or time.time(),
        "cause": ending.get("cause"),
    }
    try:
        report |= _state(places, plan, relay)
    except MemoryError:
        report["lost"] = "the freezer's memory does not suffice for what the agent left"
    except OSError as error:
        report["lost"] = (
            f"what the agent left cannot be read: {error.strerror or error} ({error.filename or 'no file'})"[:1000]
        )
    return report


def _state(places: Places, plan: dict[str, Any], relay: Relay) -> dict[str, Any]:
    """Deliver entries and changes; returns what the report says about them. Raises MemoryError, OSError and PodError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    opened = {name: os.open(f"{places.areas}/{name}", flags) for name in ("workspace", "output")}
    pristine = ListedPristine(Listing(f"{places.ctl}/pristine"))
    frozen = Freezer(opened, pristine, list(plan["exclude"]), int(plan["disk_bytes"]), 0o7777 & ~_SETGID)
    walk = Walk(f"{places.areas}/{name}" for name in AREAS)
    walk.go_on(MEASURE_SECONDS)
    if walk.readable > AHEAD_BYTES or not walk.whole:
        for _ in frozen.entries():  # digests of what is large are kept
            continue
    lost = relay.give("entries", frozen.entries) or relay.give("changes", frozen.changes)
    found = [{"type": kind, "detail": detail, "source": "freezer"} for kind, detail in frozen.findings]
    if frozen.findings_cut:
        found.append({"type": "findings_cut", "detail": f"{frozen.findings_cut} more were seen", "source": "freezer"})
    if not walk.whole:
        detail = "there is too much in the writable folders to look at: disk_bytes is what was seen"
        found.append({"type": "disk_not_measured", "detail": detail, "source": "freezer"})
    final = read_final(opened["output"])
    return {
        "final_b64": None if final is None else _base64(final),
        "findings": found,
        "disk_bytes": sum(walk.taken.values()),
        "lost": None if lost is None else lost[:1000],
    }


def read_output(places: Places) -> bytes:
    """Return the end of what the agent printed, as far as the supervisor's file is still one."""
    data = _read(places, b"output", _HEAD_BYTES + MOST_OUTPUT)
    words = data[:_HEAD_BYTES].split()
    ring = data[_HEAD_BYTES:]
    if len(words) != 2 or not words[0].isdigit() or not words[1].isdigit():
        return b""
    printed, size = int(words[0]), int(words[1])
    if printed <= size:
        return ring[:printed]
    at = printed % size if size else 0
    return ring[at:size] + ring[:at]


def read_ending(places: Places) -> dict[str, Any]:
    """Return what the supervisor noted, as far as it can be: ``code``, ``signal``, ``started``, ``ended``, ``cause``. Advice."""
    try:
        noted = read_json(_read(places, b"ending", _MOST_ENDING).decode())
    except (ValueError, RecursionError):
        return {}
    if not isinstance(noted, dict):
        return {}
    found: dict[str, Any] = {}
    for name, most in (("code", 255), ("signal", 64)):
        value = noted.get(name)
        found[name] = value if type(value) is int and 0 <= value <= most else None
    for name in ("started", "ended"):
        value = noted.get(name)
        found[name] = value if isinstance(value, int | float) and 0 < value < 1e11 else None
    cause = noted.get("cause")
    found["cause"] = cause if isinstance(cause, str) else None
    return found


def _ended_by_itself(cause: str | None) -> bool:
    """Return whether the supervisor saw the agent end before anybody asked for it."""
    return cause in ("exited", "cannot_run", "deadline", "processes", "out_of_memory", "out_of_disk")


def _started(places: Places) -> float | None:
    try:
        value = float(_read(places, b"started", 64))
    except ValueError:
        return None
    return value if 0 < value < 1e11 else None


def _read(places: Places, name: bytes, most: int) -> bytes:
    """Return the first bytes of a file that the agent could write to; nothing when it is no plain file any more."""
    try:
        folder = os.open(places.log, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        file = open_beneath(folder, name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return b""
    finally:
        os.close(folder)
    try:
        return os.read(file, most) if stat.S_ISREG(os.fstat(file).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(file)


def bound_memory() -> None:
    """Let Python find the container's memory limit before the kernel does: it can say so, and go on with less."""
    limit = _memory_limit()
    if limit is not None:
        import resource

        heap = max(_LEAST_HEAP, limit - _OTHERS_BYTES)
        resource.setrlimit(resource.RLIMIT_DATA, (heap, heap))


def _memory_limit() -> int | None:
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(file, encoding="ascii") as lines:
                text = lines.read().strip()
        except OSError:
            continue
        return int(text) if text.isdigit() and int(text) < 1 << 40 else None
    return None


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()
