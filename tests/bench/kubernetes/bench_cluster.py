"""Trials of an agent that does nothing, on a real cluster, beside bare pods of the same shape that are only made and deleted.

Run with ``make bench``, or beside a cluster, with the prefix of an installed release, ``ORCHESTRATE_TEST_CLUSTER=1
ORCHESTRATE_TEST_RELEASE=PREFIX python tests/bench/kubernetes/bench_cluster.py [TRIALS] [AT_ONCE] [POOL]``. Trials have everything on:
policies are proven, states frozen, verdicts given by file checks. Bare pods have the containers, volumes and limits of a trial's pod, in
its namespace, and programs that end at once. Both are asked for ``AT_ONCE`` at a time. Times are medians in seconds, by this process's
clock, of a watch. A trial keeps its place until it is graded, so few at a time measure how long one takes, and many what the node bears.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

sys.path.insert(0, str(Path(__file__).parents[2] / "cluster"))

from cluster_runs import Left, Runs, processes, write_suite
from installed_world import Release, release

from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.kubernetes.connect import connect
from orchestrator.sandbox.kubernetes.resources import PODS

NOTHING = {
    names.PREPARE: ["/usr/bin/python3.11", "-IS", "-c", "pass"],
    names.AGENT: ["true"],
    names.FREEZER: ["/usr/bin/python3.11", "-IS", "-c", "pass"],
}
"""Programs that end at once: the pod image has no shell, but an interpreter, here the test cluster's."""
BARE = "bare"
"""Value of the label that bare pods have instead of a run's."""


class Witness(threading.Thread):
    """Watches a namespace: what each pod looked like first, and when each of its states was seen first."""

    def __init__(self, namespace: str, labels: str) -> None:
        super().__init__(daemon=True)
        self._namespace, self._labels = namespace, labels
        self._ended = threading.Event()
        self.watching = threading.Event()
        self.pods: dict[str, dict[str, Any]] = {}
        self.times: dict[str, dict[str, float]] = {}

    def run(self) -> None:
        asyncio.run(self._watch())

    def end(self) -> None:
        self._ended.set()
        self.join()

    async def _watch(self) -> None:
        async with Api(await connect()) as api:
            watching = asyncio.create_task(self._follow(api))
            while not self._ended.is_set() and not watching.done():
                await asyncio.sleep(0.1)
            if watching.done():
                watching.result()
            watching.cancel()

    async def _follow(self, api: Api) -> None:
        pages = [page async for page in api.pages(PODS, self._namespace, labels=self._labels)]
        version = pages[-1].version
        self.watching.set()
        while True:
            async for event in api.watch(PODS, self._namespace, version=version, labels=self._labels):
                version = event.object["metadata"]["resourceVersion"]
                if event.type != "BOOKMARK":
                    self._note(event.type, event.object)

    def _note(self, kind: str, pod: dict[str, Any]) -> None:
        name, now = pod["metadata"]["name"], time.time()
        self.pods.setdefault(name, pod)
        seen = self.times.setdefault(name, {})
        for moment in _moments(kind, pod):
            seen.setdefault(moment, now)

    def medians(self, first: str, *following: str) -> dict[str, float]:
        """Return how long after ``first`` the others are seen."""
        found = {}
        for moment in following:
            waits = [seen[moment] - seen[first] for seen in self.times.values() if moment in seen and first in seen]
            if waits:
                found[moment] = round(statistics.median(waits), 2)
        return found


def _moments(kind: str, pod: dict[str, Any]) -> Iterable[str]:
    yield "created"
    status = pod.get("status", {})
    for shown in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        for state in ("running", "terminated"):
            if state in shown["state"]:
                yield f"{shown['name']} {state}"
    if "deletionTimestamp" in pod["metadata"]:
        yield "deletion asked"
    if kind == "DELETED":
        yield "deleted"


