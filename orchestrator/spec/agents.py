"""Reading agent files, their prompts, own files and conversations; and the agents that need no file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from orchestrator.errors import Problem, SpecError, nearest
from orchestrator.spec.agent import Agent
from orchestrator.spec.bundle import Bundle, folder_bundle, ignored, scripts_bundle
from orchestrator.spec.crosscheck import regex_fault
from orchestrator.spec.explain import validate
from orchestrator.spec.files import display, read_document, read_text
from orchestrator.spec.loaded import LoadedAgent, LoadedSuite, agent_digest
from orchestrator.spec.scripts import Script
from orchestrator.spec.yaml import Document
from orchestrator.spec.yaml import Path as FieldPath

BUILT_IN = ("oracle", "nop", "human")
"""Agents that need no file."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,98}[a-z0-9])?")


def built_in_agent(name: str) -> LoadedAgent:
    """Return ``oracle``, ``nop``, ``human`` or ``wrong/NAME``, which runs a task's wrong solution.

    Raises SpecError for another name.
    """
    if name in {"nop", "human"}:
        agent = Agent.model_validate({"type": name})
    elif name == "oracle" or (name.startswith("wrong/") and _NAME.fullmatch(name.removeprefix("wrong/"))):
        agent = Agent(type="oracle")
    else:
        message = (
            f"no built-in agent has that name{nearest(name, BUILT_IN)}; there are {', '.join(BUILT_IN)}, wrong/NAME"
        )
        raise SpecError([Problem(name, message=message)])
    return LoadedAgent(name, agent, agent_digest(agent, None, None, None))


def model_agent(model: str) -> LoadedAgent:
    """Return the small loop ``react`` over one model, ``provider/name``. Raises SpecError for another form."""
    agent, problems = validate(Agent, Document("--model", {"type": "react", "models": {"main": model}}, {}))
    if agent is None:
        raise SpecError(problems)
    return LoadedAgent("react", agent, agent_digest(agent, None, None, None))


def load_agent(path: Path) -> LoadedAgent:
    """Read an agent file and all that it names beside it. Its name is the file's. Raises SpecError."""
    problems: list[Problem] = []
    document = read_document(path, problems)
    if document is None:
        raise SpecError(problems)
    agent, found = validate(Agent, document)
    problems += found
    if not _NAME.fullmatch(path.stem):
        message = (
            f"the file's name {path.stem!r} is the agent's: use lower case letters, digits, dots, dashes, underscores"
        )
        problems.append(Problem(display(path), message=message))
    if path.stem in BUILT_IN and document.get("type") != path.stem:
        problems.append(
            document.problem(("type",), f"the name {path.stem!r} belongs to a built-in agent; rename the file")
        )
    prompt = _prompt(document, path.parent, problems)
    bundle = _bundle(document, path.parent, problems)
    scripts = _scripts(document, path.parent, problems)
    if problems or agent is None:
        raise SpecError(problems)
    files = None if scripts is None else scripts_bundle({task: script for task, (script, _) in scripts.items()})
    shown = {task: where for task, (_, where) in (scripts or {}).items()}
    name, where = path.stem, display(path)
    return LoadedAgent(name, agent, agent_digest(agent, prompt, bundle, files), prompt, bundle, files, shown, where)


def check_scripts(agent: LoadedAgent, suite: LoadedSuite) -> list[Problem]:
    """Return a problem for each conversation file whose name is no task of the suite."""
    ids = [task.task.id for task in suite.tasks]
    return [
        Problem(shown, message=f"there is no task {name!r} in suite {suite.suite.id!r}{nearest(name, ids)}")
        for name, shown in agent.script_files.items()
        if name not in ids
    ]


def _named(document: Document, field: str, folder: Path) -> Path | None:
    """Return what a field names beside the agent file, when it is a path that stays there."""
    value = document.get(field)
    if not isinstance(value, str) or not value or value.startswith("/") or ".." in value.split("/"):
        return None
    return folder / value


def _prompt(document: Document, folder: Path, problems: list[Problem]) -> str | None:
    path = _named(document, "prompt", folder)
    if path is None:
        return None
    found: list[Problem] = []
    text = read_text(path, found)
    problems += [document.problem(("prompt",), f"{each.file}: {each.message}") for each in found]
    return text


def _bundle(document: Document, folder: Path, problems: list[Problem]) -> Bundle | None:
    path = _named(document, "bundle", folder)
    if path is None:
        return None
    if not path.is_dir() or path.is_symlink():
        problems.append(document.problem(("bundle",), f"there is no folder {display(path)}"))
        return None
    try:
        return folder_bundle(path, display(path))
    except SpecError as error:
        problems += error.problems
        return None


def _scripts(document: Document, folder: Path, problems: list[Problem]) -> dict[str, tuple[Script, str]] | None:
    path = _named(document, "scripts", folder)
    if path is None:
        return None
    if not path.is_dir():
        problems.append(document.problem(("scripts",), f"there is no folder {display(path)}"))
        return None
    found: dict[str, tuple[Script, str]] = {}
    for file in sorted(path.glob("*.yaml")):
        if ignored(file.name):
            continue
        script = _script(file, problems)
        if script is not None:
            found[file.stem] = (script, display(file))
    if not any(path.glob("*.yaml")):
        problems.append(document.problem(("scripts",), f"{display(path)} holds no TASK.yaml"))
    return found


def _script(file: Path, problems: list[Problem]) -> Script | None:
    document = read_document(file, problems)
    if document is None:
        return None
    before = len(problems)
    inlined = Document(document.file, _inlined(document, file.parent, problems), document.values, document.keys)
    script, found = validate(Script, inlined)
    problems += found
    problems += _pattern_problems(inlined)
    return script if len(problems) == before else None


def _patterns(document: Document) -> list[FieldPath]:
    """Return where a script has regular expressions."""
    others = document.get("others")
    paths: list[FieldPath] = [
        ("others", number, "match") for number in range(len(others) if isinstance(others, list) else 0)
    ]
    conversations = document.get("conversations")
    for number, each in enumerate(conversations if isinstance(conversations, list) else []):
        turns = each.get("turns") if isinstance(each, dict) else None
        paths += [
            ("conversations", number, "turns", index, "expect")
            for index in range(len(turns) if isinstance(turns, list) else 0)
        ]
    return paths


def _pattern_problems(document: Document) -> list[Problem]:
    found = []
    for path in _patterns(document):
        pattern = document.get(*path)
        if isinstance(pattern, str) and (fault := regex_fault(pattern)):
            found.append(document.problem(path, fault))
    return found


def _inlined(document: Document, folder: Path, problems: list[Problem]) -> Any:
    """Return the script's data with each argument ``{file: NAME}`` replaced by that file's text."""

    def walk(value: Any, path: FieldPath) -> Any:
        if isinstance(value, dict):
            if set(value) == {"file"} and "arguments" in path and isinstance(value["file"], str):
                return _text_of(document, (*path, "file"), value["file"], folder, problems)
            return {key: walk(each, (*path, key)) for key, each in value.items()}
        if isinstance(value, list):
            return [walk(each, (*path, index)) for index, each in enumerate(value)]
        return value

    return walk(document.data, ())


def _text_of(document: Document, path: FieldPath, name: str, folder: Path, problems: list[Problem]) -> str | None:
    if name.startswith("/") or ".." in name.split("/"):
        problems.append(document.problem(path, f"{name!r} must be a file beside the script"))
        return None
    found: list[Problem] = []
    text = read_text(folder / name, found)
    known = [each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()] if found else []
    problems += [document.problem(path, f"{each.file}: {each.message}{nearest(name, known)}") for each in found]
    return text
