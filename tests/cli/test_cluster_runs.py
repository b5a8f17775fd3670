"""Runs that a Job of a cluster drives, from the command line: started, followed, stopped, and what is told when no driver comes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_world import STARTER
from played_cluster import IMAGE, PlayedCluster, Starter

from driver_job_world import add_pod  # isort: skip - found by what played_cluster does
from fault_server import FaultServer

from orchestrator.cli import run as run_commands
from orchestrator.cli import watching
from orchestrator.driver.execute import Execution
from orchestrator.driver.lease import Timing, drive_run
from orchestrator.driver.wishes import ask_to_stop, last_wish, lift
from orchestrator.records import keys
from orchestrator.records.lease import Claim, Process, Release, Wish
from orchestrator.sandbox.kubernetes import names
from orchestrator.storage.file import FileStore

Orchestrate = Callable[..., subprocess.CompletedProcess[str]]
SUBMIT = ("submit", STARTER, "--backend", "kubernetes", "--agent", "nop", "--samples", "1", "--tasks", "config-v2")


async def nobody(server: FaultServer, job: dict[str, Any]) -> None:
    """No pod is made of the Job."""


async def no_image(server: FaultServer, job: dict[str, Any]) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    await add_pod(server, job, phase="Pending", containerStatuses=[{"name": "driver", "state": {"waiting": waiting}}])


async def refused(server: FaultServer, job: dict[str, Any]) -> None:
    """The driver ends with a mistake of a person, before it takes the run."""
    ended = {"terminated": {"exitCode": 2, "reason": "Error"}}
    pod = await add_pod(server, job, phase="Failed", containerStatuses=[{"name": "driver", "state": ended}])
    server.logs[pod, "driver"] = b"provider 'acme' is gone\n"
    end(server, job)


def driven(store: FileStore, reason: str | None, detail: str = "by anna@box") -> Starter:
    """Return a starter whose driver takes the run, and lets it go for a reason."""

    async def start(server: FaultServer, job: dict[str, Any]) -> None:
        run = job["metadata"]["annotations"][names.RUN]
        await add_pod(server, job, phase="Running")
        process = Process(host="driver-pod", pid=1)
        claim = Claim(run=run, epoch=1, writer_id="w", process=process, at=1, term_s=15)
        await store.create(keys.claim(run, 1), claim.to_bytes())
        if reason is not None:
            let_go = Release(epoch=1, at=2, reason=reason, detail=detail)
            await store.create(keys.release(run, 1), let_go.to_bytes())
            end(server, job)

    return start


def end(server: FaultServer, job: dict[str, Any]) -> None:
    """Have a Job end as its policy says of a driver's exit code."""
    failed = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy"}
    key = ("jobs", job["metadata"]["namespace"], job["metadata"]["name"])
    server.objects.put("MODIFIED", key, {**job, "status": {"conditions": [failed]}})


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., PlayedCluster]:
    monkeypatch.setattr(watching, "_STUCK_SECONDS", 0.5)

    def made(starter: Starter, **data: str | None) -> PlayedCluster:
        found = PlayedCluster(tmp_path, starter, **data)
        monkeypatch.setattr("kubernetes.config.KUBE_CONFIG_DEFAULT_LOCATION", str(found.kubeconfig))  # read once
        return found

    return made


def test_a_run_is_left_to_the_cluster_and_found_again(in_process: Orchestrate, cluster, tmp_path: Path) -> None:
    with cluster(nobody) as played:
        done = in_process(*SUBMIT, "--run-id", "r1", "--detach", "-n", "3")
        assert (done.returncode, done.stdout) == (0, "r1\n"), done.stderr
        assert f"follow it: orchestrate watch r1 --store '{tmp_path}/store'" in done.stderr
        assert f"images: 1 task names none and runs in {IMAGE}" in done.stderr
        status = json.loads(in_process("status", "r1", "--store", tmp_path / "store", "--json").stdout)
        again = in_process("resume", "r1", "--store", tmp_path / "store")
        stopped = in_process("stop", "r1", "--store", tmp_path / "store")
        after = json.loads(in_process("status", "r1", "--store", tmp_path / "store", "--json").stdout)
    [job] = played.jobs
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["resume", "r1", "--unattended", "-n", "3"]
    manifest = json.loads((tmp_path / "store/runs/r1/manifest.json").read_text())
    assert manifest["tasks"][0]["environment"]["image"] == IMAGE
    assert status["job"] == f"Job {job['metadata']['name']} has not started its driver yet"
    assert status["next"].endswith("watch r1")
    assert again.returncode == 2
    assert "drives run r1 already" in again.stderr
    assert stopped.stdout == f"Job {job['metadata']['name']} was deleted: no driver had started\n"
    assert after["job"] == "there is no Job that drives it"


