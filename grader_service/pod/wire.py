"""What grading pods and the grader agree on: paths, files, exit codes. Standard library only."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, NoReturn

TOKEN, GRADER, PLAN = "ORCHESTRATE_TOKEN", "ORCHESTRATE_GRADER", "ORCHESTRATE_PLAN"
"""Variables: the container's own token, ``http://IP:PORT``, and prepare's plan as JSON."""
VOLUMES = "/volumes"
"""Where prepare sees every volume by its name."""
RUN_PLAN = "/grader/plan.json"
"""What runner and subject are to run: laid by prepare, in each container its own."""
JOIN = "/grader/join.py"
SUPERVISOR = "/opt/orchestrate/bin/supervisor"
"""In the runner's image; prepare lays it into the pod, for the machine that the pod runs on."""
GUARD = "/grader/guard"
"""The same in a subject's container."""
LINE = "/line"
"""Folder of the socket that joins runner and subject; writable in the runner only."""
SOCKET = f"{LINE}/line"
SHARED_SOCKET = "\0orchestrate-line"
"""Where containers share no sockets of folders (gVisor): a name in the pod's network, good for a pod with one pair alone."""
RESULT_BYTES = 1 << 20
"""The most that a result has."""

POLICY, UNREACHABLE, INPUTS, UNKNOWN, MEMORY, SUBJECT, OTHER = 41, 43, 44, 45, 46, 47, 49
"""Exit codes: the network is open; the grader does not answer; what came is not usable; it does not know the token; hidden tests met
their memory limit; the subject's side does not work; anything else."""
CAUSES = {
    POLICY: "policy_not_enforced",
    UNREACHABLE: "grader_unreachable",
    INPUTS: "grading_inputs",
    UNKNOWN: "grader_restarted",
    MEMORY: "grading_memory",
    SUBJECT: "grading_subject",
    OTHER: "grading_pod",
}
NOT_JOINED, DISK, PROCESSES, DEADLINE = 121, 122, 123, 124
"""Exit codes of ``join``: no runner to join, more of the disk or more processes than allowed, its time over."""
_TERMINATION = "/dev/termination-log"
_PATIENCE_SECONDS = 120.0


class Unknown(Exception):  # noqa: N818 - not an error here: who asks is of an earlier grader
    """The grader does not know the token."""


def end(code: int, message: str) -> NoReturn:
    """End this program, telling the kubelet why."""
    said = json.dumps({"cause": CAUSES[code], "message": message[:2000]})
    with contextlib.suppress(OSError), open(_TERMINATION, "w") as file:  # noqa: PTH123
        file.write(said)
    sys.stderr.write(f"{said}\n")
    sys.stderr.flush()
    os._exit(code)


def ask(
    environment: Mapping[str, str], method: str, path: str, body: bytes | None = None
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    """Send one request and return its open answer. Raises Unknown for 401, OSError for what may pass."""
    address = environment[GRADER].removeprefix("http://")
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request(method, path, body, {"Authorization": f"Bearer {environment[TOKEN]}"})
        answer = connection.getresponse()
    except http.client.HTTPException as error:
        connection.close()
        msg = f"the grader's answer is no HTTP ({type(error).__name__})"
        raise OSError(msg) from error
    except OSError:
        connection.close()
        raise
    if answer.status in {401, 403, 404, 409}:
        connection.close()
        raise Unknown(f"{method} {path}: {answer.status}")
    if answer.status >= 300:
        connection.close()
        msg = f"{method} {path}: HTTP status {answer.status}"
        raise OSError(msg)
    return connection, answer


def ask_until(environment: Mapping[str, str], method: str, path: str, body: bytes | None = None) -> None:
    """Send a request until it is taken. Raises Unknown, and OSError after two minutes without success."""
    deadline, pause = time.monotonic() + _PATIENCE_SECONDS, 0.1
    while True:
        try:
            connection, answer = ask(environment, method, path, body)
            answer.read()
            connection.close()
        except (OSError, http.client.HTTPException):
            if time.monotonic() + pause > deadline:
                raise
        else:
            return
        time.sleep(pause)
        pause = min(2 * pause, 5.0)


def read_plan(path: str) -> dict[str, Any]:
    """Return the plan in a file."""
    with open(path, "rb") as file:  # noqa: PTH123
        plan: dict[str, Any] = json.load(file)
    return plan
