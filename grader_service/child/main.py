"""The limited child: evaluates checks over a frozen state, each in a process of its own with hard limits.

Input: one JSON object on standard input, ``{"state", "pristine", "hidden", "root", "answer", "limit_bytes", "packages": […],
"checks": […], "lay": bool, "seconds": n, "memory_bytes": n}``. Output: the file ``answer``, ``{"results": [...]}`` in the order of the
checks, or ``{"evidence": "…"}`` when the state contradicts itself. Ends with 0 in both cases.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from grader_service.child.assemble import EvidenceError
from grader_service.child.results import Result
from grader_service.child.workspace import Broken, Unusable, Workspace

_RESULT_BYTES = 256 << 10
_OF_WORLD = frozenset({"db_goal", "rows_unchanged", "outbox", "no_irreversible_without_approval"})
_LAYING = frozenset({"files", "sql", "public_api_unchanged"})


def main() -> None:
    """Run the checks of the job on standard input."""
    run(json.load(sys.stdin))


def run(job: dict[str, Any]) -> None:
    """Run the checks of a job and write the answer."""
    sys.path.extend(job["packages"])
    world = Workspace(job["state"], job["pristine"], job["hidden"], job["root"], job["limit_bytes"])
    try:
        _ = world.entries
        if job["lay"] or any(spec["type"] in _LAYING for spec in job["checks"]):
            with contextlib.suppress(Unusable):  # each check that needs the files says so itself
                world.lay(whole=job["lay"])
        answer: dict[str, Any] = {"results": [_isolated(spec, world, job) for spec in job["checks"]]}
    except EvidenceError as error:
        answer = {"evidence": str(error)}
    place = job["answer"]
    with open(f"{place}.new", "w") as file:  # noqa: PTH123
        json.dump(answer, file)
    os.rename(f"{place}.new", place)  # noqa: PTH104


def evaluator(kind: str) -> Callable[[dict[str, Any], Workspace], Result]:
    """Return the function of a check type; its module loads here, so that a job pays only for what it uses."""
    if kind == "files":
        from grader_service.child.files import check_files

        return check_files
    if kind == "sql":
        from grader_service.child.sqlite import check_sql

        return check_sql
    if kind in _OF_WORLD:
        from grader_service.child import world

        return {
            "db_goal": world.check_db_goal,
            "rows_unchanged": world.check_rows_unchanged,
            "outbox": world.check_outbox,
            "no_irreversible_without_approval": world.check_approvals,
        }[kind]
    if kind == "public_api_unchanged":
        from grader_service.child.api import check_public_api

        return check_public_api
    from grader_service.child.diff import check_diff, check_paths_unchanged

    return {"diff": check_diff, "paths_unchanged": check_paths_unchanged}[kind]


def evaluate(spec: dict[str, Any], world: Workspace) -> Result:
    """Evaluate one check here. What the agent left can only make it fail."""
    try:
        return evaluator(spec["type"])(spec, world)
    except Unusable as reason:
        return Result(False, None, str(reason), (str(reason),))
    except Broken as problem:
        return Result(None, problem=str(problem))
    except (MemoryError, RecursionError) as error:
        words = f"cannot be read within limits ({type(error).__name__})"
        return Result(False, None, words, (words,))


def _isolated(spec: dict[str, Any], world: Workspace, job: dict[str, Any]) -> dict[str, Any]:
    started = time.monotonic()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _work(spec, world, job, writer)
    os.close(writer)
    data = _collect(reader, started + job["seconds"] * 2)
    os.close(reader)
    if data is None:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    result = _parsed(data)
    if result is None:
        code = os.waitstatus_to_exitcode(status)
        timed_out = data is None or -code in {signal.SIGXCPU, signal.SIGKILL}
        why = (
            f"not finished within {job['seconds']} s"
            if timed_out
            else f"ended with {'signal' if code < 0 else 'code'} {abs(code)}"
        )
        reason = f"the check could not read what was left: {why}"
        result = Result(False, None, reason, (reason,)).as_json()
    return {**result, "seconds": round(time.monotonic() - started, 3)}


def _parsed(data: bytes | None) -> dict[str, Any] | None:
    try:
        return dict(json.loads(data)) if data else None
    except (ValueError, TypeError):
        return None


def _work(spec: dict[str, Any], world: Workspace, job: dict[str, Any], writer: int) -> None:
    status = 70
    try:
        seconds = int(job["seconds"])
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (job["memory_bytes"], job["memory_bytes"]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        data = json.dumps(evaluate(spec, world).as_json()).encode()
        while data:
            data = data[os.write(writer, data) :]
        status = 0
    except Exception as error:  # noqa: BLE001 - whatever hostile content can provoke is a failed check, not a way out of the count
        reason = f"the check could not read what was left: {type(error).__name__}: {error}"
        status = 0 if os.write(writer, json.dumps(Result(False, None, reason, (reason,)).as_json()).encode()) else 70
    finally:
        os._exit(status)


def _collect(reader: int, deadline: float) -> bytes | None:
    """Read until the end. None: the time is over or there is too much."""
    data = b""
    while True:
        left = deadline - time.monotonic()
        ready, _, _ = select.select([reader], [], [], max(0, left))
        if not ready or len(data) > _RESULT_BYTES:
            return None
        chunk = os.read(reader, 65536)
        if not chunk:
            return data
        data += chunk