def test_a_driver_that_cannot_start_is_told_and_not_waited_for(in_process: Orchestrate, cluster) -> None:
    with cluster(no_image):
        done = in_process(*SUBMIT, "--run-id", "r1")
    assert done.returncode == 5
    assert "has not started its driver yet: ImagePullBackOff: Back-off pulling image" in done.stderr
    assert "it starts by itself once that is mended; 1 trial left; go on with: orchestrate resume r1" in done.stderr


def test_a_driver_that_refused_shows_its_last_words(in_process: Orchestrate, cluster) -> None:
    with cluster(refused):
        done = in_process(*SUBMIT, "--run-id", "r1")
    assert done.returncode == 5
    assert "its driver ended with exit code 2 (Error); the end of its log:\nprovider 'acme' is gone" in done.stderr


@pytest.mark.parametrize(("reason", "code"), [("stopped", 130), ("paused", 5), ("limit", 3)])
def test_following_ends_as_the_driver_did(
    in_process: Orchestrate, cluster, tmp_path: Path, reason: str, code: int
) -> None:
    with cluster(driven(FileStore(tmp_path / "store"), reason)):
        done = in_process(*SUBMIT, "--run-id", "r1")
    assert done.returncode == code, done.stderr
    assert "run r1 " in done.stdout


def test_what_the_cluster_refused_is_told_with_what_to_do(in_process: Orchestrate, cluster, tmp_path: Path) -> None:
    with cluster(driven(FileStore(tmp_path / "store"), "failed", "config-v2@nop:1: the policy forbids that image")):
        done = in_process(*SUBMIT, "--run-id", "r1")
    assert done.returncode == 5
    assert "failed: config-v2@nop:1: the policy forbids that image; 1 trial left; go on with:" in done.stderr


def test_a_run_that_was_stopped_before_is_followed_until_its_new_driver_ends(
    in_process: Orchestrate, cluster, tmp_path: Path
) -> None:
    store = FileStore(tmp_path / "store")

    async def stopped_then_refused(server: FaultServer, job: dict[str, Any]) -> None:
        first = job["metadata"]["name"].endswith("-1")
        await (driven(store, "stopped") if first else refused)(server, job)

    with cluster(stopped_then_refused):
        first = in_process(*SUBMIT, "--run-id", "r1")
        second = in_process("resume", "r1", "--store", tmp_path / "store")
    assert (first.returncode, second.returncode) == (130, 5)
    assert "provider 'acme' is gone" in second.stderr


def followed(store: FileStore, first: str, then: str) -> Starter:
    """Return a starter whose first driver is killed or lets go, and whose next one comes once a stop is wanted."""

    async def start(server: FaultServer, job: dict[str, Any]) -> None:
        run = job["metadata"]["annotations"][names.RUN]
        await add_pod(server, job, phase="Running")
        await claim(store, run, 1, term_s=0.3)
        if first != "killed":
            await store.create(keys.release(run, 1), Release(epoch=1, at=2, reason=first).to_bytes())

        async def next_one() -> None:
            while not await store.list(keys.wishes(run)):
                await asyncio.sleep(0.02)
            await asyncio.sleep(1.5)  # by then it is known that the first one is gone
            await claim(store, run, 2, term_s=15)
            if then == "resumed":
                await lift(store, run, await last_wish(store, run))
                return
            await store.create(keys.release(run, 2), Release(epoch=2, at=2, reason="stopped").to_bytes())

        tasks.append(asyncio.create_task(next_one()))

    tasks: list[asyncio.Task[None]] = []
    return start


async def claim(store: FileStore, run: str, epoch: int, term_s: float) -> None:
    process = Process(host="driver-pod", pid=epoch)
    made = Claim(run=run, epoch=epoch, writer_id="w", process=process, at=1, term_s=term_s)
    await store.create(keys.claim(run, epoch), made.to_bytes())


