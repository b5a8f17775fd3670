"""Loading suites, tasks and agents: what comes out, and how every mistake is told."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec.load import (
    built_in_agent,
    check_scripts,
    load_agent,
    load_submission,
    load_suite,
    load_task,
    model_agent,
)
from orchestrator.spec.scripts import Script

if TYPE_CHECKING:
    from tests.spec.conftest import Write


def problems(load: Callable[[], object]) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load()
    return [str(problem) for problem in caught.value.problems]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_defaults_of_the_suite_are_merged_below_the_task(suite: Path) -> None:
    edit(suite / "suite.yaml", "{max_steps: 7}", "{max_steps: 7, max_tokens: 10}")
    edit(suite / "one/task.yaml", "id: one\n", "id: one\nbudgets: {max_tokens: 20}\n")
    loaded = load_suite(suite)
    [task] = loaded.tasks
    assert (task.task.samples, task.task.budgets.max_steps, task.task.budgets.max_tokens) == (3, 7, 20)
    assert task.digest == load_task(suite / "one").digest
    assert dict(task.wrong) == {"wrong/lazy": ("tests", "paths_unchanged")}
    assert loaded.task("one") is task


def test_lists_of_defaults_are_replaced_not_joined(suite: Path) -> None:
    (suite / "suite.yaml").write_text(
        "id: small\ndefaults:\n  tags: [a, b]\n  checks: [{id: x, type: final, status: asked}]\n"
    )
    edit(suite / "one/task.yaml", "id: one\n", "id: one\ntags: [c]\n")
    [task] = load_suite(suite).tasks
    assert task.task.tags == ("c",)
    assert [check.id for check in task.task.checks] == ["tests", "radius"]


def test_mistakes_in_defaults_point_at_the_suite_file_once(suite: Path, write: Write) -> None:
    write("small/two/task.yaml", "id: two\ninstruction: a\nchecks: [{id: r, type: diff, allow: []}]\n")
    edit(suite / "suite.yaml", "max_steps: 7", "max_stesp: 7, max_tokens: many")
    assert problems(lambda: load_suite(suite)) == [
        "small/suite.yaml:4:13: defaults.budgets.max_stesp: unknown key (did you mean 'max_steps'?)",
        "small/suite.yaml:4:39: defaults.budgets.max_tokens: must be a whole number, not the text 'many'",
    ]


def test_six_mistakes_are_six_located_errors(suite: Path) -> None:
    (suite / "one/task.yaml").write_text(
        "id: one\n"
        "instrution: Mend it.\n"
        "tier: 7\n"
        "kind: regresion\n"
        "world: world/\nfixtures: {cassette: fixtures/calls.jsonl}\nuser: {mode: scripted, replies: user.yaml}\n"
        "environment: {memory: hidden/, resources: {memory: 1GB}}\n"
        "checks:\n"
        "  - {id: tests, type: comand, run: x}\n"
        "  - {id: f, type: files, path: a, regex: '('}\n"
        "invariants: [{type: paths_unchanged, paths: [src/a.py]}]\n"
    )
    found = problems(lambda: load_suite(suite))
    assert [line.split(": ")[0] for line in found] == [
        f"small/one/task.yaml:{place}" for place in ("2:1", "3:7", "4:7", "8:23", "8:52", "10:23", "11:42")
    ]
    for words in (
        "did you mean 'instruction'",
        "at most 4",
        "'regression'",
        "other audiences",
        "not a size",
        "'command'",
    ):
        assert any(words in line for line in found), words


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("id: one", "id: two", "1:5: id: 'two' must be the name of its folder, which is 'one'"),
        ("id: one", "id: one\nmax_steps: 3", "2:1: max_steps: unknown key (did you mean 'budgets.max_steps'?)"),
        ("id: one", "id: one\nservices: []", "2:1: services: reserved for extra containers beside the agent"),
        ("id: one", "id: one\nsteps: []", "2:1: steps: reserved for tasks of several steps"),
        (
            "memory: memory/",
            "memory: memory/\n  resources: {gpu: 1}",
            "5:15: environment.resources.gpu: reserved for graphics processors",
        ),
        ("id: one", "id: one\nsamples:", "2:1: samples: nothing is given here; write a value or remove the key"),
        ("id: one", "id: one\nsamples: '3'", "2:10: samples: must be a whole number, not the text '3'"),
        ("id: one\n", "name: one\n", "1:1: name: unknown key (did you mean 'id'?)"),
        ("id: one", "id: one\ncommnd: sh", "2:1: commnd: unknown key; known are id, version, kind,"),
        ("id: one", "id: one\ntitle: One", "2:1: title: unknown key; known are id, version, kind,"),
        ("id: one", "id: one\nmax_step: 3", "2:1: max_step: unknown key (did you mean 'budgets.max_steps'?)"),
        (
            'allow: ["src/**"]',
            'allow: "**"',
            "10:37: checks[1].allow: must be a list, not the text '**'; write it in brackets: [\"**\"]",
        ),
        ("id: one", "id: one\nversion: 1.5", "2:10: version: must be a whole number, not the number 1.5"),
        (
            "id: one",
            "id: one\ntags: code",
            "2:7: tags: must be a list, not the text 'code'; write it in brackets: [code]",
        ),
        ("id: one", "id: one\ntags: [Bad Tag]", "2:8: tags[0]: must be a name: lower case letters"),
        ("id: one", "id: one\norigin: {}", "2:9: origin: give exactly one of incident, intent, synthetic"),
        (
            "id: one",
            "id: one\nexpect: decline",
            "2:9: expect: a task that expects 'decline' needs a check of type 'final'",
        ),
        (
            "memory: memory/",
            "memory: memory/\n  network: {allowlst: [a]}",
            "5:13: environment.network.allowlst: unknown key (did you mean",
        ),
        (
            "memory: memory/",
            "memory: memory/\n  now: 2026-03-02",
            "5:8: environment.now: must be a time such as 2026-03-02T09:00:00Z",
        ),
        (
            "memory: memory/",
            "memory: memory/\n  now: 2026-03-02T09:00:00",
            "5:8: environment.now: must be a time with its zone",
        ),
        (
            "memory: memory/",
            "memory: memory/\n  workspace: hidden",
            "5:14: environment.workspace: 'hidden' must be workspace/ or a folder",
        ),
        (
            "memory: memory/",
            "memory: memory/\n  workspace: workspace/nope",
            "5:14: environment.workspace: there is no folder small/one/work",
        ),
        (
            "memory: memory/",
            "memory: solution",
            "4:11: environment.memory: 'solution' must be memory/ or a folder in it",
        ),
        ("world: world/", "world: hidden/", "5:8: world: 'hidden/' must be world/ or a folder in it"),
        ("fixtures/calls.jsonl", "hidden/x", "6:22: fixtures.cassette: 'hidden/x' must be a file in fixtures/"),
        ("replies: user.yaml", "replies: hidden/x", "7:33: user.replies: 'hidden/x' must be user.yaml"),
        (
            "expected.txt",
            "expcted.txt",
            "9:71: checks[0].expect: there is no file small/one/hidden/expcted.txt (did you",
        ),
        ("hidden/expected.txt", "workspace/a", "9:71: checks[0].expect: 'workspace/a' must be a file under hidden/"),
        (
            "hidden/expected.txt",
            "hidden/../task.yaml",
            "9:71: checks[0].expect: 'hidden/../task.yaml' must be a path inside",
        ),
        ("type: diff", "type: dif", "10:24: checks[1].type: unknown check type 'dif' (did you mean 'diff'?)"),
        ("id: radius, ", "", "10:5: checks[1].id: this field is required"),
        ("id: radius", "id: tests", "10:10: checks[1].id: the id 'tests' is taken, first in line 9"),
        ("paths_unchanged", "paths_changed", "12:12: invariants[0].type: unknown invariant type 'paths_changed' (did"),
        (
            '"tests/**"',
            "tests/",
            "12:37: invariants[0].paths[0]: 'tests/' matches no file of the workspace; everything below a folder is 'tests/**'",
        ),
        (
            '"tests/**"',
            "tests",
            "12:37: invariants[0].paths[0]: 'tests' matches no file of the workspace; everything below",
        ),
        (
            '"tests/**"',
            '"test/**"',
            "12:37: invariants[0].paths[0]: 'test/**' matches no file of the workspace (did you mean 'tests/**'?)",
        ),
        (
            '"src/**"',
            "out/",
            "10:38: checks[1].allow[0]: 'out/' matches no file; everything below a folder is 'out/**'",
        ),
        (
            'allow: ["src/**"]',
            'allow: ["**"], required: [src/]',
            "10:56: checks[1].required[0]: 'src/' matches no file; everything below a folder is 'src/**'",
        ),
        (
            "memory: memory/",
            'memory: memory/\n  state: {exclude: ["te*/**"]}',
            "5:21: environment.state.exclude[0]: 'te*/**' leaves out what",
        ),
    ],
)
def test_each_mistake_in_words(suite: Path, old: str, new: str, expected: str) -> None:
    edit(suite / "one/task.yaml", old, new)
    found = [line.removeprefix("small/one/task.yaml:") for line in problems(lambda: load_suite(suite))]
    assert any(line.startswith(expected) for line in found), found
    # One cause, one message; a wrong solution may name what is gone.
    assert len([line for line in found if "wrong-lazy" not in line]) == 1, found


def test_a_task_to_decline_cannot_ask_for_completion(suite: Path) -> None:
    edit(suite / "one/task.yaml", "id: one\n", "id: one\nexpect: ask\n")
    edit(suite / "one/task.yaml", "  - {id: radius", "  - {id: end, type: final, status: completed}\n  - {id: radius")
    [found] = problems(lambda: load_task(suite / "one"))
    assert "11:36: checks[1].status: the task expects 'ask', so an agent that completes it has failed" in found


def test_an_unquoted_mode_is_shown_as_it_was_written(suite: Path) -> None:
    edit(suite / "one/task.yaml", "  - {id: radius", "  - {id: m, type: files, path: a, mode: 0755}\n  - {id: radius")
    [found] = problems(lambda: load_task(suite / "one"))
    assert found.endswith('10:41: checks[1].mode: must be text, not the number 755; write it in quotes: "0755"')


def test_an_invariant_given_twice_needs_an_id(suite: Path) -> None:
    edit(suite / "one/task.yaml", "invariants:\n", "invariants:\n  - {type: paths_unchanged, paths: [src/a.py]}\n")
    [found] = problems(lambda: load_task(suite / "one"))
    assert "the id 'paths_unchanged' is taken, first in line 12; give this one an id" in found


def test_unknown_entries_of_a_task_folder(suite: Path, write: Write) -> None:
    write("small/one/hiden/x", "")
    write("small/one/.DS_Store", "")
    write("small/one/task.yaml~", "")
    [found] = problems(lambda: load_suite(suite))
    assert found.startswith("small/one/hiden: unknown entry in a task folder (did you mean 'hidden'?)")


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ("  memory: memory/\n", "memory"),
        ("world: world/\n", "world"),
        ("fixtures: {cassette: fixtures/calls.jsonl}\n", "fixtures"),
        ("user: {mode: scripted, replies: user.yaml}\n", "user.yaml"),
    ],
)
def test_material_that_nothing_names_is_told(suite: Path, line: str, entry: str) -> None:
    edit(suite / "one/task.yaml", line, "  requires: [python3]\n" if entry == "memory" else "")
    [found] = problems(lambda: load_suite(suite))
    assert found.startswith(f"small/one/{entry}: nothing uses this; name it in ")


def test_a_workspace_beside_another_source_is_told(suite: Path) -> None:
    edit(
        suite / "one/task.yaml",
        "  memory: memory/\n",
        "  memory: memory/\n  image: x\n  workspace: {image_path: /testbed}\n",
    )
    [found] = problems(lambda: load_suite(suite))
    assert found.startswith("small/one/workspace: nothing uses this, since environment.workspace names another source")


def test_a_folder_that_is_nearly_a_task_is_no_absence(suite: Path, write: Write) -> None:
    write("small/two/tasks.yaml", "id: two")
    write("small/three/workspace/a", "")
    write("small/shared/README.md", "not a task")
    found = problems(lambda: load_suite(suite))
    assert found == [
        "small/three: this looks like a task, but there is no task.yaml",
        "small/two: this looks like a task, but there is no task.yaml; is 'tasks.yaml' meant to be it?",
    ]


def test_a_workspace_that_is_not_named_may_be_absent(suite: Path) -> None:
    edit(suite / "one/task.yaml", '"tests/**"', '"**"')
    for path in ("src/a.py", "src", "tests/test_a.py", "tests", ""):
        target = suite / "one/workspace" / path
        target.rmdir() if target.is_dir() else target.unlink()
    task = load_task(suite / "one")
    assert [item.path for item in task.bundles.sandbox.items] == ["memory/notes.md", "task/instruction.md", "workspace"]


def test_quarantine_names_tasks_of_the_suite(suite: Path) -> None:
    entry = "{owner: me, issue: X-1, expires: 2026-12-01, task: "
    edit(suite / "suite.yaml", "id: small\n", f"id: small\nquarantine: [{entry}oen}}, {entry}one}}, {entry}one}}]\n")
    first, second = problems(lambda: load_suite(suite))
    assert "quarantine[0].task: there is no task 'oen' in this suite (did you mean 'one'?)" in first
    assert "quarantine[2].task: the task 'one' is listed twice" in second


def test_a_folder_of_suites_names_them(suite: Path) -> None:
    (suite.parent / "suites").mkdir()
    suite.rename(suite.parent / "suites/small")
    assert problems(lambda: load_suite(Path("suites"))) == [
        "suites: this is no suite; name one that is in it: suites/small"
    ]


def test_a_suite_without_tasks_and_a_task_named_as_suite(suite: Path, write: Write) -> None:
    write("empty/suite.yaml", "id: empty\n")
    assert "there is no task" in problems(lambda: load_suite(suite.parent / "empty"))[0]
    assert "folder of a task, not of a suite" in problems(lambda: load_suite(suite / "one"))[0]
    assert problems(lambda: load_suite(Path("nowhere"))) == ["nowhere: there is no such suite folder"]
    assert problems(lambda: load_task(Path("nowhere"))) == ["nowhere: there is no such task folder"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("#!/bin/sh\necho\n", "solve.sh:2:1: the first line (after #!) must say which checks fail"),
        ("# fails:\n", "solve.sh:1:1: the first line (after #!) must say which checks fail"),
        ("# fails: tests, test\n", "solve.sh:1:17: there is no check 'test' (did you mean 'tests'?)"),
        (None, "wrong-lazy: there is no solve.sh"),
    ],
)
def test_wrong_solutions_say_what_fails(suite: Path, script: str | None, expected: str) -> None:
    path = suite / "one/solution/wrong-lazy/solve.sh"
    path.unlink() if script is None else path.write_text(script)
    if script is None:
        (path.parent / "other").write_text("")
    [found] = problems(lambda: load_task(suite / "one"))
    assert expected in found


def test_groups_and_their_members_can_be_named_by_wrong_solutions(suite: Path) -> None:
    group = "  - any_of: [{id: a, type: diff, allow: []}, {id: b, type: final, status: asked}]\ninvariants:"
    edit(suite / "one/task.yaml", "invariants:", group)
    (suite / "one/solution/wrong-lazy/solve.sh").write_text("# fails: a|b, a\n")
    assert load_task(suite / "one").wrong["wrong/lazy"] == ("a|b", "a")


def test_special_files_are_told_and_never_waited_for(suite: Path) -> None:
    (suite / "one/task.yaml").unlink()
    os.mkfifo(suite / "one/task.yaml")
    assert problems(lambda: load_suite(suite)) == ["small/one/task.yaml: this is not a regular file"]


AGENT = """\
type: react
models: {main: scripted/careful}
scripts: scripts/careful
prompt: prompt.md
bundle: files
prices: {scripted/careful: {input: 1, output: 2}}
"""
SCRIPT = """\
conversations:
  - turns:
      - calls: [{name: shell, arguments: {command: {file: fix.sh}, nested: [{file: fix.sh}], plain: {file: 1}}}]
      - {text: done, expect: "ok|done"}
