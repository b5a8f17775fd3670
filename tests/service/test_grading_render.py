"""The pod for hidden tests: hardened, and each container sees its own things alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from grading_world import LIMITS, pair, settings

from grader_service.checks.case import Pair
from grader_service.cluster.render import GRADER, RUNNER_TOKEN, PodOrder, inputs, laid_bytes, render
from orchestrator.sandbox.kubernetes import names


def order(folder: Path, number: int = 2, **fields: Any) -> PodOrder:
    known: dict[str, Any] = {
        "name": "g-1", "pairs": [pair(folder, str(n)) for n in range(number)], "image": "task@sha256:0", "runtime_class": None,
        "address": "http://198.18.0.1:8090", "prepare_token": "p-secret", "runner_token": "r-secret", "notes": {names.TRIAL: "work"},
    }  # fmt: skip
    return PodOrder(**{**known, **fields})


@pytest.fixture
def pod(tmp_path: Path) -> dict[str, Any]:
    rendered: dict[str, Any] = render(order(tmp_path), settings(denied=("198.18.96.1:443",), pull_secrets=("s",)))
    return rendered


def containers(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in (*pod["spec"]["initContainers"], *pod["spec"]["containers"])}


def test_the_cluster_takes_it(pod: dict[str, Any]) -> None:
    kubernetes_validate.validate(pod, "1.37", strict=True)
    assert list(containers(pod)) == ["prepare", "runner", "runner-1", "subject", "subject-1"]


def test_it_is_hardened(pod: dict[str, Any]) -> None:
    spec = pod["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert (spec["restartPolicy"], spec["dnsPolicy"], spec["shareProcessNamespace"]) == ("Never", "None", False)
    assert spec["activeDeadlineSeconds"] == 600 + 120 + 30 + 120
    assert pod["metadata"]["labels"][names.NET_CLASS] == "none"
    assert all(set(volume) == {"name", "emptyDir"} for volume in spec["volumes"])
    for container in containers(pod).values():
        security = container["securityContext"]
        assert (security["runAsNonRoot"], security["runAsUser"]) == (True, names.POD_UID)
        assert (security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"]) == (False, True)
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert set(container["resources"]["limits"]) == {"cpu", "memory"}


def test_a_subject_gets_no_token_and_nothing_hidden(pod: dict[str, Any]) -> None:
    subject = json.dumps(containers(pod)["subject"])
    for secret in ("secret", RUNNER_TOKEN, names.PREPARE_TOKEN, GRADER, "given-runner", "runner-0"):
        assert secret not in subject
    mounts = {mount["mountPath"]: mount for mount in containers(pod)["subject"]["volumeMounts"]}
    writable = sorted(path for path, mount in mounts.items() if not mount.get("readOnly"))
    assert writable == ["/dev/shm", "/home/agent", "/output", "/testbed", "/tmp"]
    assert all(mount["name"] in {"subject-0", "shm-subject-0", "given-subject", "line-0"} for mount in mounts.values())
    other = {mount["name"] for mount in containers(pod)["subject-1"]["volumeMounts"]}
    assert other == {"subject-1", "shm-subject-1", "given-subject", "line-1"}


def test_no_container_writes_where_another_reads_but_for_the_line(pod: dict[str, Any]) -> None:
    """Without a volume there /dev/shm is the pod's own, and every container writes to it."""
    mounts = {name: each["volumeMounts"] for name, each in containers(pod).items() if name != "prepare"}
    assert all("/dev/shm" in {mount["mountPath"] for mount in each} for each in mounts.values())
    writers: dict[str, set[str]] = {}
    readers: dict[str, set[str]] = {}
    for name, each in mounts.items():
        for mount in each:
            (readers if mount.get("readOnly") else writers).setdefault(mount["name"], set()).add(name)
    shared = {volume for volume, who in writers.items() if len(who | readers.get(volume, set())) > 1}
    assert shared == {"line-0", "line-1"}
    assert (writers["line-0"], readers["line-0"]) == ({"runner"}, {"subject"})


def test_nodes_hear_how_much_an_agent_left(tmp_path: Path) -> None:
    made = order(tmp_path)
    with (tmp_path / "state/changes.tar").open("wb") as file:
        file.truncate(40 << 20)
    left = laid_bytes(made.pairs)
    assert left >= 40 << 20

    def asked(disk: int) -> list[str]:
        limits = replace(LIMITS, disk_bytes=2 * disk)
        pairs = [Pair(runner=each.runner, subject=replace(each.subject, limits=limits)) for each in made.pairs]
        rendered = render(replace(made, pairs=pairs, laid_bytes=left), settings())
        requests = {name: each["resources"]["requests"] for name, each in containers(rendered).items()}
        return [requests[name]["ephemeral-storage"] for name in ("runner", "subject", "subject-1")]

    assert asked(1 << 30) == [str(32 << 20), str(left), str(left)]
    assert asked(36 << 20) == [str(32 << 20), str(36 << 20), str(36 << 20)]


def test_tokens_come_from_annotations_each_to_its_own(pod: dict[str, Any]) -> None:
    def fields(name: str) -> str:
        return json.dumps([each.get("valueFrom") for each in containers(pod)[name]["env"]])

    assert names.PREPARE_TOKEN in fields("prepare")
    assert RUNNER_TOKEN not in fields("prepare")
    assert RUNNER_TOKEN in fields("runner")
    assert names.PREPARE_TOKEN not in fields("runner")
    assert "secret" not in json.dumps(pod["spec"]).replace("imagePullSecrets", "")


def test_what_is_laid_is_what_is_mounted(tmp_path: Path, pod: dict[str, Any]) -> None:
    laid = {item.path for item in inputs(order(tmp_path).pairs, 600)}
    assert {"runner-0/workspace/hidden", "runner-1/workspace/hidden", "given-subject/join.py"} <= laid
    assert not any(path.startswith(("subject", "given-subject")) and "hidden" in path for path in laid)
    given = {
        f"{mount['name']}/{mount['subPath']}"
        for container in pod["spec"]["containers"]
        for mount in container["volumeMounts"]
        if mount["name"].startswith("given-")
    }
    assert given - {"given-subject/guard"} <= laid  # which prepare has in its image


def test_a_place_and_a_class_are_the_clusters(tmp_path: Path) -> None:
    wanted = settings(
        node_selector={"pool": "x"}, tolerations=({"key": "k", "operator": "Exists"},), priority_class="low"
    )
    pod = render(order(tmp_path, 1, runtime_class="gvisor"), wanted)
    kubernetes_validate.validate(pod, "1.37", strict=True)
    spec = pod["spec"]
    assert (spec["runtimeClassName"], spec["nodeSelector"], spec["priorityClassName"]) == (
        "gvisor",
        {"pool": "x"},
        "low",
    )