def bare(pod: dict[str, Any], number: int) -> dict[str, Any]:
    """Return a pod of the same shape whose programs end at once."""
    about, spec = pod["metadata"], copy.deepcopy(pod["spec"])
    for name in ("nodeName", "serviceAccount", "serviceAccountName", "priority", "preemptionPolicy", "tolerations"):
        spec.pop(name, None)
    for container in [*spec["initContainers"], *spec["containers"]]:
        container["command"] = NOTHING[container["name"]]
    labels = {**about["labels"], names.RUN_LABEL: BARE}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"bare-{number}", "labels": labels, "annotations": about["annotations"]},
        "spec": spec,
    }


async def make_and_delete(namespace: str, shape: dict[str, Any], count: int, at_once: int, seen: Witness) -> float:
    """Make and delete bare pods. Returns pods a minute."""
    room = asyncio.Semaphore(at_once)

    async def one(api: Api, number: int) -> None:
        async with room:
            pod = bare(shape, number)
            name = pod["metadata"]["name"]
            await api.create(PODS, namespace, pod)
            while f"{names.AGENT} terminated" not in seen.times.get(name, {}):
                await asyncio.sleep(0.02)
            while f"{names.FREEZER} terminated" not in seen.times[name]:
                await asyncio.sleep(0.02)
            await api.delete(PODS, namespace, name)

    began = time.perf_counter()
    async with Api(await connect()) as api:
        await asyncio.gather(*(one(api, number) for number in range(count)))
    return count / (time.perf_counter() - began) * 60


DAEMONS = (
    "etcd",
    "kube-apiserver",
    "kube-scheduler",
    "kube-controller-manager",
    "kubelet",
    "containerd",
    "policy-agent",
)


def used_by_all(installed: Release) -> dict[str, float]:
    """Return the processor seconds that each service, and each daemon of the cluster, has used."""
    found = {}
    for namespace in (installed.system, installed.grader):
        for pod in installed.pods(namespace):
            folders = Path("/sys/fs/cgroup/cpuacct").rglob(f"pod{pod['metadata']['uid']}")
            found[pod["metadata"]["labels"]["app"]] = sum(_nanoseconds(folder) for folder in folders)
    found["all pods"] = _nanoseconds(Path("/sys/fs/cgroup/cpuacct/kubepods"))
    tick = os.sysconf("SC_CLK_TCK")
    for pid, words in processes():
        name = words[0].rpartition("/")[2]
        if name in DAEMONS:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found[name] = sum(int(field) for field in fields[11:15]) / tick  # and that of its children that have ended
    return found


def _nanoseconds(folder: Path) -> float:
    return int((folder / "cpuacct.usage").read_text()) / 1e9


class Meter(threading.Thread):
    """Reads the processor time of a run's driver, all processes of its container, until it is gone."""

    def __init__(self, runs: Runs, run: str) -> None:
        super().__init__(daemon=True)
        self._runs, self._run = runs, run
        self.readings: list[tuple[float, float]] = []

    def run(self) -> None:
        while not (drivers := self._runs.driver_processes(self._run)):
            time.sleep(0.2)
        usage = _account(drivers[0])
        while usage.exists():
            try:
                self.readings.append((time.time(), int(usage.read_text()) / 1e9))
            except (OSError, ValueError):
                return
            time.sleep(0.1)

    def used(self, since: float) -> tuple[float, float]:
        """Return the seconds in all, and those after a moment."""
        before = [used for at, used in self.readings if at <= since]
        return self.readings[-1][1], self.readings[-1][1] - (before[-1] if before else 0.0)


