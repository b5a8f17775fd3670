"""First process of a runner's container: ``python3 -m grader_service.pod.runner``.

Takes the subject's connection, runs the hidden tests with it as descriptor 3, and delivers what became of them with its token, which the
tests do not see. Their memory has a limit below the container's: answers that take too much of it fail a test, and end no container. Plan:
``{"index", "command": […], "env": {…}, "workdir", "wall_seconds", "output_bytes", "memory_bytes", "line", "ready_seconds"}``.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import resource
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from typing import Any

from grader_service.checker.warden import oom_kills, read_answer
from grader_service.pod import wire
from grader_service.subject.ready import READY
from orchestrator.sandbox.jail import protect

_CHANNEL = 3
_FINAL = "/output/final.json"
_FINAL_BYTES = 64 << 10


def main() -> None:
    """Run the tests and deliver the result. Ends with 0 or a code of ``wire``."""
    os.dup2(os.open(os.devnull, os.O_RDWR), _CHANNEL)  # kept for the line
    protect()
    environment = dict(os.environ)  # noqa: TID251 - a program inside of a pod
    os.environ.clear()  # noqa: TID251
    plan = wire.read_plan(wire.RUN_PLAN)
    try:
        line = _joined(plan["line"], plan["ready_seconds"])
        prove(line, plan["ready_seconds"])
        killed = oom_kills()
        result = run(plan, line, environment.get("PATH", os.defpath))
        hang_up(line)
        if oom_kills() != killed:
            wire.end(wire.MEMORY, "hidden tests met their memory limit; raise GRADER_SERVICE_RUNNER_MEMORY_BYTES")
        body = json.dumps(result).encode()
        wire.ask_until(environment, "PUT", f"/grading/results/{plan['index']}", body)
    except wire.Unknown as error:
        wire.end(wire.UNKNOWN, f"the grader does not know this pod any more ({error})")
    except TimeoutError:
        wire.end(wire.OTHER, f"no subject came within {plan['ready_seconds']} s")
    except OSError as error:
        wire.end(wire.UNREACHABLE, f"the result could not be delivered: {error}")


def _joined(place: str, seconds: float) -> socket.socket:
    """Wait for the subject: the first connection is its server's, since nothing of the agent's runs before that is asked."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen(1)
        listening.settimeout(seconds)
        line, _ = listening.accept()
    if place == wire.SOCKET:
        os.unlink(place)  # noqa: PTH108
    line.setblocking(True)
    return line


def prove(line: socket.socket, seconds: float) -> None:
    """Hear from the subject's side that it works, or end: what is broken before it has read a byte of the agent's is nobody's result."""
    try:
        line.settimeout(seconds)
        received = b""
        while len(received) < len(READY) and (part := line.recv(len(READY) - len(received))):
            received += part
        line.settimeout(None)
        if received == READY:
            return
        why = "it ended before it served"
    except TimeoutError:
        why = f"it did not serve within {seconds:g} s"
    except OSError as error:
        why = str(error)
    wire.end(wire.SUBJECT, f"the subject's side does not work: {why}")


def run(plan: dict[str, Any], line: socket.socket, path: str) -> dict[str, Any]:
    """Run the command until its end or its deadline; everything it started is dead on return. Raises OSError."""
    os.dup2(line.fileno(), _CHANNEL)
    path = f"{os.path.dirname(sys.executable)}:{path}"  # noqa: PTH120
    own = {"PATH": path, "HOME": "/home/agent", "LANG": "C.UTF-8", "TMPDIR": "/tmp"}  # noqa: S108 - the pod's own
    started = time.time()
    process = subprocess.Popen(
        plan["command"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=plan["workdir"],
        env={**own, **plan["env"]},
        pass_fds=(_CHANNEL,),
        start_new_session=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (plan["memory_bytes"],) * 2),  # noqa: PLW1509 - there are no threads
    )
    output, cause = _watch(process, time.monotonic() + plan["wall_seconds"], plan["output_bytes"])
    code = process.wait()
    _end_others()
    final = read_answer(_FINAL)
    return {
        "code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "cause": cause,
        "started": started,
        "ended": time.time(),
        "output": base64.b64encode(output).decode(),
        "final": None if final is None or len(final) > _FINAL_BYTES else base64.b64encode(final).decode(),
        "subject_gone": _is_gone(line),
    }


def hang_up(line: socket.socket) -> None:
    """End the subject with all that it runs: what shares the pod's network must not be in the way of the result."""
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
    line.close()


def _watch(process: subprocess.Popen[bytes], deadline: float, most: int) -> tuple[bytes, str]:
    """Collect the end of the output until the first process has ended, or the time is over."""
    assert process.stdout is not None  # noqa: S101 - asked for
    pipe, ended, output = process.stdout.fileno(), os.pidfd_open(process.pid), b""
    os.set_blocking(pipe, False)
    with selectors.DefaultSelector() as selector:
        selector.register(ended, selectors.EVENT_READ)
        selector.register(pipe, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            ready = {key.fd for key, _ in selector.select(left)}
            if pipe in ready:
                chunk = os.read(pipe, 65536)
                output = (output + chunk)[-most:]
                if not chunk:
                    selector.unregister(pipe)
            if ended in ready:
                return _rest(pipe, output, most), "exited"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return output, "wall_clock"


def _rest(pipe: int, output: bytes, most: int) -> bytes:
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(pipe, 65536):
            output = (output + chunk)[-most:]
    return output


def _end_others() -> None:
    if os.getpid() == 1:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)


def _is_gone(line: socket.socket) -> bool:
    poll = select.poll()
    poll.register(line, select.POLLRDHUP | select.POLLHUP)
    return bool(poll.poll(0))


if __name__ == "__main__":
    main()
