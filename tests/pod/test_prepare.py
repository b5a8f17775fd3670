"""prepare: the network proved, bundles laid, the launch begun; or a typed refusal."""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pod_double import DROP, TORN, Double, PodFolders, closed_port, listening, sandbox_bundle
from supervised_world import supervisor

from orchestrator.sandbox.keeper.lay import Listing, read_pristine
from orchestrator.spec.bundle import Bundle, Item

QUICK = (
    "proof.ROUND_SECONDS = 0.05; proof.CANARY_SECONDS = 0.3; prepare.GATEWAY_SECONDS = 1.5; talk._FIRST_PAUSE = 0.02"
)


@pytest.fixture
def double() -> Iterator[Double]:
    with Double() as server:
        server.canaries = [closed_port()]
        yield server


@pytest.fixture
def pod(tmp_path: Path, double: Double) -> PodFolders:
    return PodFolders(tmp_path / "pod", double)


def inputs(digest: str, *folders: tuple[str, str, bool]) -> list[dict[str, object]]:
    return [
        {"audience": "sandbox", "digest": digest, "folder": folder, "target": target, "writable": writable}
        for folder, target, writable in folders
    ]


def with_task(pod: PodFolders) -> str:
    digest = pod.double.add(sandbox_bundle())
    pod.plan["inputs"] = inputs(
        digest, ("workspace", "/workspace", True), ("task", "/task", False), ("memory", "/memory", False)
    )
    return digest


def prepared(pod: PodFolders) -> int:
    return pod.run("prepare.prepare", settings=QUICK)


def test_everything_is_where_the_agent_finds_it(pod: PodFolders):
    digest = with_task(pod)
    agent = pod.double.add(Bundle.of([Item("main.py", data=b"agent")]))
    pod.plan["inputs"] += inputs(agent, ("", "/agent", False))
    pod.plan["own"] = [{"program": "react", "target": "/react"}]
    assert prepared(pod) == 0, pod.stderr
    assert pod.double.count(f"GET /launch/bundle/sandbox/{digest}") == 1  # once for three folders
    bundle, areas = sandbox_bundle(), pod.path("areas/workspace")
    assert pod.path("inputs/task/instruction.md").read_bytes() == b"do it\n"
    assert pod.path("inputs/memory/notes.md").read_bytes() == b"remember\n"
    assert pod.path("inputs/agent/main.py").read_bytes() == b"agent"
    assert pod.path("inputs/react/react.py").read_text() == "loop"
    for item in bundle.items:
        if item.path.startswith("workspace/") and item.type == "file":
            laid = areas / item.path.removeprefix("workspace/")
            assert (laid.read_bytes(), stat.S_IMODE(laid.stat().st_mode)) == (item.data, item.mode)
    assert (areas / "a/up").readlink() == Path("../a-b")
    assert {stat.S_IMODE(path.stat().st_mode) for path in areas.rglob("*") if path.is_dir()} == {0o755}


def test_what_the_other_programs_read(pod: PodFolders):
    with_task(pod)
    assert prepared(pod) == 0, pod.stderr
    ctl = pod.path("ctl")
    assert (ctl / "limits").read_text() == "wall_seconds 20\noutput_bytes 4096\nprocesses 64\n"
    assert (ctl / "stdin").read_bytes() == b"in\0put"
    assert (ctl / "supervisor").read_bytes() == supervisor().read_bytes()
    assert stat.S_IMODE((ctl / "supervisor").stat().st_mode) == 0o555
    assert (ctl / "alive").read_bytes() == b""
    rows = list(Listing(str(ctl / "pristine")).rows())
    assert rows == sorted(rows)
    assert dict(rows) == read_pristine(os.fsencode(pod.path("areas/workspace"))).entries
    assert pod.double.begun == ["uid-1"]


def test_a_folder_that_the_bundle_lacks_is_an_empty_one(pod: PodFolders):
    digest = pod.double.add(Bundle.of([Item("task/instruction.md", data=b"x")]))
    pod.plan["inputs"] = inputs(digest, ("workspace", "/workspace", True), ("memory", "/memory", False))
    assert prepared(pod) == 0, pod.stderr
    assert list(pod.path("inputs/memory").iterdir()) == []
    assert list(Listing(str(pod.path("ctl/pristine"))).rows()) == []


