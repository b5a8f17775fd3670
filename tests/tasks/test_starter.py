"""The starter suite: every task measures something and hides what it must hide. Whether solutions pass is what ``validate`` proves."""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.spec.load import load_suite
from orchestrator.spec.loaded import LoadedSuite
from orchestrator.spec.task import flat_checks

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "tasks" / "starter"
TASKS = sorted(path.parent.name for path in SUITE.glob("*/task.yaml"))
HIDDEN_TESTS = sorted(SUITE.glob("*/hidden/tests/test_*.py"))
HIDDEN_NAMES = [path.parents[2].name for path in HIDDEN_TESTS]
FAILING_AT_FIRST = {
    "auth-empty-password": set(),
    "billing-month-end": set(),
    "cache-wrong-tenant": {"test_two_tenants"},
    "csv-quoted-fields": set(),
    "one-rounding": set(),
    "report-n-plus-one": set(),
}
"""Visible tests that show the bug before anybody has worked on the task."""


@pytest.fixture(scope="module")
def suite() -> LoadedSuite:
    return load_suite(SUITE)


def text_files(*folders: Path) -> dict[Path, str]:
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path: path.read_text() for path in files if path.suffix not in {".db", ".pyc"}}


def test_functions(path: Path) -> list[str]:
    return [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]


test_functions.__test__ = False  # type: ignore[attr-defined]


def test_every_folder_is_a_task(suite: LoadedSuite) -> None:
    assert [task.task.id for task in suite.tasks] == TASKS
    assert len(TASKS) == 12
    assert all(task.folder.name == task.task.id for task in suite.tasks)


def test_all_tiers_kinds_endings_and_origins(suite: LoadedSuite) -> None:
    tasks = [task.task for task in suite.tasks]
    assert {task.tier for task in tasks} == {1, 2, 3, 4}
    assert {task.kind for task in tasks} == {"regression", "capability"}
    assert {task.expect for task in tasks} == {"complete", "decline", "ask"}
    assert all(task.origin is not None for task in tasks)
    assert all(task.samples == 5 for task in tasks)


def test_every_task_checks_an_outcome_and_the_blast_radius(suite: LoadedSuite) -> None:
    for task in suite.tasks:
        types = {check.type for check in flat_checks(task.task.checks)}
        assert "diff" in types, task.task.id
        assert types & {"command", "files", "sql", "final"}, task.task.id


def test_visible_tests_are_protected(suite: LoadedSuite) -> None:
    for task in suite.tasks:
        if not list(task.folder.glob("workspace/tests/*.py")):
            continue
        protected = [i.paths for i in task.task.invariants if i.type == "paths_unchanged"]
        assert any(path.startswith("tests/") for paths in protected for path in paths), task.task.id


def test_every_task_has_a_wrong_solution_that_names_its_checks(suite: LoadedSuite) -> None:
    for task in suite.tasks:
        assert task.wrong, task.task.id
        assert all(task.wrong.values()), task.task.id


def test_only_the_cheapest_tools_are_required(suite: LoadedSuite) -> None:
    assert {task.task.environment.requires for task in suite.tasks} == {("python3",)}
    for path in sorted(SUITE.glob("*/solution/**/solve.sh")):
        assert path.read_text().startswith("#!/bin/sh\n")
        subprocess.run(["sh", "-n", str(path)], check=True)


@pytest.mark.parametrize("path", HIDDEN_TESTS, ids=HIDDEN_NAMES)
def test_expected_ids_are_the_hidden_tests(path: Path) -> None:
    ids = [f"tests/{path.name}::{name}" for name in test_functions(path) if name.startswith("test_")]
    assert (path.parents[1] / "expected.txt").read_text().split() == ids
    assert list(path.parent.glob("test_*.py")) == [path]


@pytest.mark.parametrize("path", HIDDEN_TESTS, ids=HIDDEN_NAMES)
def test_hidden_tests_reach_the_work_through_subject_alone(path: Path) -> None:
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports} == {"subject"}


