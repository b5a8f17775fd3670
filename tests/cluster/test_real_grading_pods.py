"""Hidden tests in real grading pods: verdicts as on one machine, hostile subjects, failures that are ours."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "service"))

from grader_world import RUN, TRIAL, Files, GraderWorld, lines
from grading_cluster import GradingCluster, grading, need_the_cluster, run

from grader_service.grade import grade
from grader_service.programs import lay_programs
from orchestrator.errors import SandboxError
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.records.manifest import RunManifest
from orchestrator.records.verdict import Verdict
from orchestrator.sandbox.kubernetes.resources import PODS, Resource
from orchestrator.storage.bundles import BundleCache
from orchestrator.storage.file import FileStore

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

BEFORE: Files = {"src/auth.py": "def check(user, password):\n    return True\n"}
RIGHT: Files = {"src/auth.py": "def check(user, password):\n    return bool(password)\n"}
HIDDEN: Files = {
    "tests/test_auth.py": """
        from subject import call

        def test_empty_password_is_refused():
            assert call("auth:check", "alice", "") is False

        def test_password_is_accepted():
            assert call("auth:check", "alice", "secret") is True
        """,
    "expected.txt": "tests/test_auth.py::test_empty_password_is_refused\ntests/test_auth.py::test_password_is_accepted\n",
}
CHECK: dict[str, Any] = {
    "id": "hidden_tests",
    "type": "command",
    "run": "python3 -m pytest -q hidden/tests",
    "results": "junit",
    "expect": "hidden/expected.txt",
    "pythonpath": ["src"],
}


@pytest.fixture
def world(short_folder: Path) -> GraderWorld:
    need_the_cluster()
    return GraderWorld(short_folder, lay_programs(short_folder / "programs"))


def graded(world: GraderWorld, after: Files, hidden: Files | None = None, **fields: Any) -> Verdict:
    world.task(BEFORE, [CHECK], hidden=HIDDEN if hidden is None else hidden, **fields)
    world.left(after)
    verdict: Verdict = run(lambda cluster: cluster.grade(world))
    return verdict


def alike(pod: Verdict, local: Verdict) -> None:
    """The same results for the same reasons; only digests, seconds and what the agent's code draws by chance differ."""

    def core(verdict: Verdict) -> str:
        checks = [check.model_dump_json(exclude={"seconds"}) for check in (*verdict.checks, *verdict.invariants)]
        return re.sub(r"[0-9a-f]{8,}", "…", "\n".join(checks))

    assert (pod.result, core(pod)) == (local.result, core(local))


@pytest.mark.parametrize(
    "after", [RIGHT, BEFORE, {"src/auth.py": "import os\nos._exit(0)\n"}], ids=["right", "untouched", "exits"]
)
def test_a_verdict_is_the_same_as_on_one_machine(world: GraderWorld, after: Files) -> None:
    verdict = graded(world, after)
    alike(verdict, world.grade())
    assert verdict.grader_digest != world.grade().grader_digest


def test_all_command_checks_of_a_verdict_share_one_pod(world: GraderWorld) -> None:
    shell = {"id": "shell", "type": "command", "run": "cat hidden/expected.txt >/dev/null"}
    world.task(BEFORE, [CHECK, shell], hidden=HIDDEN)
    world.left(RIGHT)

    async def scene(cluster: GradingCluster) -> tuple[Verdict, int]:
        async with cluster.pairs() as pairs:
            verdict = await grade(grading(world, pairs), RUN, TRIAL)
            return verdict, pairs._creator.requests["create"]

    verdict, created = run(scene)
    assert verdict.result == "passed", lines(verdict)
    assert created == 1


EVIL = """
import os, socket, urllib.request, urllib.error

def sees():
    places = ["/workspace/hidden", "/grader/runner", "/volumes", "/var/run/secrets", "/line/line"]
    found = [place for place in places if os.path.exists(place)]
    found += [name for name in os.environ if "TOKEN" in name or "GRADER" in name]
    for root, _, files in os.walk("/grader"):
        for name in files:
            with open(f"{root}/{name}", errors="replace") as file:
                if "CANARY" + "-OF-THE-HIDDEN" in file.read():
                    found.append(f"{root}/{name}")
    return found

def writes(places):
    found = []
    for place in places:
        try:
            with open(f"{place}/new", "w") as file:
                file.write("x")
        except OSError:
            continue
        found.append(place)
    return found

def reads(path):
    try:
        with open(path, "rb") as file:
            return len(file.read())
    except OSError as error:
        return type(error).__name__

def kills(number):
    try:
        os.kill(1, number)
    except PermissionError:
        return "refused"

def connects(host, port):
    try:
        with socket.create_connection((host, port), 1):
            return True
    except OSError:
        return False

def asks(url, token):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code

def takes_memory():
    return len(b"x" * (1 << 34))

def forks():
    while True:
        os.fork()

def fills(folder):
    with open(f"{folder}/big", "wb") as file:
        while True:
            file.write(b"x" * (1 << 20))
"""


