"""Runs on an installed release, started and followed as a person does, and what the store holds of them afterwards."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from installed_world import Release, ask, get, until

from orchestrator.driver.committed import load_committed
from orchestrator.plan.trials import all_trials
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.records.manifest import RunManifest
from orchestrator.records.outcome import Outcome
from orchestrator.records.verdict import Verdict
from orchestrator.sandbox.kubernetes import names
from orchestrator.storage.open import open_store

ROOT = Path(__file__).parents[2]
AGAIN = 5
"""The exit code of a run that may be resumed."""


@dataclass(frozen=True)
class Left:
    """What the store holds of a run: each trial's launches in order, and its verdicts."""

    planned: frozenset[TrialId]
    outcomes: dict[TrialId, list[Outcome]]
    verdicts: dict[TrialId, list[Verdict]]
    broken: list[str]
    """Blobs that a result names and that are not there, or are not what it says."""

    def problems(self) -> list[str]:
        """Return what is lost or doubled; empty when each trial has one result, one verdict on it, and an unbroken row of launches."""
        found = [*self.broken]
        found += [f"{trial}: not planned" for trial in {*self.outcomes, *self.verdicts} - self.planned]
        for trial in sorted(self.planned, key=str):
            launches = self.outcomes.get(trial, [])
            kinds = [each.outcome_class for each in launches]
            if [each.launch for each in launches] != list(range(1, len(launches) + 1)):
                found.append(f"{trial}: launches {[each.launch for each in launches]}")
            if kinds[-1:] != ["result"] or kinds.count("result") != 1:
                told = [f"{each.outcome_class} {each.cause or each.termination_reason}" for each in launches]
                found.append(f"{trial}: ended as {told}")
                continue
            verdicts = self.verdicts.get(trial, [])
            state = launches[-1].state
            if len(verdicts) != 1:
                found.append(f"{trial}: {len(verdicts)} verdicts")
            elif state is None or verdicts[0].state_sha256 != state.sha256 or verdicts[0].launch != launches[-1].launch:
                found.append(f"{trial}: its verdict is about another state")
        return found

    @property
    def causes(self) -> Counter[str]:
        """Return why launches were lost."""
        lost = (each for launches in self.outcomes.values() for each in launches if each.outcome_class == "infra")
        return Counter(each.cause or "?" for each in lost)

    @property
    def results(self) -> dict[str, tuple[str, str]]:
        """Return each trial's ending and result."""
        return {
            str(trial): (launches[-1].termination_reason, *(each.result for each in self.verdicts.get(trial, [])))
            for trial, launches in self.outcomes.items()
        }


@dataclass(frozen=True)
class Runs:
    """A person with a kubeconfig, the store's address and a key for it."""

    release: Release
    identity: str = "submitter"
    lines: list[str] = field(default_factory=list)
    """What the last command wrote to standard error."""

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of the command line."""
        address = get(f"/api/v1/namespaces/{self.release.system}/services/store")["spec"]["clusterIP"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ORCHESTRATE_", "AWS_"))}
        return {
            **kept,
            "ORCHESTRATE_STORE": f"s3://orchestrate/store?endpoint=http://{address}:8333",
            "ORCHESTRATE_KUBERNETES_DRIVERS_NAMESPACE": self.release.drivers,
            **self._credentials(),
        }

    def _credentials(self) -> dict[str, str]:
        """Return the keys for the store: of an identity that persons have, of the services' reader, or of the bundled store's ``admin``."""
        where = self.release.drivers if self.identity == "submitter" else self.release.system
        name = "orchestrate-store" if self.identity == "admin" else f"orchestrate-store-{self.identity}"
        data = get(f"/api/v1/namespaces/{where}/secrets/{name}")["data"]
        plain = {key: base64.b64decode(value).decode() for key, value in data.items()}
        if self.identity != "admin":
            return plain
        return {"AWS_ACCESS_KEY_ID": "admin", "AWS_SECRET_ACCESS_KEY": plain["admin"]}

    def cli(self, *arguments: str, seconds: float = 900, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
        """Run ``orchestrate``."""
        command = [sys.executable, "-m", "orchestrator", *arguments]
        done = subprocess.run(
            command, env=self.environment, cwd=cwd, capture_output=True, text=True, timeout=seconds, check=False
        )
        self.lines[:] = done.stderr.splitlines()
        return done

    def submit(self, suite: Path, agents: Iterable[str], *more: str) -> str:
        """Start a run and return its id; its driver is a Job from then on."""
        words = [word for agent in agents for word in ("--agent", agent)]
        done = self.cli("submit", str(suite), "--backend", "kubernetes", *words, "--yes", "--detach", *more)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-1]

    def follow(self, run: str, *, resumes: int = 3) -> None:
        """Follow a run to its end. What stopped for a failure of the cluster is gone on with, as a person would."""
        for _ in range(resumes + 1):
            done = self.cli("watch", run)
            if done.returncode == 0:
                return
            assert done.returncode == AGAIN, f"{done.returncode}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"
            done = self.cli("resume", run, "--detach")
            assert done.returncode == 0, done.stderr
        pytest.fail(f"run {run} did not end: {self.lines[-5:]}")

    def left(self, run: str) -> Left:
        """Read what the store holds."""
        environment = Runs(self.release, "reader").environment
        with pytest.MonkeyPatch.context() as patch:
            for name in environment:
                if name.startswith("AWS_"):
                    patch.setenv(name, environment[name])
            return asyncio.run(_read(environment["ORCHESTRATE_STORE"], run))

    def check(self, run: str) -> Left:
        """Fail unless nothing is lost and nothing doubled, in the store and in the cluster. Returns what is left."""
        left = self.left(run)
        assert not left.problems(), "\n".join([*left.problems(), str(left.causes)])
        until(lambda: all(is_over(pod) for pod in self.pods(run)), "none of the run's pods runs", 90)
        return left

    # --- what runs ---------------------------------------------------------------------------------------------------------------

    def pods(self, run: str) -> list[dict[str, Any]]:
        """Return the pods of the run's agents."""
        return self.release.pods(self.release.trials, f"{names.RUN_LABEL}={names.run_hash(run)}")

    def busy(self, run: str, count: int = 1, seconds: float = 420) -> list[dict[str, Any]]:
        """Wait until so many agents run. Returns their pods."""

        def running() -> list[dict[str, Any]]:
            found = [pod for pod in self.pods(run) if "running" in state(pod, names.AGENT)]
            return found if len(found) >= count else []

        return list(until(running, f"{count} agents run", seconds))

    def driver_processes(self, run: str, *, worker: bool = False) -> list[int]:
        """Return the processes of the run's driver on this node: the command, or the Ray actors that drive its trials."""
        found = [(pid, words) for pid, words in processes() if words[2:4] == ["resume", run]]
        if not worker:
            return [pid for pid, _ in found]
        spaces = {os.readlink(f"/proc/{pid}/ns/pid") for pid, _ in found}
        return [pid for pid, words in processes() if words[0] == "ray::SupervisorActor" and _space(pid) in spaces]