@pytest.mark.parametrize("task", TASKS)
def test_nothing_hidden_can_be_read_by_the_agent(task: str, suite: LoadedSuite) -> None:
    """No longer line of hidden tests or solutions stands in the workspace or the instruction, and nothing there points to them."""
    folder = SUITE / task
    seen = text_files(folder / "workspace")
    seen[folder / "instruction"] = suite.task(task).task.instruction
    secret = text_files(folder / "hidden").values()
    lines = {line.strip() for text in secret for line in text.splitlines() if re.search(r"assert |equals|expect", line)}
    for path, text in seen.items():
        assert not re.search(r"hidden/|solution/|solve\.sh|expected\.txt", text), path
        assert not [line for line in lines if len(line) > 30 and line in text], path


def test_the_answer_about_the_outage_cannot_be_found_by_searching(suite: LoadedSuite) -> None:
    answer = suite.task("outage-first-cause").task.checks[0]
    assert answer.type == "files"
    wanted = {value.at: value.equals for value in answer.values}
    texts = "\n".join(text_files(SUITE / "outage-first-cause" / "workspace").values())
    assert str(wanted["lost_cents"]) not in texts
    assert str(wanted["first_at"]) not in texts
    assert wanted["lost_orders"] != wanted["customers"]


def test_the_password_is_what_the_migration_check_looks_for() -> None:
    old = (SUITE / "config-v2/workspace/config/service.ini").read_text()
    assert "orange" in old
    assert "orange" not in (SUITE / "config-v2/workspace/docs/config-v2.md").read_text()


@pytest.mark.parametrize("task", sorted(FAILING_AT_FIRST))
def test_visible_tests_pass_or_show_the_bug(task: str, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    shutil.copytree(SUITE / task / "workspace", workspace)
    top = [] if (workspace / "src").exists() else ["-t", "."]
    command = [sys.executable, "-B", "-m", "unittest", "discover", "-s", "tests", *top]
    env = {"PYTHONPATH": "src", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=workspace, env=env, capture_output=True, text=True, check=False)
    assert set(re.findall(r"^(?:FAIL|ERROR): (\w+)", done.stderr, re.M)) == FAILING_AT_FIRST[task], done.stderr
    assert re.search(r"^Ran [1-9]", done.stderr, re.M)


def made_by(program: Path, target: Path) -> None:
    spec = importlib.util.spec_from_file_location(program.stem, program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    module.main(str(target))


def dump(path: Path) -> list[str]:
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return list(database.iterdump())
    finally:
        database.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_committed_data_is_what_its_program_makes(tmp_path: Path) -> None:
    dedupe, outage, ledger = (SUITE / name for name in ("customer-dedupe", "outage-first-cause", "ledger-half-import"))
    made_by(dedupe / "hidden/make_db.py", tmp_path / "shop.db")
    assert dump(tmp_path / "shop.db") == dump(dedupe / "workspace/data/shop.db")
    (tmp_path / "logs").mkdir()
    made_by(outage / "hidden/make_logs.py", tmp_path / "logs")
    assert text_files(tmp_path / "logs").values()
    for path, text in text_files(tmp_path / "logs").items():
        assert text == (outage / "workspace/logs" / path.name).read_text(), path.name
    for folder in ("data", "incoming/backup"):
        (tmp_path / folder).mkdir(parents=True)
    made_by(ledger / "hidden/make_data.py", tmp_path)
    assert dump(tmp_path / "data/ledger.db") == dump(ledger / "workspace/data/ledger.db")
    for path in sorted((tmp_path / "incoming").rglob("*.jsonl")):
        assert path.read_text() == (ledger / "workspace" / path.relative_to(tmp_path)).read_text(), path.name


def test_the_readme_lists_every_task() -> None:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (\d) \| ([\w ]+) \|", (ROOT / "tasks/README.md").read_text(), re.M)
    ends = {"complete": "completed", "decline": "declined", "ask": "asked", "ask_then_complete": "completed after asking"}
    suites = [load_suite(SUITE), load_suite(SUITE.parent / "ops")]
    wanted = [(t.task.id, str(t.task.tier), ends[t.task.expect]) for suite in suites for t in suite.tasks]
    assert rows == wanted
