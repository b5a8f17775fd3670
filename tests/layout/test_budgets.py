"""The tree keeps to its own rules where no linter has one."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import orchestrator.driver

ROOT = Path(__file__).parents[2]
MODULES = sorted([*ROOT.glob("orchestrator/**/*.py"), *ROOT.glob("grader_service/**/*.py")])
AT_THE_TOP = {"CHANGELOG.md", "LICENSE", "Makefile", "README.md", "pyproject.toml", "uv.lock"}
DEFINED = re.compile(
    r"^(?P<decorator> *@.*\n)?(?: *(?:(?:async )?def|class) |(?=\w+(?:: .+)? = ))(?P<name>\w+)", re.MULTILINE
)
"""Functions, classes and constants; what a decorator takes up is used."""
FOR_CHARTS_TOO = "orchestrator/sandbox/kubernetes/names.py"
"""Its words are those of the chart, whose tests hold it to them."""
HEAVY = ("ray", "pyarrow", "boto3", "kubernetes", "duckdb")


def test_no_module_is_longer_than_600_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > 600} == {}


def test_reading_order_names_every_package() -> None:
    folders = {path.parent.name for path in ROOT.glob("orchestrator/*/__init__.py")}
    named = set(re.findall(r"``([a-z]+)``", orchestrator.__doc__ or ""))
    assert folders <= named, f"not in the reading order of orchestrator/__init__.py: {sorted(folders - named)}"


def test_reading_order_of_the_driver_names_every_module() -> None:
    modules = {path.stem for path in ROOT.glob("orchestrator/driver/[!_]*")}
    assert modules == set(re.findall(r"``([a-z]+)``", orchestrator.driver.__doc__ or ""))


def test_every_top_folder_has_a_readme() -> None:
    folders = [p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith(".") and any(p.rglob("*.*"))]
    missing = [name for name in folders if not (ROOT / name / "README.md").is_file()]
    assert not missing


@pytest.mark.parametrize("command", [["-c", "import orchestrator.cli.app"], ["-m", "orchestrator", "--help"]])
def test_the_command_line_starts_without_heavy_packages(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert loaded.isdisjoint(HEAVY)
    assert "typer" in loaded  # the reading of importtime works


def test_every_public_name_has_a_docstring_in_interfaces() -> None:
    bare = [
        node.name
        for file in (ROOT / "orchestrator/interfaces").glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef | ast.AsyncFunctionDef) and not ast.get_docstring(node)
    ]
    assert not bare


def test_nothing_lies_at_the_top_that_does_not_belong_there() -> None:
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=False, cwd=ROOT)
    if listed.returncode:
        pytest.skip("no checkout of git")
    files = {name for name in listed.stdout.splitlines() if "/" not in name and not name.startswith(".")}
    assert files == AT_THE_TOP


CALLED_BACK = {"data_received", "eof_received", "pause_writing", "resume_writing", "feed_eof"}
"""What asyncio and aiohttp call on protocols and parsers."""


def test_whatever_the_product_defines_it_also_uses() -> None:
    texts = {path: path.read_text() for path in MODULES}
    words = Counter(word for text in texts.values() for word in re.findall(r"\w+", text))
    unused = {
        f"{path.relative_to(ROOT)}: {found['name']}"
        for path, text in texts.items()
        if path != ROOT / FOR_CHARTS_TOO
        for found in DEFINED.finditer(text)
        if words[found["name"]] == 1
        and not found["decorator"]
        and not found["name"].startswith(("pytest_", "__"))
        and found["name"] not in CALLED_BACK
    }
    assert not unused, "defined and never named again; what only tests need belongs to them"


def test_every_module_of_the_tests_has_a_name_of_its_own() -> None:
    names = Counter(path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py")
    assert not [name for name, count in names.items() if count > 1], (
        "test folders are no packages: the first one found is taken"
    )