def attacked(port: int, body: str) -> Files:
    return {
        "tests/test_evil.py": f"# CANARY-OF-THE-HIDDEN\nfrom subject import call, SubjectDied\nimport pytest\nPORT = {port}\n{body}"
    }


def test_a_hostile_subject_sees_and_reaches_nothing(world: GraderWorld) -> None:
    body = """
def test_sees(): assert call("evil:sees") == []
def test_writes(): assert call("evil:writes", ["/grader", "/grader/state", "/grader/lib", "/line", "/", "/etc"]) == []
def test_reads(): assert call("evil:reads", "/proc/1/environ") == call("evil:reads", "/proc/1/mem") == "PermissionError"
def test_kills(): assert [call("evil:kills", n) for n in (9, 15, 19, 11)] == ["refused"] * 4
PLACES = [("198.18.96.1", 443), ("198.18.0.1", 6443), ("198.18.0.1", 10250), ("198.18.96.10", 53), ("169.254.169.254", 80)]
@pytest.mark.parametrize("place", PLACES)
def test_connects(place): assert call("evil:connects", *place) is False
@pytest.mark.parametrize("way", ["inputs", "x"])
def test_asks(way): assert [call("evil:asks", f"http://198.18.0.1:{PORT}/grading/{way}", t) for t in ("", "guess")] == [401, 401]
"""
    check = {**CHECK, "results": "junit", "expect": None}

    async def scene(cluster: GradingCluster) -> Verdict:
        await asyncio.to_thread(world.task, BEFORE, [check], hidden=attacked(cluster.port, body))
        await asyncio.to_thread(world.left, {"src/evil.py": EVIL})
        return await cluster.grade(world)

    verdict = run(scene)
    assert verdict.result == "passed", lines(verdict)


SPENDING = {
    "memory": 'call("evil:takes_memory")',
    "processes": 'call("evil:forks")',
    "disk": 'call("evil:fills", "/tmp")',
}


@pytest.mark.parametrize("name", SPENDING)
def test_a_subject_that_takes_too_much_fails_and_is_no_failure_of_ours(world: GraderWorld, name: str) -> None:
    hidden = attacked(0, f"def test_it(): {SPENDING[name]}\n")
    environment = {"requires": ["python3"], "resources": {"memory": "128Mi", "disk": "64Mi", "processes": 64}}
    verdict = graded(
        world,
        {"src/evil.py": EVIL},
        {**hidden, "expected.txt": "tests/test_evil.py::test_it\n"},
        environment=environment,
    )
    assert verdict.result == "failed", lines(verdict)
    assert verdict.error is None


def test_a_deleted_pod_is_our_failure_and_leaves_nothing(world: GraderWorld) -> None:
    world.task(BEFORE, [CHECK], hidden={**HIDDEN, "tests/conftest.py": "import time\ntime.sleep(60)\n"})
    world.left(RIGHT)

    async def scene(cluster: GradingCluster) -> str:
        async with cluster.pairs() as pairs:
            asking = asyncio.create_task(grade(grading(world, pairs), RUN, TRIAL))
            while not any(pod["status"].get("phase") == "Running" for pod in await cluster.pods()):
                await asyncio.sleep(0.2)
            (pod,) = await cluster.pods()
            await cluster.api.delete(PODS, cluster.namespace, pod["metadata"]["name"])
            with pytest.raises(SandboxError) as caught:
                await asking
            while await cluster.pods():
                await asyncio.sleep(0.2)
            return caught.value.cause

    assert run(scene) == "pod_deleted"
    assert world.stored_verdicts() == []


def test_a_pod_whose_grader_died_ends_by_itself_and_is_deleted_by_the_next(world: GraderWorld) -> None:
    world.task(BEFORE, [CHECK], hidden={**HIDDEN, "tests/conftest.py": "import time\ntime.sleep(3)\n"})
    world.left(RIGHT)

    async def scene(cluster: GradingCluster) -> list[int]:
        counts = []
        async with cluster.pairs(owner="me") as pairs:
            pairs._creator.delete = _nothing  # as if it had been killed
            asking = asyncio.create_task(grade(grading(world, pairs), RUN, TRIAL))
            while not any(pod["status"].get("phase") == "Running" for pod in await cluster.pods()):
                await asyncio.sleep(0.2)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            counts.append(len(await cluster.pods()))
        async with cluster.pairs(owner="me") as pairs:
            while await cluster.pods():
                await asyncio.sleep(0.2)
        counts.append(len(await cluster.pods()))
        return counts

    async def _nothing(*_: Any, **__: Any) -> bool:
        return False

    assert run(scene) == [1, 0]