@pytest.mark.parametrize(
    ("first", "then", "code", "said"),
    [
        ("killed", "stopped", 0, "process 1 on driver-pod, which drives run r1, was asked to stop\nprocess 2 on"),
        ("yielded", "stopped", 0, "its next driver will stop it\nprocess 2 on driver-pod drove it and was stopped"),
        ("killed", "resumed", 5, "somebody has resumed run r1 meanwhile; stop it again with: orchestrate stop r1"),
    ],
)
def test_a_stop_is_followed_to_the_driver_that_carries_it_out(
    in_process: Orchestrate,
    cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: str,
    then: str,
    code: int,
    said: str,
) -> None:
    monkeypatch.setattr("orchestrator.cli.steer._SAY_SECONDS", 0.0)
    store = FileStore(tmp_path / "store")
    held = keys.claim("r1", 1) if first == "killed" else keys.release("r1", 1)
    with cluster(followed(store, first, then)):
        in_process(*SUBMIT, "--run-id", "r1", "--detach")
        while not asyncio.run(store.exists(held)):
            time.sleep(0.02)
        stopped = in_process("stop", "r1", "--store", tmp_path / "store")
    assert stopped.returncode == code, stopped.stderr
    assert said in stopped.stdout + stopped.stderr
    assert stopped.stderr.startswith("waiting")  # nobody is left alone with a command that says nothing


@pytest.mark.parametrize(("reason", "said"), [("ended", "drove it to its end"), ("stopped", "was stopped by anna@box")])
def test_a_run_that_was_let_go_has_no_next_driver_though_its_job_is_not_over_yet(
    in_process: Orchestrate, cluster, tmp_path: Path, reason: str, said: str
) -> None:
    store = FileStore(tmp_path / "store")

    async def lets_go(server: FaultServer, job: dict[str, Any]) -> None:
        await add_pod(server, job, phase="Running")
        process = Process(host=f"{job['metadata']['name']}-x7k2p", pid=1)
        made = Claim(run="r1", epoch=1, writer_id="w", process=process, at=1, term_s=15)
        await store.create(keys.claim("r1", 1), made.to_bytes())
        let_go = Release(epoch=1, at=2, reason=reason, detail="by anna@box")
        await store.create(keys.release("r1", 1), let_go.to_bytes())
        done.set()

    done = threading.Event()
    with cluster(lets_go):
        in_process(*SUBMIT, "--run-id", "r1", "--detach")
        assert done.wait(30)
        status = json.loads(in_process("status", "r1", "--store", tmp_path / "store", "--json").stdout)
        stopped = in_process("stop", "r1", "--store", tmp_path / "store")
    assert (status["job"], "resume r1" in status["next"]) == (None, True)
    assert stopped.stdout.startswith("nobody drives run r1: process 1 on ")
    assert said in stopped.stdout
    assert asyncio.run(last_wish(store, "r1")) is None


def test_a_person_who_resumes_lifts_a_stop_before_the_job_is_made(
    in_process: Orchestrate, cluster, tmp_path: Path
) -> None:
    store = FileStore(tmp_path / "store")
    seen: list[str | None] = []

    async def refuses(server: FaultServer, job: dict[str, Any]) -> None:
        wish = await last_wish(store, "r1")
        seen.append(None if wish is None else wish.wants)
        await refused(server, job)

    with cluster(refuses):
        in_process(*SUBMIT, "--run-id", "r1")
        asyncio.run(ask_to_stop(store, "r1"))
        in_process("resume", "r1", "--store", tmp_path / "store")
    assert seen == [None, "go_on"]


def test_a_run_that_was_stopped_again_and_again_goes_on_when_it_is_resumed(
    in_process: Orchestrate, cluster, tmp_path: Path
) -> None:
    store = FileStore(tmp_path / "store")
    heard: list[list[int]] = []

    async def drives(server: FaultServer, job: dict[str, Any]) -> None:
        """What a driver's process does as far as stops go."""
        await add_pod(server, job, phase="Running")
        wishes: list[int] = []

        async def stop(wish: Wish) -> None:
            wishes.append(wish.number)

        async def live() -> None:
            async with drive_run(store, "r1", "w", timing=Timing(term_s=6), attended=False) as lease:
                lease.on_stop = stop
                await lease.heed()
                lease.ending = ("ended", "")
                if not heard:
                    taken.set()
                    while not again.is_set():
                        await asyncio.sleep(0.02)
                    await lease.heed()
                    lease.ending = ("stopped", "by anna@box")
            heard.append(wishes)
            end(server, job)

        alive.append(asyncio.create_task(live()))

    taken, again = threading.Event(), threading.Event()
    alive: list[asyncio.Task[None]] = []
    at = ("--store", tmp_path / "store")
    with cluster(drives) as played:
        in_process(*SUBMIT, "--run-id", "r1", "--detach")
        assert taken.wait(30)
        stops = [in_process("stop", "r1", "--no-wait", *at).stdout for _ in range(2)]
        again.set()
        stops.append(in_process("stop", "r1", *at).stdout)
        stops.append(in_process("stop", "r1", *at).stdout)
        resumed = in_process("resume", "r1", *at)
    assert "was asked to stop by " in stops[1]
    assert "was stopped by anna@box" in stops[2]
    assert stops[3].startswith("nobody drives run r1: ")
    assert (len(played.jobs), heard) == (2, [[1], []]), resumed.stderr


