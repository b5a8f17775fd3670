"""``--pool ray`` on a cluster of the user's own, one node of which is another machine as far as it can tell."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_world import ROOT, STARTER, clean_environment
from fire import await_that
from ray_cluster import RayCluster, ray_cluster

sys.path.insert(0, str(Path(__file__).parent.parent / "storage"))

from s3_world import ADMIN, BUCKET, environment, own_server

from orchestrator.storage.open import open_store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a node a name and folders of its own"),
]
NODE = "node-b"


@pytest.fixture
def cluster(short_folder: Path) -> Iterator[RayCluster]:
    with ray_cluster(short_folder) as made:
        yield made


class Driver:
    """Submits to a cluster, from folders that its other node does not see."""

    def __init__(self, cluster: RayCluster, folder: Path) -> None:
        self.scratch = cluster.folder / "scratch"
        self.scratch.mkdir()
        self.folder = folder
        self.variables = {
            **clean_environment(),
            **cluster.variables,
            "RAY_ADDRESS": cluster.address,
            "ORCHESTRATE_SCRATCH": str(self.scratch),
            "ORCHESTRATE_STORE": str(folder / "store"),
            "ORCHESTRATE_SUPERVISORS": "6",  # Ray spreads them over its nodes, not evenly
        }

    def submit(self, samples: int = 8, *words: str) -> subprocess.Popen[str]:
        chosen = words or ("--agent", "oracle")
        command = ["submit", str(STARTER), "--tasks", "config-v2", *chosen, "--samples", str(samples)]
        return subprocess.Popen(
            [sys.executable, "-m", "orchestrator", *command, "--run-id", "r1", "--pool", "ray", "-n", "6"],
            cwd=self.folder,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def outcomes(self) -> list[dict]:
        """Return all outcomes in the store."""
        return asyncio.run(_all(self.variables["ORCHESTRATE_STORE"]))


async def _all(url: str) -> list[dict]:
    store = open_store(url)
    return [json.loads(await store.get(key)) for key in await store.list("outcomes/r1/")]


@pytest.fixture
def driver(cluster: RayCluster, tmp_path: Path) -> Driver:
    return Driver(cluster, tmp_path)


def hosts(outcomes: list[dict]) -> set[str]:
    return {NODE if outcome["writer_id"].startswith(f"{NODE}-") else "here" for outcome in outcomes}


def served_by(process: subprocess.Popen[str], samples: int) -> str:
    out, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert f"{samples}/{samples}  {samples} passed" in said
    assert "100.0%" in out
    return said


def test_another_node_takes_its_share_and_keeps_nothing(cluster: RayCluster, driver: Driver) -> None:
    own = cluster.folder / "own"
    with cluster.node(NODE, driver.scratch, ORCHESTRATE_SCRATCH=str(own)) as node:
        assert "connecting to Ray at" in served_by(driver.submit(), 8)
        assert hosts(driver.outcomes()) == {"here", NODE}
        assert await_that(lambda: not node.services())
        assert not [*own.iterdir()]
    assert not [*driver.scratch.iterdir()]


def test_a_killed_driver_leaves_no_service_on_another_node(cluster: RayCluster, driver: Driver) -> None:
    with cluster.node(NODE, driver.scratch) as node:
        process = driver.submit(24)
        assert await_that(lambda: NODE in hosts(driver.outcomes()), 120)
        assert node.services()
        process.kill()
        process.communicate()
        assert await_that(lambda: not node.services(), 120)


def test_a_bucket_serves_nodes_that_share_no_folder(
    short_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(ADMIN).items():
        monkeypatch.setenv(name, value)
    with own_server() as server, ray_cluster(short_folder) as cluster:
        driver = Driver(cluster, tmp_path)
        driver.variables["ORCHESTRATE_STORE"] = f"s3://{BUCKET}/runs?endpoint={server.endpoint}"
        with cluster.node(NODE, driver.scratch, driver.folder):
            served_by(driver.submit(), 8)
        assert hosts(driver.outcomes()) == {"here", NODE}


def test_a_node_that_dies_costs_a_launch_and_no_trial(cluster: RayCluster, driver: Driver) -> None:
    with cluster.node(NODE, driver.scratch) as node:
        process = driver.submit(24)
        assert await_that(lambda: NODE in hosts(driver.outcomes()), 120)
        node.kill()
        served_by(process, 24)
    results = Counter(each["trial"] for each in driver.outcomes() if each["outcome_class"] == "result")
    assert set(results.values()) == {1}
    assert len(results) == 24


def refused(driver: Driver, *words: str) -> str:
    """Submit; return what is said about the node that is not as the run needs it."""
    process = driver.submit(4, *words)
    _, said = process.communicate(timeout=240)
    print(said)
    assert process.returncode == 2, said
    assert not [each for each in driver.outcomes() if each["writer_id"].startswith(NODE)]
    found = [line for line in said.splitlines() if NODE in line]
    assert len(found) == 1, said
    return found[0]


def test_a_node_with_another_version_is_named(cluster: RayCluster, driver: Driver) -> None:
    other = cluster.folder / "other"
    for package in ("orchestrator", "grader_service"):
        shutil.copytree(ROOT / package, other / package)
    init = other / "orchestrator/__init__.py"
    init.write_text(init.read_text().replace('__version__ = "', '__version__ = "9.'))
    with cluster.node(NODE, driver.scratch, PYTHONPATH=str(other)):
        assert "install the same version on all nodes" in refused(driver)


def test_a_node_without_the_store_is_named(cluster: RayCluster, driver: Driver) -> None:
    (driver.folder / "store").mkdir()
    with cluster.node(NODE, driver.scratch, driver.folder / "store"):
        said = refused(driver)
    assert f"the store {driver.folder}/store is another one there" in said
    assert "use a store that all nodes reach" in said
