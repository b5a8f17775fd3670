"""The configuration file of a grader on the network: every mistake is named, no secret is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grader_service.settings import read_service_file, read_settings, read_token
from orchestrator.errors import SpecError

GOOD: dict[str, Any] = {"store": "s3://b", "tokens": {"driver": "/run/t"}, "folder": "/var/lib/grader"}
PODS = {"namespace": "grading", "runner_image": "r@sha256:0", "address": "http://grader:8090"}


def written(folder: Path, value: Any) -> Path:
    path = folder / "grader.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_what_is_not_said_has_a_default(tmp_path: Path) -> None:
    file = read_service_file(written(tmp_path, {**GOOD, "kubernetes": PODS}))
    assert (file.listen, file.grading_listen) == ("0.0.0.0:8080", "0.0.0.0:8090")
    assert file.kubernetes is not None
    assert file.kubernetes.owner


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({**GOOD, "stor": 1}, "stor: Extra inputs are not permitted (did you mean 'store'?)"),
        ({**GOOD, "tokens": {"drivr": "x"}}, "tokens.drivr: Extra inputs are not permitted (did you mean 'driver'?)"),
        ({**GOOD, "kubernetes": {**PODS, "namespace": "No"}}, "kubernetes.namespace: "),
        ({**GOOD, "kubernetes": {**PODS, "address": "grader:8090"}}, "kubernetes.address: "),
        ({**GOOD, "checker": "/s" * 60}, "checker: Value error, the path has 120 bytes"),
        ("{", "grader.json:1:2: this is no JSON"),
    ],
)
def test_a_mistake_is_named_with_its_field(tmp_path: Path, value: Any, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_service_file(written(tmp_path, value))
    assert said in str(caught.value)
    assert "s3://b" not in str(caught.value)


def test_a_token_file_must_hold_one(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(" secret\n")
    assert read_token("f", "tokens.driver", tmp_path / "t") == "secret"
    (tmp_path / "t").write_text(" \n")
    for path, said in ((tmp_path / "t", "is empty"), (tmp_path / "gone", "No such file")):
        with pytest.raises(SpecError, match=said):
            read_token("f", "tokens.driver", path)


def test_a_service_with_a_wrong_file_ends_with_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "grader_service", "serve", "--config", str(written(tmp_path, {"store": "s3://b"}))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "tokens: Field required" in done.stderr


def test_variables_that_a_cluster_makes_of_its_services_are_no_settings() -> None:
    made = {"GRADER_SERVICE_HOST": "198.18.0.1", "GRADER_SERVICE_PORT": "8080", "GRADER_SERVICE_PORT_HTTP": "8080"}
    assert read_settings({**made, "GRADER_SERVICE_CHECK_SECONDS": "7"}).check_seconds == 7
    with pytest.raises(SpecError, match="GRADER_SERVICE_PART"):
        read_settings({"GRADER_SERVICE_PART": "1"})