DRIVER = """
[kubernetes]
driver = "here"
namespaces = ["trials-0"]
pod_image = "{image}"
task_image = "{image}"
gateways = ["http://127.0.0.1:1"]
agent_gateways = ["127.0.0.1:1"]
relay = "http://127.0.0.1:1"
grader = "http://127.0.0.1:1"
gateway_token_file = "token"
grader_token_file = "token"
"""


def test_a_driver_begins_with_no_run_whose_pods_are_refused(in_process: Orchestrate, cluster, tmp_path: Path) -> None:
    async def denies(server: FaultServer, job: dict[str, Any]) -> None:
        server.remember("trials-0")
        server.inject("policy_denies", verb="create", resource="pods", times=100)
        ready.set()

    ready = threading.Event()
    with cluster(denies):
        in_process(*SUBMIT, "--run-id", "r1", "--detach")
        assert ready.wait(30)
        (tmp_path / "token").write_text("t" * 40)
        (tmp_path / "orchestrate.toml").write_text(DRIVER.format(image=IMAGE))
        driver = in_process("resume", "r1", "--unattended", "--store", tmp_path / "store")
        again = in_process(*SUBMIT, "--run-id", "r2", "--store", tmp_path / "store")
    for refusal in (driver, again):
        assert refusal.returncode == 2, refusal.stderr
        assert f"image {IMAGE}, user agent, isolation container: the cluster could not create " in refusal.stderr
        assert "ValidatingAdmissionPolicy 'orchestrate' with binding 'b' denied request: no class" in refusal.stderr
    store = FileStore(tmp_path / "store")
    assert asyncio.run(store.list(keys.claims("r1"))) == []
    assert not asyncio.run(store.exists(keys.manifest("r2")))


def test_a_complete_run_shows_its_report_and_leaves_the_dataset_to_its_driver(
    in_process: Orchestrate, cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed: list[str] = []

    async def commit(store: Any, settings: Any, run: str) -> None:
        committed.append(run)

    monkeypatch.setattr(run_commands, "_commit_rows", commit)
    monkeypatch.setattr("orchestrator.driver.execute.nothing_left", lambda left: Execution(0, 0, (), None))
    with cluster(nobody) as played:
        in_process(*SUBMIT, "--run-id", "r1", "--detach")
        remote = in_process("resume", "r1", "--store", tmp_path / "store")
        (tmp_path / "orchestrate.toml").write_text('[kubernetes]\ndriver = "here"\n')
        its_driver = in_process("resume", "r1", "--store", tmp_path / "store")
    assert "run r1 " in remote.stdout, remote.stderr
    assert "run r1 " in its_driver.stdout, its_driver.stderr
    assert (committed, len(played.jobs)) == (["r1"], 1)


def test_another_version_is_refused_before_anything_is_written(
    in_process: Orchestrate, cluster, tmp_path: Path
) -> None:
    with cluster(nobody, version="9.9.9") as played:
        done = in_process(*SUBMIT)
    assert done.returncode == 2
    assert "drivers of this cluster run orchestrate 9.9.9" in done.stderr
    assert (played.jobs, (tmp_path / "store").exists()) == ([], False)


def test_what_only_a_driver_does_is_refused_elsewhere(in_process: Orchestrate, cluster, tmp_path: Path) -> None:
    with cluster(nobody):
        tried = in_process("try", STARTER / "config-v2", "--agent", "nop", "--backend", "kubernetes")
        (tmp_path / "orchestrate.toml").write_text('[kubernetes]\ndriver = "here"\n')
        outside = in_process(*SUBMIT)
    assert (tried.returncode, outside.returncode) == (2, 2)
    assert "runs on a cluster are driven there, by a Job: use submit, resume, or rerun" in tried.stderr
    assert "kubernetes.driver is 'here', and the settings do not say what a driver needs: " in outside.stderr
    assert "kubernetes.gateways, kubernetes.agent_gateways, kubernetes.relay, kubernetes.grader" in outside.stderr
    assert not (tmp_path / "store").exists()


def test_the_driver_s_own_log_is_read(in_process: Orchestrate, cluster, tmp_path: Path) -> None:
    with cluster(refused):
        in_process(*SUBMIT, "--run-id", "r1", "--detach")
        store = ("--store", tmp_path / "store")
        for words in (("--driver",), ("--driver", "--follow")):
            assert in_process("logs", "r1", *words, *store).stdout == "provider 'acme' is gone\n"