def _account(pid: int) -> Path:
    """Return the file with the processor time of a process's cgroup, in nanoseconds."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpuacct" in controllers.split(","):
            return Path("/sys/fs/cgroup", controllers, path.lstrip("/"), "cpuacct.usage")
    raise SystemExit("the processor time of a container is read from cgroup v1 here")


def trials(installed: Release, count: int, at_once: int, pool: str) -> tuple[dict[str, Any], Witness]:
    """Run trials. Returns what was measured, and what was seen."""
    runs = Runs(installed)
    with tempfile.TemporaryDirectory() as folder:
        suite = write_suite(Path(folder), (0,))
        seen = Witness(installed.trials, f"{names.COMPONENT}=trial,{names.RUN_LABEL}!={BARE}")
        seen.start()
        seen.watching.wait(30)
        before = used_by_all(installed)
        run = runs.submit(suite, ["nop"], "--samples", str(count), "-n", str(at_once), "--pool", pool)
        meter = Meter(runs, run)
        meter.start()
        runs.follow(run)
        meter.join(30)
    after = used_by_all(installed)
    left = runs.check(run)
    seen.end()
    first = min(times["created"] for times in seen.times.values())
    committed, graded = (_written(runs, run, what) for what in ("outcomes", "grades"))
    used, driving = meter.used(first)
    return {
        "trials_a_minute": round(count / (max(graded.values()) - first) * 60, 1),
        "driver_cpu_s_a_trial": round(driving / count, 4),
        "driver_cpu_s_a_trial_with_start": round(used / count, 4),
        "cpu_s_a_trial": {
            name: round((after[name] - spent) / count, 3) for name, spent in before.items() if name in after
        },
        "lost_launches": sum(left.causes.values()),
        "phases": {**_pod_phases(seen), **_store_phases(left), **_verdict_phases(seen, committed, graded)},
    }, seen


def _pod_phases(seen: Witness) -> dict[str, float]:
    containers = (names.PREPARE, names.AGENT, names.FREEZER)
    states = [f"{name} {state}" for name in containers for state in ("running", "terminated")]
    return seen.medians("created", *states, "deletion asked", "deleted")


def _store_phases(left: Left) -> dict[str, float]:
    results = [launches[-1].times for launches in left.outcomes.values()]
    return {
        "registered to started": round(statistics.median(times.setup_s for times in results), 2),
        "dead to committed": round(statistics.median(times.freeze_s for times in results), 2),
    }


def _verdict_phases(seen: Witness, committed: dict[str, float], graded: dict[str, float]) -> dict[str, float]:
    """Return how long verdicts took. The store's times are whole seconds: half of one is added where they meet others."""
    created = {
        pod["metadata"]["annotations"][names.TRIAL]: seen.times[name]["created"]
        for name, pod in seen.pods.items()
        if "created" in seen.times[name]
    }
    wholes = [graded[trial] + 0.5 - began for trial, began in created.items() if trial in graded]
    return {
        "committed to verdict, mean": round(statistics.fmean(graded[trial] - committed[trial] for trial in graded), 2),
        "created to verdict": round(statistics.median(wholes), 2),
    }


def _written(runs: Runs, run: str, what: str) -> dict[str, float]:
    """Return when each trial's last ``outcomes`` or ``grades`` was written, by the store's clock, which is this machine's."""
    import boto3
    from botocore.config import Config

    environment = Runs(runs.release, "reader").environment
    client = boto3.client(
        "s3",
        endpoint_url=environment["ORCHESTRATE_STORE"].rpartition("endpoint=")[2],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}),
    )
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="orchestrate", Prefix=f"store/{what}/{run}/")
    found: dict[str, float] = {}
    for each in (each for page in pages for each in page["Contents"]):
        trial = unquote(each["Key"].split("/")[3])
        found[trial] = max(found.get(trial, 0.0), each["LastModified"].timestamp())
    return found


def main(count: int = 60, at_once: int = 20, pool: str = "ray") -> dict[str, Any]:
    """Measure, and return the figures."""
    with release() as installed:
        installed.await_ready()
        measured, seen = trials(installed, count, at_once, pool)
        shape = next(iter(seen.pods.values()))
        watch = Witness(installed.trials, f"{names.RUN_LABEL}={BARE}")
        watch.start()
        watch.watching.wait(30)
        rate = asyncio.run(make_and_delete(installed.trials, shape, count, at_once, watch))
        phases = watch.medians("created", f"{names.AGENT} terminated", f"{names.FREEZER} terminated", "deleted")
        watch.end()
    return {
        "trials": count,
        "at_once": at_once,
        "pool": pool,
        **measured,
        "bare_pods_a_minute": round(rate, 1),
        "bare_phases": phases,
        "share": round(measured["trials_a_minute"] / rate, 2),
    }


if __name__ == "__main__":
    numbers, words = [int(word) for word in sys.argv[1:3]], sys.argv[3:4]
    print(json.dumps(main(*numbers, *words), indent=2))