def is_over(pod: dict[str, Any]) -> bool:
    """Return whether a pod has ended: its driver was killed before it could delete it, and the reaper will."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def state(pod: dict[str, Any], container: str) -> dict[str, Any]:
    """Return the state of a container as the cluster shows it."""
    shown = pod["status"].get("containerStatuses", [])
    return next((each["state"] for each in shown if each["name"] == container), {})


def processes() -> Iterator[tuple[int, list[str]]]:
    """Return the processes of this node with their command lines."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0]:
            yield int(folder.name), [word.decode(errors="replace").strip() for word in words if word]


def _space(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def kill(pids: Iterable[int]) -> int:
    """Kill processes; returns how many there were."""
    return sum(_killed(pid) for pid in pids)


def _killed(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def daemon(name: str) -> list[int]:
    """Return the processes of a daemon of the test cluster, which starts it again. Skips where this is not its node."""
    home = Path(os.environ.get("KUBE_CACHE", Path.home() / ".cache" / "kube-node")) / "bin" / name
    found = [pid for pid, words in processes() if words[0] == str(home)]
    if not found:
        pytest.skip(f"{name} does not run on this machine from {home}")
    return found


def evict(namespace: str, name: str) -> int:
    """Ask for an eviction; returns the API server's status."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": namespace, "name": name}}
    return ask("POST", f"{path}/eviction", body).status


def steadily(action: Callable[[], object], times: int, seconds: float) -> None:
    """Do something several times, with pauses: this is what is tried, not waited for."""
    for _ in range(times):
        action()
        time.sleep(seconds)


# --- a suite ---------------------------------------------------------------------------------------------------------------------

TASK = """\
id: {name}
instruction: Write done into answer.txt.
checks: [{{id: answer, type: files, path: answer.txt, regex: "^done$"}}]
"""
SUITE = """\
id: patience
metric: pass_rate
defaults:
  environment:
    requires: [python3]
    resources: {cpu: 0.2, memory: 64Mi, disk: 16Mi, processes: 16}
  budgets: {max_steps: 2, max_tool_calls: 2, max_wall_seconds: 120, max_tokens: 1000}
"""


def write_suite(folder: Path, seconds: Sequence[int]) -> Path:
    """Write a suite with one task for each number of seconds that its solution takes."""
    suite = folder / "patience"
    suite.mkdir(parents=True)
    (suite / "suite.yaml").write_text(SUITE)
    for number, pause in enumerate(seconds, 1):
        task = suite / f"patience-{number}"
        for each in ("workspace", "solution"):
            (task / each).mkdir(parents=True)
        (task / "task.yaml").write_text(TASK.format(name=task.name))
        (task / "workspace" / "README.md").write_text("Nothing to see.\n")
        solve = task / "solution" / "solve.sh"
        solve.write_text(f"#!/bin/sh\nsleep {pause}\necho done > answer.txt\n")
        solve.chmod(0o755)
    return suite


# --- the store -------------------------------------------------------------------------------------------------------------------


async def _read(url: str, run: str) -> Left:
    store = open_store(url)
    manifest = RunManifest.from_bytes(await store.get(keys.manifest(run)), run)
    planned = frozenset(trial.id for trial in all_trials(manifest))
    outcomes = {trial: list(found) for trial, found in (await load_committed(store, run)).outcomes.items()}
    verdicts: dict[TrialId, list[Verdict]] = {}
    for trial in planned:
        for key in await store.list(keys.verdicts(run, trial)):
            if keys.parse_verdict(key) is not None:
                verdicts.setdefault(trial, []).append(Verdict.from_bytes(await store.get(key), key))
    broken = []
    for launches in outcomes.values():
        for outcome in launches:
            for blob in _blobs(outcome):
                data = await store.get(blob.key)
                if (len(data), hashlib.sha256(data).hexdigest()) != (blob.size, blob.sha256):
                    broken.append(f"{outcome.trial} launch {outcome.launch}: {blob.key} is not what it was")
    return Left(planned, outcomes, verdicts, broken)


def _blobs(outcome: Outcome) -> list[Any]:
    found = [outcome.output] if outcome.output else []
    return [*found, *([outcome.state.entries, outcome.state.changes] if outcome.state else [])]


def report(runs: Runs, run: str) -> dict[str, Any]:
    """Return the report of a run."""
    done = runs.cli("report", run, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))
