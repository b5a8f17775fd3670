"""Reading ``world/tools.yaml`` of a task, with every mistake at its place.

Statements are only read here; whether the database takes them is tried before a run, by the process that will run them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from orchestrator.errors import Problem, nearest
from orchestrator.spec.crosscheck import TaskFolder
from orchestrator.spec.explain import validate
from orchestrator.spec.files import display, read_document
from orchestrator.spec.world import (
    OutboxTool,
    World,
    WorldTool,
    argument_names,
    named_parameters,
    outbox_arguments,
    placeholders,
)
from orchestrator.spec.yaml import Document
from orchestrator.spec.yaml import Path as FieldPath

_CHECKS = {"db_goal": "compares databases", "outbox": "looks at the outbox", "rows_unchanged": "compares rows"}


def world_file(task: TaskFolder, problems: list[Problem]) -> World | None:
    """Return the task's world; None, and what is wrong, when there is none or it cannot be used."""
    named = task.document.get("world")
    problems += _needing(task, has_world=isinstance(named, str))
    if not isinstance(named, str) or PurePosixPath(named).parts[:1] != ("world",) or ".." in named:
        return None  # what is wrong with it is told where it is named
    folder = task.folder / named
    if not folder.is_dir():
        return None
    for name in ("seed.sql", "tools.yaml"):
        if not (folder / name).is_file():
            problems.append(Problem(display(folder), message=f"a world needs {name}, and it is not there"))
    if not (folder / "tools.yaml").is_file():
        return None
    document = read_document(folder / "tools.yaml", problems)
    if document is None:
        return None
    world, found = validate(World, document)
    problems += found
    if world is not None:
        problems += _mistakes(world, document, folder)
    return world


def _needing(task: TaskFolder, *, has_world: bool) -> Iterator[Problem]:
    """Find checks that look at a database where there is none."""
    for path, entry in task.entries():
        kind = entry.get("type")
        if has_world or not isinstance(kind, str):
            continue
        if kind in _CHECKS:
            yield task.document.problem((*path, "type"), f"{kind!r} {_CHECKS[kind]}, and the task has no 'world'")
        elif kind == "sql" and entry.get("database") is None:
            yield task.document.problem((*path, "type"), "name a 'database' of the workspace: the task has no 'world'")


def _mistakes(world: World, document: Document, folder: Path) -> Iterator[Problem]:
    for index, tool in enumerate(world.tools):
        yield from _tool(tool, document, ("tools", index), argument_names(tool.arguments))
    for index, ready in enumerate(world.outbox):
        yield from _tool(ready, document, ("outbox", index), outbox_arguments(ready.name))
    for index, rule in enumerate(world.approvals):
        tool_meant = world.guarded[rule.tool]
        path: FieldPath = ("approvals", index)
        yield from _statement(rule.when, document, (*path, "when"), arguments_of(tool_meant))
        yield from _words(rule.message, document, (*path, "message"), arguments_of(tool_meant))
    yield from _functions(world, document, folder)


def arguments_of(tool: WorldTool | OutboxTool) -> tuple[str, ...]:
    """Return the names of a tool's arguments."""
    return argument_names(tool.arguments) if isinstance(tool, WorldTool) else outbox_arguments(tool.name)


def _tool(
    tool: WorldTool | OutboxTool, document: Document, path: FieldPath, arguments: tuple[str, ...]
) -> Iterator[Problem]:
    for number, condition in enumerate(tool.requires):
        where: FieldPath = (*path, "requires", number)
        yield from _statement(condition.sql, document, (*where, "sql"), arguments)
        yield from _words(condition.message, document, (*where, "message"), arguments)
    if not isinstance(tool.requires_approval, bool):
        yield from _statement(tool.requires_approval.when, document, (*path, "requires_approval", "when"), arguments)
    for number, fault in enumerate(tool.faults):
        yield from _words(fault.message, document, (*path, "faults", number, "message"), arguments)
    if not isinstance(tool, WorldTool):
        return
    for number, statement in enumerate(tool.sql):
        yield from _statement(statement, document, (*path, "sql", number), arguments)
    for name, part in tool.result.items():
        for kind in ("row", "rows", "value"):
            yield from _statement(getattr(part, kind), document, (*path, "result", name, kind), arguments)
    if tool.message is not None:
        yield from _words(tool.message.to, document, (*path, "message", "to"), arguments)
        yield from _words(tool.message.text, document, (*path, "message", "text"), arguments)


def _statement(sql: str | None, document: Document, path: FieldPath, arguments: tuple[str, ...]) -> Iterator[Problem]:
    known = (*arguments, "now", "call")
    for name in named_parameters(sql or ""):
        if name not in known:
            yield document.problem(path, f"there is no argument {name!r}{nearest(name, known)}; name it in 'arguments'")


def _words(text: str, document: Document, path: FieldPath, arguments: tuple[str, ...]) -> Iterator[Problem]:
    for name in placeholders(text):
        if name not in arguments:
            yield document.problem(path, f"there is no argument {name!r}{nearest(name, arguments)}")


def _functions(world: World, document: Document, folder: Path) -> Iterator[Problem]:
    source = folder / "tools.py"
    if not world.has_functions:
        if source.is_file():
            yield Problem(
                display(source), message="nothing uses this; name a 'function' of it in tools.yaml or remove it"
            )
        return
    known = _defined(source)
    if isinstance(known, Problem):
        yield known
        return
    for index, tool in enumerate(world.tools):
        if tool.function is not None and tool.function not in known:
            message = f"there is no function {tool.function!r} in {display(source)}{nearest(tool.function, known)}"
            yield document.problem(("tools", index, "function"), message)


def _defined(source: Path) -> list[str] | Problem:
    """Return the functions of a file, which is not run."""
    try:
        tree: Any = ast.parse(source.read_bytes())
    except FileNotFoundError:
        return Problem(display(source), message="a tool names a 'function', and this file is not there")
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None) or 0
        return Problem(display(source), line, message=f"this is no Python: {getattr(error, 'msg', error)}")
    return [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]
