"""Overhead of the harness on a trial whose workspace has 50,000 files and 1 GB: everything that is not the agent's own time.

Run with ``make bench``, or ``python tests/bench/local/bench_big.py [TRIALS] [SECONDS] [FILES]``; ``TMPDIR`` names the disk. The agent
changes, adds and removes some files and sleeps; the verdict comes from a ``files`` and a ``diff`` check. Beside the wall clock stands the
processor time of everything that was started, which a busy machine does not stretch. Nothing is asserted about time.
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

from orchestrator.cli.signals import Stop
from orchestrator.driver.local import open_local
from orchestrator.driver.order import Order, load_order
from orchestrator.driver.place import open_place
from orchestrator.driver.prepare import make_ready, publish
from orchestrator.driver.single import Collector
from orchestrator.settings import load_settings

BYTES = 1_000_000_000
TARGET_SECONDS = 60
"""The trial that the overhead is compared with."""
TASK = """\
id: big
instruction: Write the answer into answer.txt.
environment: {resources: {cpu: 1, memory: 512Mi, disk: 2Gi, processes: 64}}
checks:
  - {id: answer, type: files, path: answer.txt, equals: "42\\n"}
  - {id: blast_radius, type: diff, allow: ["d000/**", "new/**", answer.txt]}
"""
AGENT = """\
type: command
command:
  - sh
  - -c
  - |
    for n in 0 1 2 3 4 5 6 7 8 9; do echo changed >> d000/f00$n; rm d000/f01$n; done
    mkdir new && cp d001/* new/ && echo 42 > answer.txt && sleep {seconds}
"""


class Clocked(Collector):
    """Notes when each trial enters each phase."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[dict[str, float]] = []
        self.used: list[dict[str, float]] = []

    def phase(self, trial, phase) -> None:
        if phase == "starting":
            self.times.append({})
            self.used.append({})
        self.times[-1][phase] = time.perf_counter()
        self.used[-1][phase] = processor_seconds()

    def ended(self, end) -> None:
        super().ended(end)
        self.times[len(self.ends) - 1]["ended"] = time.perf_counter()
        self.used[len(self.ends) - 1]["ended"] = processor_seconds()


def processor_seconds() -> float:
    """Return what this process, every process below it and those that these have waited for have used."""
    found = 0
    below: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text(errors="replace").rsplit(")", 1)[1].split()
        except OSError:
            continue
        pid = int(place.parent.name)
        below.setdefault(int(fields[1]), []).append(pid)
        used[pid] = sum(map(int, fields[11:15]))
    pending = [os.getpid()]
    while pending:
        pid = pending.pop()
        found += used.get(pid, 0)
        pending += below.get(pid, [])
    return found / os.sysconf("SC_CLK_TCK")


def write_suite(folder: Path, files: int) -> None:
    """Make a suite with the one task; the bytes of the files do not repeat."""
    task = folder / "big"
    task.mkdir(parents=True)
    (folder / "suite.yaml").write_text("id: big\n")
    (task / "task.yaml").write_text(TASK)
    noise = os.urandom(1 << 20)
    size = BYTES // 50_000
    for number in range(files):
        place = task / "workspace" / f"d{number // 100:03}"
        if number % 100 == 0:
            place.mkdir(parents=True)
        start = number * 7919 % (len(noise) - size)
        (place / f"f{number % 100:03}").write_bytes(b"%d\n" % number + noise[start : start + size - 8])


async def trials(suite: Path, agent: Path, count: int, scratch: str) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Return the seconds and the processor seconds of each trial by part, one after another, the services running already."""
    overrides = {"store": f"{scratch}/store", "cache": f"{scratch}/cache", "logs": f"{scratch}/logs", "concurrency": 1}
    settings = load_settings(Path(scratch), environ={}, overrides=overrides)
    order = Order(suite=suite, agents=(str(agent),), samples=count)
    with open_place(settings) as place:
        ready = await make_ready(place, order, load_order(order))
        async with open_local(settings, place) as local:
            manifest = await publish(place, ready, local.services.grader_version)
            clocked = Clocked()
            await local.run(manifest, clocked, Stop("Measure again."))
    assert [end.verdict.result for end in clocked.ends if end.verdict] == ["passed"] * count
    lived = [end.outcome.times.ended - end.outcome.times.started for end in clocked.ends]
    return [
        (shares(times, life), shares(used, 0))
        for times, used, life in zip(clocked.times, clocked.used, lived, strict=True)
    ]


def shares(at: dict[str, float], agent: float) -> dict[str, float]:
    """Return the parts of one trial. ``agent`` is the program's own life, seen from outside."""
    return {
        "fetch_lay_start": at["running"] - at["starting"],
        "agent": at["freezing"] - at["running"],
        "seal_freeze_relay_outcome": at["grading"] - at["freezing"],
        "grade": at["ended"] - at["grading"],
        "overhead": at["ended"] - at["starting"] - agent,
    }


def measure(count: int, seconds: float, files: int) -> dict[str, object]:
    """Return the first trial, which fills the caches, and medians of the others."""
    with tempfile.TemporaryDirectory(prefix="o-bench-") as scratch:
        suite, agent = Path(scratch) / "suite", Path(scratch) / "sleeper.yaml"
        write_suite(suite, files)
        agent.write_text(AGENT.replace("{seconds}", f"{seconds:g}"))
        (first, _), *others = asyncio.run(trials(suite, agent, count + 1, scratch))
    wall, used = (
        {name: round(statistics.median(each[which][name] for each in others), 3) for name in first} for which in (0, 1)
    )
    return {
        "files": files,
        "trials": count,
        "first_trial_s": {name: round(value, 3) for name, value in first.items()},
        "warm_trial_s": wall,
        "warm_trial_processor_s": used,
        "overhead_of_60_s": round(wall["overhead"] / TARGET_SECONDS, 4),
        "processor_of_60_s": round(used["overhead"] / TARGET_SECONDS, 4),
    }


if __name__ == "__main__":
    words = [*sys.argv[1:], *["3", "1", "50000"][len(sys.argv) - 1 :]]
    json.dump(measure(int(words[0]), float(words[1]), int(words[2])), sys.stdout, indent=2)
    sys.stdout.write("\n")
