"""Every configuration file that the chart writes is read by the program that it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chart_world import FULL, SYSTEM, jobs, of, only, pods, render

from grader_service.settings import read_service_file
from orchestrator.driver.kubernetes.reaper_file import read_reaper_file
from orchestrator.gateway.service_file import read_gateway_file, read_relay_file

pytestmark = pytest.mark.chart

MOUNTED = "/etc/orchestrate"
CONFIG = "orchestrate/config"


def _template(name: str) -> dict[str, Any]:
    """The pod of a service, as its controller makes it."""
    kind = "StatefulSet" if name == "gateway" else "Deployment"
    return dict(only(render(FULL), kind, name)["spec"]["template"])


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The files as they are mounted, below this folder instead of ``/etc/orchestrate``, with secrets as their Secrets would have them."""
    secrets = {"headers": '{"X-Team": "evals"}'}
    for name in ("tokens/driver", "tokens/relay", "tokens/reaper", "providers/openai/key", "providers/own_one/headers"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(secrets.get(path.name, f"a secret of {name}, long enough for anybody"))
    for config in ("gateway", "relay", "reaper", "grader"):
        text = _template(config)["metadata"]["annotations"][CONFIG]
        (tmp_path / f"{config}.json").write_text(text.replace(MOUNTED, str(tmp_path)))
    return tmp_path


def _mounts(kind: str, container: str) -> dict[str, Any]:
    spec = pods(render(FULL))[kind]
    (found,) = [each for each in spec["containers"] if each["name"] == container]
    return {each["mountPath"]: each for each in found["volumeMounts"]}


def test_the_gateway_reads_its_file(files: Path) -> None:
    file, config = read_gateway_file(files / "gateway.json")
    assert set(config.providers) == {"openai", "own_one"}
    own = config.providers["own_one"]
    assert (own.type, own.query, own.endpoints) == ("openai", {"api-version": "2024-10-21"}, ("chat", "messages"))
    assert config.canaries == (f"canary-a.{SYSTEM}.svc:9000", f"canary-b.{SYSTEM}.svc:9000")
    assert config.limits.calls == 8
    assert file.folder_bytes == 5 << 30
    mounts = _mounts(f"StatefulSet {SYSTEM}/gateway", "gateway")
    assert {str(file.folder), str(file.cache), f"{MOUNTED}/tokens", f"{MOUNTED}/providers/own_one"} <= set(mounts)


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
    assert (file.folder_bytes, file.scratch_bytes) == (20 << 30, 40 << 30)
    assert checker[str(file.folder)]["readOnly"] is True
    assert "readOnly" not in grader[str(file.folder)]
    assert str(Path(str(file.checker)).parent) in {*grader, *checker}
    assert not [path for path in checker if "secret" in path or path.startswith(MOUNTED)]


@pytest.mark.parametrize("name", ["gateway", "relay", "reaper", "grader"])
def test_a_pod_keeps_what_it_was_made_with(name: str) -> None:
    spec = _template(name)["spec"]
    (volume,) = [each for each in spec["volumes"] if each["name"] == "config"]
    (item,) = volume["downwardAPI"]["items"]
    assert item == {"path": f"{name}.json", "fieldRef": {"fieldPath": f"metadata.annotations['{CONFIG}']"}}
    mounted = {each["mountPath"]: each for each in spec["containers"][0]["volumeMounts"]}
    assert mounted[f"{MOUNTED}/{name}.json"]["subPath"] == f"{name}.json"


def test_a_driver_s_pod_keeps_its_settings() -> None:
    objects = render(FULL)
    config = {each["metadata"]["namespace"]: each["data"] for each in of(objects, "ConfigMap", "orchestrate-driver")}
    for job in jobs(objects):
        template = job["spec"]["template"]
        assert (
            template["metadata"]["annotations"][CONFIG]
            == config[job["metadata"]["namespace"]]["orchestrate.toml"].strip()
        )
        assert not [each for each in template["spec"]["volumes"] if "configMap" in each]
