"""Thousands of pods in flight in one process of the real backend: peak memory, and how late the event loop is.

Run with ``make bench``, or ``python tests/bench/kubernetes/bench_flight.py [PODS]``. API server, kubelet and agents are another process,
and the gateway answers at once. Launches begin, and agents end, at up to 500 a second.

How late the loop is, is told twice: by the clock, which a busy machine makes late, too, and at most by the processor time that this process
used meanwhile, which is its own doing.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "kubernetes"))

from bench_client import serving
from launch_world import PlayedGateway, delivery_of, whole
from pod_world import RUN, SETTINGS, spec_of

from orchestrator.driver.collector import spare_the_old
from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.kubernetes.backend import KubernetesBackend
from orchestrator.sandbox.kubernetes.connect import plain
from orchestrator.sandbox.kubernetes.creator import Creator
from orchestrator.sandbox.kubernetes.limiter import Limiter
from orchestrator.sandbox.kubernetes.resources import CONFIGMAPS
from orchestrator.settings import Kubernetes

SHARDS = 4
A_SECOND = 500


class Instant(PlayedGateway):
    """A gateway to which every freezer has delivered."""

    async def delivered(self, launch: str):
        return delivery_of(launch)


class Lags:
    """How late a timer of 10 ms is, over and over; seconds."""

    def __init__(self) -> None:
        self.all: dict[str, list[tuple[float, float]]] = {}
        self.phase = "start"

    async def measure(self) -> None:
        while True:
            began, used = time.perf_counter(), time.process_time()
            await asyncio.sleep(0.01)
            late = time.perf_counter() - began - 0.01
            self.all.setdefault(self.phase, []).append((min(late, time.process_time() - used), late))

    def percentile(self, share: float, phase: str | None = None, *, clock: bool = False) -> float:
        """Return milliseconds."""
        lags = sorted(lag[clock] for name, each in self.all.items() if phase in (None, name) for lag in each)
        return round(lags[int(share * (len(lags) - 1))] * 1000, 1)


def resident() -> float:
    """Return this process's memory now, in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


async def fly(count: int) -> dict[str, object]:
    spare_the_old()  # as a driver does
    lags, gateway, running = Lags(), Instant(), 0
    spaces = tuple(f"trials-{number}" for number in range(SHARDS))
    settings: Kubernetes = SETTINGS.model_copy(update={"namespaces": spaces})
    async with serving(history=100_000) as url:

        async def connecting():
            return plain(url)

        async def one(number: int) -> None:
            spec = spec_of(trial=f"t@a:{number}")
            gateway.know(spec.name)
            await whole(pods, gateway, replace(spec, door=gateway.door(spec.name, known=False)))

        async with KubernetesBackend(settings, connecting).driving(RUN, 1, gateway) as pods, Api(plain(url)) as api:
            fast = (
                Limiter(10_000, floor=10_000),
                Limiter(10_000, floor=10_000),
            )  # how fast a cluster is asked is not measured here
            pods._means = replace(pods._means, creator=Creator(pods._means.api, fast[0], deletes=fast[1]))
            before, cpu, began = resident(), time.process_time(), time.perf_counter()
            measuring = asyncio.create_task(lags.measure())
            lags.phase = "create"
            trials = []
            for number in range(count):
                trials.append(asyncio.create_task(one(number)))
                if number % 10 == 9:
                    await asyncio.sleep(10 / A_SECOND)
            views = [shard.pods for shard in pods._means.shards]
            while running < count:
                await asyncio.sleep(0.2)
                running = sum(view.phase == "Running" for shard in views for view in shard)
            in_flight, created = resident(), time.perf_counter() - began
            lags.phase = "hold"
            await asyncio.sleep(2)
            lags.phase = "end"
            await api.create(
                CONFIGMAPS, "bench", {"metadata": {"name": "release"}, "data": {"seconds": str(count / A_SECOND)}}
            )
            await asyncio.gather(*trials)
            spent, took = time.process_time() - cpu, time.perf_counter() - began
            measuring.cancel()
        counts = sum((each.counts for each in views), Counter())
    return {
        "pods": count,
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "rss_before_mib": round(before),
        "rss_in_flight_mib": round(in_flight),
        "kib_each": round((in_flight - before) * 1024 / count, 1),
        "loop_lag_p99_ms": lags.percentile(0.99),
        "loop_lag_p99_by_phase_ms": {phase: lags.percentile(0.99, phase) for phase in lags.all},
        "loop_lag_max_ms": lags.percentile(1),
        "loop_lag_p99_by_the_clock_ms": lags.percentile(0.99, clock=True),
        "all_running_after_s": round(created, 1),
        "took_s": round(took, 1),
        "cpu_s_each": round(spent / count, 4),
        "watches": dict(counts),
    }


if __name__ == "__main__":
    json.dump(asyncio.run(fly(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)), sys.stdout, indent=2)
    sys.stdout.write("\n")
