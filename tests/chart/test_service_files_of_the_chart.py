"""Every configuration file that the chart writes is read by the program that it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chart_world import FULL, SYSTEM, only, pods, render

from grader_service.settings import read_service_file
from orchestrator.driver.kubernetes.reaper_file import read_reaper_file
from orchestrator.gateway.service_file import read_gateway_file, read_relay_file

pytestmark = pytest.mark.chart

MOUNTED = "/etc/orchestrate"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The files as they are mounted, below this folder instead of ``/etc/orchestrate``, with secrets as their Secrets would have them."""
    secrets = {"headers": '{"X-Team": "evals"}'}
    for name in ("tokens/driver", "tokens/relay", "tokens/reaper", "providers/openai/key", "providers/own_one/headers"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(secrets.get(path.name, f"a secret of {name}, long enough for anybody"))
    texts = {
        config: only(render(FULL), "ConfigMap", config)["data"][f"{config}.json"]
        for config in ("relay", "reaper", "grader")
    }
    texts["gateway"] = only(render(FULL), "StatefulSet", "gateway")["spec"]["template"]["metadata"]["annotations"][
        "orchestrate/config"
    ]
    for config, text in texts.items():
        (tmp_path / f"{config}.json").write_text(text.replace(MOUNTED, str(tmp_path)))
    return tmp_path


def _mounts(kind: str, container: str) -> dict[str, Any]:
    spec = pods(render(FULL))[kind]
    (found,) = [each for each in spec["containers"] if each["name"] == container]
    return {each["mountPath"]: each for each in found["volumeMounts"]}


def test_the_gateway_reads_its_file(files: Path) -> None:
    file, config = read_gateway_file(files / "gateway.json")
    assert set(config.providers) == {"openai", "own_one"}
    assert config.canaries == (f"canary-a.{SYSTEM}.svc:9000", f"canary-b.{SYSTEM}.svc:9000")
    assert config.limits.calls == 8
    assert file.folder_bytes == 5 << 30
    mounts = _mounts(f"StatefulSet {SYSTEM}/gateway", "gateway")
    assert {str(file.folder), str(file.cache), f"{MOUNTED}/tokens", f"{MOUNTED}/providers/own_one"} <= set(mounts)


def test_an_upgrade_changes_nothing_below_a_gateway_that_goes_on(files: Path) -> None:
    """Its pod is left as it is, and may start its container again."""
    spec = pods(render(FULL))[f"StatefulSet {SYSTEM}/gateway"]
    assert not [volume for volume in spec["volumes"] if "configMap" in volume]
    (config,) = [volume["downwardAPI"]["items"] for volume in spec["volumes"] if "downwardAPI" in volume]
    assert config == [{"path": "gateway.json", "fieldRef": {"fieldPath": "metadata.annotations['orchestrate/config']"}}]


def test_the_relay_reads_its_file(files: Path) -> None:
    _, config = read_relay_file(files / "relay.json")
    assert [str(each) for each in config.gateways] == [f"http://gateway-{n}.{SYSTEM}.svc:8081" for n in range(3)]


def test_the_reaper_reads_its_file(files: Path) -> None:
    config = read_reaper_file(files / "reaper.json")
    assert len(config.gateways) == 3


def test_the_grader_reads_its_file(files: Path) -> None:
    file = read_service_file(files / "grader.json")
    assert file.kubernetes is not None
    assert file.kubernetes.namespace == "orchestrate-grading"
    assert file.kubernetes.tolerations == (
        {"key": "agents", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
    )
    grader = _mounts("Deployment orchestrate-grader/grader", "grader")
    checker = _mounts("Deployment orchestrate-grader/grader", "checker")
    assert file.folder_bytes == 20 << 30
    assert checker[str(file.folder)]["readOnly"] is True
    assert "readOnly" not in grader[str(file.folder)]
    assert str(Path(str(file.checker)).parent) in {*grader, *checker}
    assert not [path for path in checker if "secret" in path or path.startswith(MOUNTED)]