def test_an_open_network_is_refused(pod: PodFolders):
    with_task(pod)
    with listening() as canary:
        pod.double.canaries.append(canary)
        assert prepared(pod) == 41
        assert pod.told()["cause"] == "policy_not_enforced"
        assert canary in pod.told()["message"]
    assert pod.double.begun == []


def test_a_denied_address_that_answers_is_refused(pod: PodFolders):
    with listening() as server:
        pod.plan["denied"] = [closed_port(), server]
        assert prepared(pod) == 41
        assert f"this pod can reach {server}:" in pod.told()["message"]


def test_an_open_network_says_more_than_a_bundle_that_is_none(pod: PodFolders):
    pod.plan["inputs"] = inputs("sha256:" + "0" * 64, ("workspace", "/workspace", True))
    with listening() as canary:
        pod.double.canaries = [canary]
        assert prepared(pod) == 41


def test_no_canary_is_no_proof(pod: PodFolders):
    pod.double.canaries = []
    assert prepared(pod) == 42
    assert pod.told()["cause"] == "canary_dead"


def test_canaries_that_die_meanwhile_are_no_proof(pod: PodFolders):
    pod.double.answers(
        "GET /launch/canaries", (200, {"canaries": [closed_port()]}), (200, {"canaries": ["127.0.0.1:9"]})
    )
    assert prepared(pod) == 42
    assert "nothing is proved" in pod.told()["message"]


def test_a_canary_that_comes_late_is_waited_for(pod: PodFolders):
    pod.double.answers("GET /launch/canaries", (200, {"canaries": []}))
    assert pod.run("prepare.prepare", settings=QUICK.replace("= 0.3", "= 9")) == 0


def test_a_gateway_that_is_away(pod: PodFolders):
    with_task(pod)
    pod.env["ORCHESTRATE_GATEWAY"] = f"http://{closed_port()}"
    assert prepared(pod) == 43
    assert pod.told()["cause"] == "gateway_unreachable"
    assert "Connection refused" in pod.told()["message"]


def test_a_gateway_that_stumbles_is_asked_again(pod: PodFolders):
    digest = with_task(pod)
    pod.double.answers("GET /launch/canaries", 503, DROP, 429)
    pod.double.answers(f"GET /launch/bundle/sandbox/{digest}", 503, TORN, 500)
    pod.double.answers("POST /launch/prepared", 500, DROP)
    assert prepared(pod) == 0, pod.stderr
    assert pod.double.begun == ["uid-1", "uid-1"]  # the answer to the first was lost
    assert pod.path("areas/workspace/a/b.py").read_bytes() == b"b = 1\n" * 40_000
    rows = Listing(str(pod.path("ctl/pristine"))).entries()
    assert rows == read_pristine(os.fsencode(pod.path("areas/workspace"))).entries


def test_a_gateway_that_does_not_know_the_launch(pod: PodFolders):
    pod.env["ORCHESTRATE_TOKEN"] = "of another process"
    assert prepared(pod) == 45
    assert pod.told()["cause"] == "gateway_restarted"


def test_a_launch_that_another_pod_has_begun(pod: PodFolders):
    pod.double.answers("POST /launch/prepared", (409, {"error": "begun by uid-0"}))
    assert prepared(pod) == 46
    assert pod.told()["cause"] == "already_begun"


@pytest.mark.parametrize("status", [403, 404])
def test_a_bundle_that_is_not_given(pod: PodFolders, status: int):
    digest = with_task(pod)
    pod.double.answers(f"GET /launch/bundle/sandbox/{digest}", (status, {"error": {"message": "not this launch's"}}))
    assert prepared(pod) == 44
    assert "not this launch's" in pod.told()["message"]


def test_a_bundle_with_another_digest(pod: PodFolders):
    digest = with_task(pod)
    other = Bundle.of([Item("workspace/a", data=b"other")])
    pod.double.bundles[f"/launch/bundle/sandbox/{digest}"] = pod.double.bundles.pop(
        f"/launch/bundle/sandbox/{pod.double.add(other)}"
    )
    assert prepared(pod) == 44
    assert other.digest in pod.told()["message"]
    assert pod.double.begun == []


