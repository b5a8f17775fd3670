"""Agents whose files a command makes: once, from their recipe alone, and never half."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from orchestrator.driver.builds import Built, build_agent, build_agents, with_builds
from orchestrator.errors import SpecError
from orchestrator.spec.agents import load_agent
from orchestrator.spec.loaded import LoadedAgent


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def agent(folder: Path, build: str, **files: str) -> LoadedAgent:
    recipe = folder / "recipe"
    recipe.mkdir(exist_ok=True)
    (recipe / "lock").write_text("pinned")
    for name, text in files.items():
        (recipe / name).write_text(text)
    file = folder / "mine.yaml"
    indented = build.replace("\n", "\n  ")
    file.write_text(f"type: command\ncommand: [/agent/run]\nbundle: recipe/\nbuild: |\n  {indented}\n")
    return load_agent(file)


def build(made: LoadedAgent, cache: Path, *, again: bool = False) -> Built:
    return asyncio.run(build_agent(made, cache, lambda _: None, again=again))


def files(made: LoadedAgent) -> dict[str, bytes]:
    assert made.bundle is not None
    return {item.path: b"".join(item.chunks()) for item in made.bundle.items}


def test_what_the_command_leaves_is_the_agents_files(tmp_path: Path, cache: Path) -> None:
    made = agent(tmp_path, "cat lock > run\nchmod +x run\nrm lock\nmkdir bin\nln -s ../run bin/also")
    told = build(made, cache)
    [built] = with_builds([made], cache)
    assert built.bundle is not None
    assert [(item.path, item.type, item.mode) for item in built.bundle.items] == [
        ("bin/also", "symlink", 0o777),
        ("run", "file", 0o755),
    ]
    assert (told.how, told.digest) == ("built", built.bundle.digest)
    assert built.digest != made.digest


def test_programs_of_the_machine_go_before_those_of_our_own_environment(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, machine = Path(sys.prefix) / "bin", tmp_path / "bin"
    machine.mkdir()
    (machine / "python3").symlink_to("/bin/true")
    monkeypatch.setattr(sys, "base_prefix", "/elsewhere")
    monkeypatch.setenv("PATH", os.pathsep.join([str(ours), str(machine), "/usr/bin", "/bin"]))
    made = agent(tmp_path, 'command -v python3 > run; echo "$PATH" >> run')
    build(made, cache)
    first, path = files(with_builds([made], cache)[0])["run"].decode().splitlines()
    assert first == str(machine / "python3")
    assert path.split(os.pathsep) == [str(machine), "/usr/bin", "/bin", str(ours)]


def test_a_recipe_is_built_once_and_again_only_when_it_changed_or_was_asked(tmp_path: Path, cache: Path) -> None:
    counter = tmp_path / "counter"
    command = f"echo once >> {counter}\ncp lock run"
    assert [build(agent(tmp_path, command), cache).how for _ in range(2)] == ["built", "cached"]
    assert build(agent(tmp_path, command), cache, again=True).how == "built"
    assert build(agent(tmp_path, command, more="x"), cache).how == "built"
    assert counter.read_text().count("once") == 3


def test_files_that_somebody_changed_are_no_agents(tmp_path: Path, cache: Path) -> None:
    made = agent(tmp_path, "cp lock run")
    build(made, cache)
    [file] = cache.rglob("run")
    file.write_text("other")
    with pytest.raises(SpecError, match=r"mine\.yaml: build: not built on this machine; .* orchestrate agents build "):
        with_builds([made], cache)
    assert build(made, cache).how == "built"
    assert files(with_builds([made], cache)[0])["run"] == b"pinned"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("exit 3", "its build command ended with exit code 3"),
        ("false\ntouch run", "its build command ended with exit code 1"),
        ("echo $undefined", "its build command ended with exit code"),
        ("rm lock", "its build command left no files"),
        ("ln -s /etc/passwd run", "run: is a symbolic link to '/etc/passwd'"),
        ("truncate -s 1025M run", "the build left 1,074,790,406 bytes, and an agent may have 1,073,741,824"),
        ("mkfifo run", "run: is no file, folder or symbolic link"),
    ],
)
def test_a_build_that_fails_leaves_nothing(tmp_path: Path, cache: Path, command: str, says: str) -> None:
    made = agent(tmp_path, command)
    with pytest.raises(SpecError, match=says):
        build(made, cache)
    assert not [path for path in cache.rglob("*") if path.name != ".lock" and path.is_file()]
    with pytest.raises(SpecError, match="not built on this machine"):
        with_builds([made], cache)


def test_the_command_gets_registries_and_python_but_no_key(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "ORCHESTRATE_STORE"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("PIP_INDEX_URL", "https://packages.example")
    monkeypatch.setenv("npm_config_registry", "https://npm.example")
    made = agent(tmp_path, "env > run\n\"$PYTHON\" -c 'import sys; print(sys.version_info[:2])' >> run")
    build(made, cache)
    said = files(with_builds([made], cache)[0])["run"].decode()
    assert "secret" not in said
    assert "PIP_INDEX_URL=https://packages.example" in said
    assert "npm_config_registry=https://npm.example" in said
    assert "(3, " in said


def test_all_files_are_read_before_anything_is_built(tmp_path: Path, cache: Path) -> None:
    agent(tmp_path, f"touch {tmp_path}/ran run")
    (tmp_path / "plain.yaml").write_text("type: nop\n")
    names = [tmp_path / name for name in ("mine.yaml", "plain.yaml", "absent.yaml")]
    with pytest.raises(SpecError) as caught:
        asyncio.run(build_agents(names, cache, lambda _: None))
    assert len(caught.value.problems) == 2
    assert "so there is nothing to make" in str(caught.value)
    assert not (tmp_path / "ran").exists()


def test_all_failing_builds_are_told_and_the_others_are_kept(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "recipe").mkdir()
    for name, command in {"first": "exit 3", "good": "touch run", "last": "rm -f *"}.items():
        (tmp_path / f"{name}.yaml").write_text(
            f"type: command\ncommand: [/agent/run]\nbundle: recipe/\nbuild: {command}\n"
        )
    (tmp_path / "recipe/lock").write_text("pinned")
    names = [tmp_path / f"{name}.yaml" for name in ("first", "good", "last")]
    with pytest.raises(SpecError) as caught:
        asyncio.run(build_agents(names, cache, lambda _: None))
    assert [Path(problem.file).stem for problem in caught.value.problems] == ["first", "last"]
    assert with_builds([load_agent(names[1])], cache)


def test_agents_without_a_build_stay_as_they_are(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "plain.yaml").write_text("type: nop\n")
    plain = load_agent(tmp_path / "plain.yaml")
    assert with_builds([plain], cache) == (plain,)
