"""What the documents say can be typed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part == "workspace" for part in path.relative_to(ROOT).parts)
)
COMMANDS = {"submit", "resume", "report", "show", "logs", "pull", "validate", "try", "schema", "version", "serve"} | {
    "images",
    "golden",
    "agents",
    "shell",
    "query",
    "rebuild",
    "export",
    "import",
    "stop",
    "list",
    "status",
    "watch",
    "rerun",
    "gc",
    "doctor",
    "view",
    "record",
}


def words_after(command: str, text: str) -> list[str]:
    return re.findall(rf"(?m)^\s*(?:\.venv/bin/)?{command} ([a-z-]+)", text)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_exist(path: Path) -> None:
    text = path.read_text()
    assert set(words_after("orchestrate", text)) <= COMMANDS
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    assert set(words_after("make", text)) <= targets


def test_the_list_of_commands_is_the_program_s() -> None:
    from typer.main import get_command

    from orchestrator.cli.app import app

    assert set(get_command(app).commands) == COMMANDS


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_exist(path: Path) -> None:
    named = re.findall(r"`((?:orchestrator|grader_service|tasks|manifests|tests)/[a-z_/.-]*)`", path.read_text())
    missing = [name for name in named if not (ROOT / name).exists()]
    assert not missing
