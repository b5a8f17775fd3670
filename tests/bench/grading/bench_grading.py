"""Milliseconds per verdict by file and diff checks: in sandboxes, and by the checker; as a ratio to a bare fork and exit of this process.

Usage: bench_grading.py [VERDICTS]. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "service"))

from checker_world import checker
from grader_world import RUN, TRIAL, GraderWorld

from grader_service.evidence import find_trial
from grader_service.grade import _evaluate
from grader_service.programs import lay_programs, warm_packages

CHECKS = [
    {"id": "answer", "type": "files", "path": "a.json", "values": [{"at": "a", "equals": 1}]},
    {"id": "radius", "type": "diff", "allow": ["a.json"]},
]


def verdicts(world: GraderWorld, number: int) -> float:
    """Grade the same trial again and again, without its stored verdict, and return the median in milliseconds."""

    async def scene() -> float:
        grading = world.grading()
        committed = await find_trial(grading.store, RUN, TRIAL)
        spent = []
        for _ in range(number):
            started = time.perf_counter()
            verdict = await _evaluate(grading, RUN, TRIAL, committed, "bench")
            spent.append((time.perf_counter() - started) * 1000)
            assert verdict.result == "passed", verdict
        return statistics.median(spent)

    return asyncio.run(scene())


def bare(number: int) -> float:
    spent = []
    for _ in range(number):
        started = time.perf_counter()
        if (child := os.fork()) == 0:
            os._exit(0)
        os.waitpid(child, 0)
        spent.append((time.perf_counter() - started) * 1000)
    return statistics.median(spent)


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    warm_packages()
    with tempfile.TemporaryDirectory(prefix="o-", dir="/tmp") as folder:
        world = GraderWorld(Path(folder), lay_programs(Path(folder) / "programs"))
        world.task({f"d{n}/f{n}.txt": "x\n" for n in range(100)}, CHECKS)
        world.left({"a.json": '{"a": 1}', **{f"d{n}/f{n}.txt": "x\n" for n in range(100)}})
        found = {"verdicts": number, "fork_ms": bare(number), "sandbox_ms": verdicts(world, number)}
        with checker(Path(folder) / "c") as path:
            world.checker = path
            found["checker_ms"] = verdicts(world, number)
    rounded = {name: round(value, 2) for name, value in found.items()}
    print(json.dumps({**rounded, "checker_to_sandbox": round(found["checker_ms"] / found["sandbox_ms"], 3)}))


if __name__ == "__main__":
    main()
