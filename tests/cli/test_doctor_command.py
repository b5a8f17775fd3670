"""``orchestrate doctor`` as a person types it, on this machine as it is."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Orchestrate = Callable[..., subprocess.CompletedProcess[str]]


def test_this_machine_can_run_trials_and_nothing_is_left_behind(orchestrate: Orchestrate, tmp_path: Path) -> None:
    done = orchestrate("doctor", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["exit_code"], found["schema_version"]) == (0, 0, 1), done.stdout
    assert [each["name"] for each in found["checks"]] == [
        "program", "clock", "processors and memory", "open files", "store", "cache", "logs", "scratch",
        "bubblewrap", "container", "services", "providers", "prices", "ray",
    ]  # fmt: skip
    assert {each["state"] for each in found["checks"]} <= {"ok", "warning"}
    assert {"name": "pool", "value": "inline", "source": "default"} in found["settings"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_wrong_settings_are_told_beside_all_checks(orchestrate: Orchestrate, tmp_path: Path) -> None:
    (tmp_path / "orchestrate.toml").write_text('backend = "cloud"\n')
    done = orchestrate("doctor", "--store", "ftp://x")
    assert done.returncode == 2
    assert "orchestrate.toml:1:1: backend: must be one of" in done.stdout
    assert "--store: store 'ftp://x': unknown kind 'ftp'" in done.stdout
    for name in ("program", "clock", "store", "bubblewrap", "services", "ray"):
        assert f"  {name} " in done.stdout


@pytest.mark.slow
def test_models_that_do_not_answer_are_problems(orchestrate: Orchestrate, tmp_path: Path) -> None:
    (tmp_path / "orchestrate.toml").write_text(
        '[providers.x]\nbase_url = "http://127.0.0.1:9/v1"\n[prices."x/m"]\ninput = 1.0\noutput = 1.0\n'
    )
    assert orchestrate("doctor").returncode == 0
    done = orchestrate("doctor", "--models", timeout=110)
    assert done.returncode == 5
    assert "x/m could not be asked" in done.stdout


def test_one_mistake_that_many_checks_meet_is_one_problem(orchestrate: Orchestrate, tmp_path: Path) -> None:
    (tmp_path / "orchestrate.toml").write_text('[kubernetes]\ncontext = "nowhere"\n')
    done = orchestrate("doctor", "--backend", "kubernetes")
    assert done.returncode == 5
    assert done.stdout.count("not looked at, see cluster") == 5
    assert "\n1 problem, " in done.stdout
