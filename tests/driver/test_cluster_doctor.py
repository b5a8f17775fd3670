"""What ``doctor --backend kubernetes`` says of a cluster: rights, clocks, guards, and what its pods left as their last words."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from driver_job_world import DRIVERS, here, install
from fault_server import FaultServer

from orchestrator import wiring
from orchestrator.driver.doctor import examine
from orchestrator.driver.kubernetes import doctor, doctor_pods
from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.pod import survey
from orchestrator.settings import Kubernetes, Settings
from orchestrator.storage.health import Fact

DRIVER = Settings(
    backend="kubernetes",
    kubernetes=Kubernetes(driver="here", namespaces=("trials-0",), pod_image="pod@sha256:1", priority_class="trial"),
)


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Sequence[Fact]]:
    """Return what runs one check on a played API server that was prepared before."""

    async def looked(check: Callable[[Settings], Any], prepare: Callable[[FaultServer], None]) -> Sequence[Fact]:
        async with FaultServer(kubelet=False) as server, Api(server.connection) as api:

            @contextlib.asynccontextmanager
            async def cluster_api(table: object) -> AsyncIterator[Api]:
                yield api

            monkeypatch.setattr(wiring, "cluster_api", cluster_api)
            prepare(server)
            return await check(DRIVER)

    return lambda check, prepare=lambda server: None: asyncio.run(looked(check, prepare))


def test_an_old_cluster_is_a_problem(look) -> None:
    def old(server: FaultServer) -> None:
        server.git_version = "v1.29.4"  # the played server tells its numbers by it

    assert [each.state for each in look(doctor.cluster)] == ["ok", "ok"]
    facts = look(doctor.cluster, old)
    assert facts[0].state == "problem"
    assert "v1.29.4" in facts[0].said


@pytest.mark.parametrize(
    ("ahead", "passed", "state", "said"),
    [
        (-0.9, 0.1, "ok", "to the second"),
        (20.0, 0.1, "ok", "19 s off"),
        (-600.0, 2.0, "problem", "differ by 597 s"),
        (40.0, 30.0, "ok", "9 s off"),
    ],
)
def test_clocks(ahead: float, passed: float, state: str, said: str) -> None:
    fact = doctor._clock(ahead, passed)
    assert fact.state == state
    assert said in fact.said


@pytest.mark.parametrize("said", ["", "mine"])
def test_the_store_that_is_looked_at_is_the_one_that_submit_would_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    seen: list[str] = []

    async def health(url: str) -> list[Fact]:
        seen.append(url)
        return [Fact(state="ok", said="writable")]

    async def looked(settings: Settings) -> Sequence[Fact]:
        async with FaultServer(kubelet=False) as server, Api(server.connection) as api:
            await install(api)

            @contextlib.asynccontextmanager
            async def cluster_api(table: object) -> AsyncIterator[Api]:
                yield api

            monkeypatch.setattr(wiring, "cluster_api", cluster_api)
            return await examine._store(settings)

    monkeypatch.setattr(examine, "store_health", health)
    settings = here(tmp_path, 'backend = "kubernetes"\n' + (f'store = "{said}"\n' if said else ""))
    facts = asyncio.run(looked(settings))
    [shown] = [each for each in examine.shown_settings(settings) if each.name == "store"]
    if said:
        assert (seen, shown.value) == ([str(tmp_path / said)], str(tmp_path / said))
    else:
        assert seen == ["s3://theirs/runs"]
        assert facts[0].said == f"s3://theirs/runs, as configmap {DRIVERS}/orchestrate-driver says"
        assert str(tmp_path) not in shown.value


def test_rights_that_lack_and_rights_too_many_are_named(look) -> None:
    def prepare(server: FaultServer) -> None:
        server.denied |= {("delete", "pods"), ("update", "leases")}

    facts = look(doctor.rights, prepare)
    assert [each.state for each in facts] == ["problem", "warning"]
    assert facts[0].said == "may not: delete pods in trials-0, update leases in trials-0"
    assert "create pods/exec in trials-0" in facts[1].said

    def exact(server: FaultServer) -> None:
        server.denied |= {("create", "pods/exec"), ("create", "pods/attach"), ("get", "secrets")}

    [fact] = look(doctor.rights, exact)
    assert fact.state == "ok"


def test_a_namespace_without_guards_is_told_what_it_takes(look) -> None:
    facts = look(doctor.guards)  # the played server refuses nothing
    assert [each.state for each in facts] == ["problem", "problem"]
    assert "no Pod Security level restricted" in facts[0].said
    for what in ("no network class", "the node's network", "a Secret as a volume", "a foreign image"):
        assert what in facts[1].said


def test_who_makes_no_pods_is_told_where_they_are_tried(look) -> None:
    def prepare(server: FaultServer) -> None:
        server.denied.add(("create", "pods"))

    for check in (doctor.guards, doctor.pods):
        [fact] = look(check, prepare)
        assert fact.state == "ok"
        assert "`helm test` looks" in fact.said


def words(opened: list[str], threads: int = 900) -> dict[str, Any]:
    message = json.dumps({"opened": opened, "threads": threads})
    ended = {"name": doctor_pods.DOCTOR, "state": {"terminated": {"exitCode": 0, "message": message}}}
    return {"status": {"phase": "Succeeded", "containerStatuses": [ended]}}


TARGETS = doctor._Targets(
    denied=("10.0.0.1:443", "10.0.0.2:53"), allowed=("10.0.0.9:8080",), alive=frozenset({"10.0.0.1:443"})
)


@pytest.mark.parametrize(
    ("pod", "states", "said"),
    [
        (words(["10.0.0.9:8080"]), ["ok", "ok", "ok"], "reaches none of 2 places that it may not, 1 of them alive"),
        (words(["10.0.0.9:8080", "10.0.0.2:53"]), ["ok", "problem", "ok"], "a trial's pod reaches 10.0.0.2:53"),
        (words([]), ["ok", "ok", "problem", "ok"], "does not reach the gateway at 10.0.0.9:8080"),
        (words(["10.0.0.9:8080"], 4200), ["ok", "ok", "warning"], "more than 4,200 processes and threads"),
        ({"status": {"phase": "Pending"}}, ["problem"], "a trial's pod does not start: Pending"),
    ],
)
def test_what_a_pod_saw(pod: dict[str, Any], states: list[str], said: str) -> None:
    facts = doctor._looked(pod, TARGETS)
    assert [each.state for each in facts] == states
    assert any(said in each.said for each in facts)


def test_what_a_full_disk_does() -> None:
    assert doctor._filled({"status": {"phase": "Failed", "reason": "Evicted"}})[0].state == "ok"
    assert doctor._filled({"status": {"phase": "Running"}})[0].state == "warning"


def test_the_survey_counts_threads_and_sees_what_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert survey.opens(f"127.0.0.1:{listening.getsockname()[1]}")
    assert not survey.opens("127.0.0.1:1")
    before = threading.stack_size()
    assert survey.threads(20) == 20
    assert threading.stack_size() == before


def test_the_survey_fills_a_folder_and_leaves_its_words(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "MESSAGE", str(tmp_path / "message"))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    assert survey.main(["look", json.dumps({"targets": ["127.0.0.1:1"], "threads": 3})]) == 0
    assert json.loads((tmp_path / "message").read_text()) == {"opened": [], "threads": 3}
    assert survey.main(["fill", str(tmp_path), "2"]) == 0
    assert (tmp_path / "full").stat().st_size == 2 << 20