"""


@pytest.fixture
def agent(write: Write) -> Path:
    write("agents/scripts/careful/one.yaml", SCRIPT)
    write("agents/scripts/careful/fix.sh", "echo fixed\n")
    write("agents/prompt.md", "Be careful.\n")
    write("agents/files/tool.py", "print()\n")
    return write("agents/careful.yaml", AGENT)


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("sh a.sh", "[sh, a.sh]"),
        ("python3 -m tool 'two words'", "[python3, -m, tool, two words]"),
        ("sleep 3", '[sleep, "3"]'),
        ("a | b", '[sh, -c, "a | b"]'),
    ],
)
def test_a_command_in_one_text_is_taken_apart(write: Write, written: str, advice: str) -> None:
    path = write("agents/own.yaml", f"type: command\ncommand: {written}\n")
    [found] = problems(lambda: load_agent(path))
    assert found.endswith(f"write it in brackets: {advice}")
    path.write_text(f"type: command\ncommand: {advice}\n")
    assert load_agent(path).agent.command


def test_a_far_guess_is_none(write: Write) -> None:
    path = write("run.yaml", "suite: s\nagents: [nop]\ncommnd: sh\nname: x\nsample: 3\n")
    command, name, sample = problems(lambda: load_submission(path))
    assert "unknown key; known are suite, agents," in command
    assert "unknown key; known are" in name
    assert "did you mean 'samples'?" in sample


def test_an_agent_with_all_its_files(agent: Path, suite: Path) -> None:
    loaded = load_agent(agent)
    assert (loaded.name, loaded.prompt) == ("careful", "Be careful.\n")
    assert loaded.bundle is not None
    assert [item.path for item in loaded.bundle.items] == ["tool.py"]
    assert loaded.scripts is not None
    script = Script.model_validate_json(loaded.scripts.read("one.json"))
    assert script.conversations[0].turns[0].calls[0].arguments == {
        "command": "echo fixed\n",
        "nested": ["echo fixed\n"],
        "plain": {"file": 1},
    }
    assert check_scripts(loaded, load_suite(suite)) == []


def test_amounts_that_no_sum_could_hold_are_refused(agent: Path, write: Write) -> None:
    agent.write_text(AGENT.replace("input: 1,", "input: 1.0e+300,"))
    assert problems(lambda: load_agent(agent))[0].endswith("must be at most 100000, is 1e+300")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ("placement: own", "placement 'own' needs 'image'"),
        ("placement: mounted", "placement 'mounted' needs 'image'"),
        (f"image: 'x@sha256:{1:064x}'", "'image' is for placement 'own' or 'mounted'"),
        (f"placement: mounted\nimage: 'x@sha256:{1:064x}'\nbuild: make", "take 'bundle' and 'build' out"),
        ("placement: own\nimage: 'x:1'", "image x:1: its tag can mean another image tomorrow"),
        ("build: ' '", "'build' is empty"),
        ("adapter: cursor", "adapter"),
        ("url: https://a.example/run", "type 'http' needs 'url', and no other type has one"),
    ],
)
def test_where_an_agent_runs_and_what_it_is_made_from_is_checked(write, fields, says):
    [found] = problems(lambda: load_agent(write("agents/a.yaml", f"type: command\ncommand: [x]\n{fields}\n")))
    assert says in found


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("prompt.md", "careful", "bold"),
        ("files/tool.py", "print", "exit"),
        ("scripts/careful/fix.sh", "fixed", "broken"),
        ("scripts/careful/one.yaml", "done", "end"),
        ("careful.yaml", "input: 1", "input: 2"),
    ],
)
def test_every_byte_of_an_agent_is_in_its_digest(agent: Path, name: str, old: str, new: str) -> None:
    before = load_agent(agent).digest
    edit(agent.parent / name, old, new)
    assert load_agent(agent).digest != before


def test_formatting_and_name_of_an_agent_are_not_in_its_digest(agent: Path, write: Write) -> None:
    before = load_agent(agent).digest
    reordered = "# a comment\n" + "\n".join(reversed(AGENT.splitlines())).replace("react", '"react"')
    assert load_agent(write("agents/other.yaml", reordered)).digest == before


def test_mistakes_of_agents_and_scripts(agent: Path, write: Write) -> None:
    edit(agent, "bundle: files", "bundle: fils\nenv: {A: 1}")
    edit(agent, "scripted/careful}", "careful}")
    edit(agent.parent / "scripts/careful/one.yaml", "command: {file: fix.sh}", "command: {file: fx.sh}")
    edit(agent.parent / "scripts/careful/one.yaml", "ok|done", "(ok")
    write("agents/scripts/careful/two.yaml", "conversation: []\n")
    write("agents/scripts/careful/way.yaml", "conversations: [{turns: [{text: a}]}]\nothers: [{match: '(t'}]\n")
    assert problems(lambda: load_agent(agent)) == [
        "agents/careful.yaml:2:16: models.main: must be PROVIDER/NAME, for example openai/gpt-5-mini or scripted/careful",
        "agents/careful.yaml:5:9: bundle: there is no folder agents/fils",
        'agents/careful.yaml:6:10: env.A: must be text, not the number 1; write it in quotes: "1"',
        (
            "agents/scripts/careful/one.yaml:3:59: conversations[0].turns[0].calls[0].arguments.command.file: "
            "agents/scripts/careful/fx.sh: there is no such file (did you mean 'fix.sh'?)"
        ),
        (
            "agents/scripts/careful/one.yaml:4:30: conversations[0].turns[1].expect: not a regular expression: "
            "missing ), unterminated subpattern at position 0"
        ),
        "agents/scripts/careful/two.yaml:1:1: conversation: unknown key (did you mean 'conversations'?)",
        (
            "agents/scripts/careful/way.yaml:2:18: others[0].match: not a regular expression: "
            "missing ), unterminated subpattern at position 0"
        ),
    ]


def test_scripts_for_tasks_that_are_not_there(agent: Path, suite: Path, write: Write) -> None:
    write("agents/scripts/careful/oen.yaml", SCRIPT)
    [found] = check_scripts(load_agent(agent), load_suite(suite))
    assert (
        str(found) == "agents/scripts/careful/oen.yaml: there is no task 'oen' in suite 'small' (did you mean 'one'?)"
    )


def test_names_of_agents(write: Write) -> None:
    assert "rename the file" in problems(lambda: load_agent(write("oracle.yaml", "type: nop\n")))[0]
    assert "lower case" in problems(lambda: load_agent(write("My Agent.yaml", "type: nop\n")))[0]
    assert problems(lambda: load_agent(Path("absent.yaml"))) == ["absent.yaml: there is no such file"]


def test_agents_without_a_file() -> None:
    assert built_in_agent("nop").agent.type == "nop"
    assert built_in_agent("wrong/lazy").name == "wrong/lazy"
    assert "did you mean 'oracle'" in problems(lambda: built_in_agent("orcale"))[0]
    assert problems(lambda: built_in_agent("wrong/../x"))
    react = model_agent("openai/x")
    assert (react.name, react.agent.models) == ("react", {"main": "openai/x"})
    changed = react.with_model("openai/y")
    assert changed.agent.models == {"main": "openai/y"}
    assert changed.digest != react.digest
    assert "PROVIDER/NAME" in problems(lambda: model_agent("gpt"))[0]
    assert "PROVIDER/NAME" in problems(lambda: react.with_model("gpt"))[0]


def test_submissions(write: Write) -> None:
    good = write("m/demo.yaml", "suite: ../tasks/starter\nagents: [oracle, careful]\nsamples: 5\n")
    assert load_submission(good).agents == ("oracle", "careful")
    bad = write("m/bad.yaml", "suite: a\nagents: []\nbackend: bubblewarp\nlimits: {cost: 3}\n")
    assert problems(lambda: load_submission(bad)) == [
        "m/bad.yaml:2:9: agents: needs at least 1 entry",
        "m/bad.yaml:3:10: backend: 'bubblewarp' is not one of auto, bubblewrap, container, kubernetes (did you mean 'bubblewrap'?)",
        "m/bad.yaml:4:10: limits.cost: unknown key (did you mean 'cost_usd'?)",
    ]


def test_files_outside_of_the_current_folder_are_shown_whole(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (suite / "one/task.yaml").write_text("")
    monkeypatch.chdir(suite / "one")
    assert problems(lambda: load_suite(suite))[0].startswith("task.yaml: the file is empty")
    monkeypatch.chdir("/")
    assert str(suite / "one/task.yaml").lstrip("/") in problems(lambda: load_suite(suite))[0]
