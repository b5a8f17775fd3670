"""Hints name the program as a person can type it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.report.program import program


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "here/.venv/bin/orchestrate"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_program_on_path_is_called_by_its_name(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(script.parent))
    assert program(str(script), tmp_path) == "orchestrate"


def test_another_program_is_called_by_its_path(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert program(str(script), tmp_path / "here") == ".venv/bin/orchestrate"
    assert program(str(script), tmp_path / "elsewhere") == str(script)
    other = tmp_path / "other/orchestrate"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))  # the name would call another installation
    assert program(str(script), tmp_path / "here") == ".venv/bin/orchestrate"


def test_a_library_does_not_know_its_path() -> None:
    assert program("/usr/bin/pytest") == "orchestrate"
