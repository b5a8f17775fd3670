"""Seconds of one ``nop`` trial with grading, beside three bare bwrap starts that run Python under the same flags.

Run with ``make bench``, or ``python tests/bench/local/bench_nop.py [TRIALS]``. Nothing is asserted about time.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
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
from orchestrator.sandbox.bubblewrap import host
from orchestrator.sandbox.interpreter import interpreter
from orchestrator.settings import load_settings

ROOT = Path(__file__).parents[3]
TASKS = ("config-v2", "csv-quoted-fields")
"""One that is graded by checks on files and one with hidden tests in sandboxes of their own."""


class Clocked(Collector):
    """Notes when each trial ends."""

    def __init__(self) -> None:
        super().__init__()
        self.at = [time.perf_counter()]

    def ended(self, end) -> None:
        super().ended(end)
        self.at.append(time.perf_counter())


async def trials(task: str, count: int, scratch: str) -> list[float]:
    """Return the seconds of each trial, one after another, the services running already."""
    overrides = {"store": f"{scratch}/store", "cache": f"{scratch}/cache", "logs": f"{scratch}/logs", "concurrency": 1}
    settings = load_settings(Path(scratch), environ={}, overrides=overrides)
    order = Order(suite=ROOT / "tasks/starter", agents=("nop",), samples=count, tasks=(task,))
    loaded = load_order(order)
    with open_place(settings) as place:
        ready = await make_ready(place, order, loaded)
        async with open_local(settings, place) as local:
            manifest = await publish(place, ready, local.services.grader_version)
            clocked = Clocked()
            await local.run(manifest, clocked, Stop("Measure again."))
    assert [end.verdict.result for end in clocked.ends if end.verdict] == ["failed"] * count
    return [after - before for before, after in zip(clocked.at, clocked.at[1:], strict=False)][1:]


def bare() -> float:
    """Return the seconds of three bare starts, one after another."""
    python = interpreter()
    shown = [
        word for source, target in [*host.binds(), [str(python.prefix)] * 2] for word in ("--ro-bind", source, target)
    ]
    shown += [word for target, name in host.links() for word in ("--symlink", target, name)]
    flags = [
        *host.FLAGS,
        *shown,
        "--proc",
        "/proc",
        "--ro-bind",
        "/proc/sys",
        "/proc/sys",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
    ]
    command = [str(host.bwrap()), *flags, str(python.program), "-c", "import asyncio, json"]
    started = time.perf_counter()
    for _ in range(3):
        subprocess.run(command, check=True)
    return time.perf_counter() - started


def measure(count: int) -> dict[str, object]:
    """Return medians and ratios; trials and bare starts take turns by task, so that a busy machine slows both."""
    found: dict[str, object] = {}
    for task in TASKS:
        with tempfile.TemporaryDirectory(prefix="o-bench-") as scratch:
            before = [bare() for _ in range(5)]
            seconds = asyncio.run(trials(task, count, scratch))
            base = statistics.median(before + [bare() for _ in range(5)])
        median = statistics.median(seconds)
        found[task] = {
            "trials": len(seconds),
            "trial_s": round(median, 3),
            "trial_s_max": round(max(seconds), 3),
            "three_bare_starts_s": round(base, 3),
            "ratio": round(median / base, 2),
        }
    return found


if __name__ == "__main__":
    json.dump(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 20), sys.stdout, indent=2)
    sys.stdout.write("\n")
