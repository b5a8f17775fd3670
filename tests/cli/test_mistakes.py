"""A person's mistakes: all of them at once, located, with the nearest valid name, exit code 2, and nothing started."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_world import STARTER

SIX_MISTAKES = """\
id: auth-empty-password
instrution: Fix it.
tier: five
environment:
  resources: {memory: 1Gb}
  netwerk: model_only
checks:
  - {id: hidden_tests, type: comand, run: "true"}
services: [db]
"""


@pytest.fixture
def orchestrate(in_process):
    return in_process


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    shutil.copytree(STARTER, tmp_path / "tasks/starter")
    return tmp_path / "tasks/starter"


def test_six_mistakes_in_one_file(orchestrate, suite: Path, tmp_path: Path) -> None:
    (suite / "auth-empty-password/task.yaml").write_text(SIX_MISTAKES)
    done = orchestrate("submit", "tasks/starter", "--agent", "oracle")
    assert done.returncode == 2
    where = "tasks/starter/auth-empty-password/task.yaml"
    for place, words in {
        f"{where}:2:1": "did you mean 'instruction'?",
        f"{where}:3:7": "tier",
        f"{where}:5:23": "memory",
        f"{where}:6:3": "did you mean 'network'?",
        f"{where}:8:30": "did you mean 'command'?",
        f"{where}:9:1": "reserved",
    }.items():
        lines = [line for line in done.stderr.splitlines() if line.startswith(place)]
        assert any(words in line for line in lines), f"{place} {words}\n{done.stderr}"
    assert not (tmp_path / ".orchestrate/store/runs").exists()
    assert done.stdout == ""


def test_mistakes_of_all_files_come_together(orchestrate, suite: Path, tmp_path: Path) -> None:
    (suite / "config-v2/task.yaml").write_text("id: [")
    (tmp_path / "agent.yaml").write_text("type: reakt\nmodels: {main: scripted/x}\n")
    done = orchestrate("submit", "tasks/starter", "--agent", "agent.yaml", "--agent", "nobody")
    assert done.returncode == 2
    assert "tasks/starter/config-v2/task.yaml:1" in done.stderr
    assert "agent.yaml:1:7" in done.stderr
    assert "did you mean 'react'?" in done.stderr
    assert "nobody: no such agent" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["submit", "nowhere"], "nowhere: no such suite folder or submission file"),
        (["submit", STARTER], "no agent; add --agent oracle"),
        (["submit", STARTER, "--agent", "orcale"], "did you mean 'oracle'?"),
        (
            ["submit", STARTER, "--agent", "wrong/nothing-like-it"],
            "none of the tasks has solution/wrong-nothing-like-it",
        ),
        (["submit", STARTER, "--agent", "nop", "--agent", "nop"], "nop: 2 agents have this name"),
        (["submit", STARTER, "--agent", "nop", "--run-id", "last"], "'last' cannot name a run"),
        (["submit", STARTER, "--agent", "nop", "--run-id", "../up"], "'../up' cannot name a run"),
        (["submit", STARTER, "--agent", "nop", "--run-id", ""], "'' cannot name a run"),
        (["submit", STARTER, "--agent", "nop", "-n", "100000"], "20000"),
        (["submit", STARTER, "--agent", "nop", "-n", "257"], "257 trials at one time are more than one machine"),
        (["submit", STARTER, "--agent", "nop", "--tasks", "config-v3"], "did you mean 'config-v2'?"),
        (["submit", STARTER, "--agent", "nop", "--backend", "kubernetes"], "there is no kubeconfig"),
        (["submit", STARTER, "--agent", "nop", "--detach"], "--detach leaves the run to a driver on a cluster"),
        (
            ["submit", STARTER, "--agent", "nop", "--backend", "bublewrap"],
            "--backend: must be one of auto, bubblewrap, container, kubernetes (did you mean 'bubblewrap'?)",
        ),
        (["submit", STARTER, "--agent", "nop", "--model", "openai/one"], "--model: nop has no model"),
        (["try", STARTER / "config-v2", "--model", "fake/one"], "agent react: provider 'fake' is not configured"),
        (["submit", STARTER, "--model", "fake/one"], "provider 'fake' is not configured; add [providers.fake] to"),
        (["submit", STARTER, "--model", "antropic/one"], "(did you mean 'anthropic'?)"),
        (["try", STARTER], f"{STARTER} is a suite; name a task in it, for example {STARTER}/auth-empty-password"),
        (["try", "nowhere"], "nowhere is no task: there is no such folder"),
        (["validate", STARTER.parent], f"name one that is in it: {STARTER.parent}/ops, {STARTER}"),
        (["submit", STARTER, "--model", "openai/gpt-5"], "OPENAI_API_KEY"),
        (["submit", STARTER, "--agent", "nop", "--store", "ftp://x"], "unknown kind 'ftp'"),
        (["report"], "no run yet"),
        (["show", "last"], "no run yet"),
        (["query", "SELECT * FROM trails"], "there is no table 'trails' (did you mean 'trials'?)"),
        (["query", "DROP TABLE trials"], "changes nothing; this is none"),
        (["schema", "tsk"], "did you mean 'task'?"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_words_that_mean_nothing(orchestrate, words: list[str | Path], said: str) -> None:
    done = orchestrate(*words)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_mistakes_of_a_submission_come_with_those_of_what_it_names(orchestrate, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("suite: nowhere\nagents: [nobody, oracle]\nsampels: 3\n")
    done = orchestrate("submit", "run.yaml", "--dry-run")
    assert done.returncode == 2
    assert "run.yaml:3:1: sampels: unknown key (did you mean 'samples'?)" in done.stderr
    assert "nowhere: there is no such suite folder" in done.stderr
    assert "nobody: no such agent" in done.stderr
    assert "3 problems; nothing was started" in done.stderr
    (tmp_path / "run.yaml").write_text("suite: nowhere\nagents: [nobody]\nschedule: 0 3 * * *\n")
    said = orchestrate("submit", "run.yaml", "--dry-run").stderr
    assert "run.yaml: schedule: is not honoured by this version" in said
    assert "nowhere: there is no such suite folder" in said
    assert "nobody: no such agent" in said


def test_only_the_variable_of_the_provider_is_advised(orchestrate) -> None:
    said = orchestrate("submit", STARTER, "--model", "fake/one").stderr
    assert "_API_KEY" not in said
    said = orchestrate("submit", STARTER, "--model", "anthropic/one").stderr
    assert "set ANTHROPIC_API_KEY or add [providers.anthropic]" in said
    assert "OPENAI_API_KEY" not in said


def test_an_image_is_refused_with_what_helps_here(orchestrate, suite: Path) -> None:
    with (suite / "config-v2/task.yaml").open("a") as file:
        file.write("environment: {image: debian, requires: []}\n")
    said = orchestrate("submit", suite, "--agent", "nop", "--dry-run", "--backend", "bubblewrap").stderr
    assert "task config-v2: image: bubblewrap honours no image" in said
    assert "requires: [NAME, …]" in said
    assert "--backend container" in said


def test_what_a_submission_asks_and_this_version_ignores_is_refused_by_name(orchestrate, tmp_path: Path) -> None:
    (tmp_path / "nightly.yaml").write_text(
        f"suite: {STARTER}\nagents: [nop]\nkubernetes: {{namespace: a}}\nschedule: 0 3 * * *\n"
    )
    done = orchestrate("submit", "nightly.yaml", "--dry-run")
    assert done.returncode == 2
    for name in ("kubernetes", "schedule"):
        assert f"nightly.yaml: {name}: is not honoured by this version" in done.stderr


def test_more_trials_than_are_allowed_are_refused_with_both_numbers(orchestrate, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(f"suite: {STARTER}\nagents: [nop, oracle]\nlimits: {{trials: 30}}\n")
    (tmp_path / "orchestrate.toml").write_text("[limits]\ntrials = 23\n")
    done = orchestrate("submit", "small.yaml", "--samples", "1")
    assert done.returncode == 2
    assert "24 trials are planned, and at most 23 are allowed (limits.trials of orchestrate.toml:2)" in done.stderr
    assert not (tmp_path / ".orchestrate/store/runs").exists()


@pytest.mark.parametrize("amount", ["0", "nan"])
def test_a_spending_limit_is_an_amount(orchestrate, amount: str) -> None:
    done = orchestrate("submit", STARTER, "--agent", "nop", "--max-cost", amount)
    assert done.returncode == 2
    assert "not an amount above 0" in done.stderr


def test_a_task_that_this_version_does_not_run_is_refused_by_name(orchestrate, suite: Path, tmp_path: Path) -> None:
    with (suite / "config-v2/task.yaml").open("a") as file:
        file.write("trace: [{id: first, type: order, before: a, after: b}]\ntools: {allow: [shell]}\n")
    done = orchestrate("submit", "tasks/starter", "--agent", "oracle")
    assert done.returncode == 2
    assert "task config-v2: trace is not run by this version" in done.stderr
    assert "task config-v2: tools.allow is not run by this version" in done.stderr
    assert not (tmp_path / ".orchestrate/store/runs").exists()