KEPT: Files = {
    "tests/test_auth.py": HIDDEN["tests/test_auth.py"]
    + """
        from subject import script

        LEAVE = '''
        import ctypes, os
        libc = ctypes.CDLL(None)
        asked = [libc.shmget(4711, 0, 0), libc.msgget(4711, 0), libc.semget(4711, 0, 0)]
        result = [number >= 0 for number in asked] + [os.path.exists("/tmp/kept"), os.path.exists("src/kept")]
        made = [libc.shmget(4711, 4096, 0o1600), libc.msgget(4711, 0o1600), libc.semget(4711, 1, 0o1600)]
        assert min(made) >= 0
        for place in ("/tmp/kept", "src/kept"): open(place, "w").close()
        open("src/auth.py", "a").write("# more")
        result += [open("src/auth.py").read().count("more") > 1, libc.syscall(240, b"kept", 66, 0o600, None) >= 0]
        '''

        def test_nothing_is_kept_from_one_request_to_the_next():
            assert [any(script(LEAVE)) for _ in range(3)] == [False] * 3
        """,
    "expected.txt": HIDDEN["expected.txt"] + "tests/test_auth.py::test_nothing_is_kept_from_one_request_to_the_next\n",
}
CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)


@pytest.mark.parametrize(
    ("after", "result"), [(RIGHT, "passed"), ({"src/auth.py": "import os\nwhile True: os.fork()\n"}, "failed")]
)
def test_a_task_that_asks_for_gvisor_is_graded_under_it(world: GraderWorld, after: Files, result: str) -> None:
    kernel = {"id": "kernel", "type": "command", "run": "grep -qi gvisor /proc/version"}
    environment = {"requires": ["python3"], "isolation": "gvisor", "resources": {"processes": 64}}
    world.task(BEFORE, [CHECK, kernel], hidden=KEPT, environment=environment)
    world.left(after)

    async def scene(cluster: GradingCluster) -> Verdict | None:
        if await cluster.api.find(CLASSES, "", "gvisor") is None:
            return None
        return await cluster.grade(world, runtime_classes={"gvisor": "gvisor"})

    verdict = run(scene)
    if verdict is None:
        pytest.skip("the cluster has no RuntimeClass gvisor")
    assert verdict.result == result, lines(verdict)
    assert {check.id: check.passed for check in verdict.checks} == {"hidden_tests": result == "passed", "kernel": True}


@pytest.mark.parametrize("isolation", ["container", "gvisor"])
def test_a_subject_that_a_kernel_refuses_something_is_no_score(world: GraderWorld, isolation: str) -> None:
    server = world.tools().programs.lib / "grader_service/subject/server.py"
    server.write_text(f"{server.read_text()}\ndef protect(): raise PermissionError('not on this kernel')\n")
    world.task(BEFORE, [CHECK], hidden=HIDDEN, environment={"requires": ["python3"], "isolation": isolation})
    world.left(RIGHT)

    async def scene(cluster: GradingCluster) -> SandboxError | None:
        if isolation == "gvisor" and await cluster.api.find(CLASSES, "", "gvisor") is None:
            return None
        with pytest.raises(SandboxError) as caught:
            await cluster.grade(world, runtime_classes={"gvisor": "gvisor"})
        return caught.value

    error = run(scene)
    if error is None:
        pytest.skip("the cluster has no RuntimeClass gvisor")
    assert error.cause == "grading_subject", error
    assert world.stored_verdicts() == []


@pytest.mark.timeout(600)
def test_verdicts_of_the_starter_suite_are_the_local_ones(world: GraderWorld) -> None:
    root, store = Path(__file__).parents[2], world.folder / "starter"
    words = [
        "submit",
        str(root / "tasks/starter"),
        "--agent",
        "oracle",
        "--agent",
        "nop",
        "--agent",
        str(root / "manifests/agents/sloppy.yaml"),
    ]
    words += [
        "--samples",
        "1",
        "--backend",
        "bubblewrap",
        "--store",
        str(store),
        "--run-id",
        "starter",
        "--yes",
        "--json",
    ]
    subprocess.run([sys.executable, "-m", "orchestrator", *words], cwd=world.folder, check=True, capture_output=True)
    files = FileStore(store)

    async def scene(cluster: GradingCluster) -> dict[TrialId, tuple[Verdict, Verdict]]:
        manifest = RunManifest.from_bytes(await files.get(keys.manifest("starter")), "manifest")
        trials = [TrialId(task.id, agent.name, 1) for task in manifest.tasks for agent in manifest.agents]
        local = await asyncio.gather(*(_stored(files, trial) for trial in trials))
        async with cluster.pairs(pods=3) as pairs:
            there = replace(grading(world, pairs), store=files, bundles=BundleCache(files, world.folder / "cache"))
            graded = await asyncio.gather(*(grade(there, "starter", trial) for trial in trials))
        return dict(zip(trials, zip(graded, local, strict=True), strict=True))

    found = run(scene)
    assert len(found) >= 36
    assert {verdict.result for verdict, _ in found.values()} == {"passed", "failed"}
    for verdict, local in found.values():
        alike(verdict, local)


async def _stored(files: FileStore, trial: TrialId) -> Verdict:
    (key,) = [key for key in await files.list(keys.verdicts("starter", trial)) if "/tries/" not in key]
    return Verdict.from_bytes(await files.get(key), key)