def hostile(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 1) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    info.size = size if kind == tarfile.REGTYPE else 0
    return info.tobuf(tarfile.PAX_FORMAT) + (b"x" * info.size).ljust(512 * -(-info.size // 512), b"\0")


HOSTILE = {
    "absolute": (hostile("/workspace/x"), "no plain relative path"),
    "parent": (hostile("workspace/../../x"), "no plain relative path"),
    "dots": (hostile("workspace/./x"), "no plain relative path"),
    "hard_link": (hostile("workspace/x", tarfile.LNKTYPE, "/etc/passwd"), "no file, folder or symbolic link"),
    "device": (hostile("workspace/x", tarfile.CHRTYPE), "no file, folder or symbolic link"),
    "fifo": (hostile("workspace/x", tarfile.FIFOTYPE), "no file, folder or symbolic link"),
    "outside": (hostile("workspace/x", tarfile.SYMTYPE, "/etc"), "leaves the folder"),
    "above": (hostile("workspace/a/x", tarfile.SYMTYPE, "../../../x"), "leaves the folder"),
    "above_its_folder": (hostile("workspace/x", tarfile.SYMTYPE, "../task"), "leaves the folder"),
    "through": (hostile("workspace/a", tarfile.SYMTYPE, "b") + hostile("workspace/a/x"), "below a symbolic link"),
    "order": (hostile("workspace/b") + hostile("workspace/a"), "out of order"),
    "twice": (hostile("workspace/b") + hostile("workspace/b"), "out of order"),
    "not_utf8": (hostile(os.fsdecode(b"workspace/\xff")), "codec can't decode"),
    "noise": (b"\x01" * 1024, "no tar"),
    "sum": (hostile("workspace/a").replace(b"workspace", b"Workspace"), "sum is wrong"),
    "short": (hostile("workspace/a", size=2000)[:1024], "ends too early"),
    "bomb": (hostile("workspace/a", size=10_000), "more than 5000 bytes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bundles(pod: PodFolders, name: str):
    digest = with_task(pod)
    tar, message = HOSTILE[name]
    pod.double.bundles[f"/launch/bundle/sandbox/{digest}"] = tar + (b"" if name == "short" else bytes(1024))
    pod.plan["disk_bytes"] = 2500
    before = {path for path in pod.root.parent.rglob("*") if path.name == "x"}
    assert pod.run("prepare.prepare", settings=f"{QUICK}; prepare._LEAST_BUNDLE = 0") == 44, pod.stderr
    assert message in pod.told()["message"]
    outside = {path for path in pod.root.parent.rglob("*") if path.name == "x"} - before
    assert all(path.is_relative_to(pod.path("areas/workspace")) for path in outside)
    assert pod.double.begun == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2, this image knows 1"),
        ({"own": [{"program": "other", "target": "/agent"}]}, "no agent 'other'"),
        ({"denied": ["api"]}, "'api' is no IP:PORT"),
        ({"inputs": inputs("sha256:0", ("workspace", "/elsewhere", True))}, "/elsewhere has no volume"),
    ],
)
def test_plans_that_cannot_be_done(pod: PodFolders, change: dict[str, object], message: str):
    pod.plan |= change
    assert prepared(pod) == 49
    assert message in pod.told()["message"]


def test_a_pod_that_was_prepared_before_is_not_prepared_again(pod: PodFolders):
    assert prepared(pod) == 0
    assert prepared(pod) == 49
    assert "File exists" in pod.told()["message"]


def test_variables_that_are_missing_are_named(pod: PodFolders):
    del pod.env["ORCHESTRATE_TOKEN"], pod.env["ORCHESTRATE_GATEWAY"]
    assert prepared(pod) == 49
    assert json.loads(pod.path("dev/termination-log").read_text())["message"].endswith(
        "no ORCHESTRATE_TOKEN, ORCHESTRATE_GATEWAY"
    )


def test_our_own_reader_agrees_with_pythons(pod: PodFolders):
    from orchestrator.sandbox.pod.untar import Stream, members
    from orchestrator.spec.bundle_tar import tar_of

    data = b"".join(tar_of(sandbox_bundle()))
    stream = Stream(iter([data[:700], data[700:701], data[701:]]))
    ours = [
        (m.path, m.mode, b"".join(stream.chunks(m.size)) if m.kind == "file" else m.target) for m in members(stream)
    ]
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        theirs = [
            (m.name.encode(), m.mode, tar.extractfile(m).read() if m.isreg() else m.linkname.encode()) for m in tar
        ]
    assert ours == theirs
