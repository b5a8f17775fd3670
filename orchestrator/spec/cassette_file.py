"""Reading the cassette that a task names, with every mistake at its place."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from orchestrator.errors import Problem, nearest
from orchestrator.spec.cassette import MAX_BYTES, Cassette, parse_cassette
from orchestrator.spec.crosscheck import TaskFolder
from orchestrator.spec.files import display
from orchestrator.spec.world import World, WorldTool


def check_cassette(task: TaskFolder, world: World | None) -> Iterator[Problem]:
    """Find what is wrong with the task's recorded answers. What is wrong with the place of the file is told where it is named."""
    named = task.document.get("fixtures", "cassette")
    if not isinstance(named, str) or PurePosixPath(named).parts[:1] != ("fixtures",) or ".." in named:
        return
    file = task.folder / named
    if file.is_symlink() or not file.is_file():
        return
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        yield Problem(display(file), message=f"cannot be read: {error.strerror}")
        return
    cassette, problems = parse_cassette(data, display(file))
    yield from problems
    if cassette is not None and (world is not None or task.document.get("world") is None):
        yield from _mistakes(task, world, cassette, display(file))


def _mistakes(task: TaskFolder, world: World | None, cassette: Cassette, file: str) -> Iterator[Problem]:
    """Find tools that are answered from the cassette by one file and unknown to the other."""
    tools = {} if world is None else world.guarded
    own = [name for name, tool in tools.items() if not isinstance(tool, WorldTool) or tool.caller == "agent"]
    apis, servers = _upstreams(task)
    own += apis
    brought = [tool.name for tool in cassette.tools]
    for index, name in enumerate(brought):
        if name in tools:
            message = (
                f"{name!r} is a tool of the world already; list it in fixtures.tools of task.yaml and take it out here"
            )
            yield Problem(file, 1, field=f"tools[{index}]", message=message)
    listed = task.document.get("fixtures", "tools")
    patterns = [each for each in listed if isinstance(each, str)] if isinstance(listed, list) else []
    for index, pattern in enumerate(patterns):
        if not any(fnmatchcase(name, pattern) for name in [*own, *brought]) and not _may_name(pattern, servers):
            message = f"no tool of the task's world or upstreams is named {pattern!r}{nearest(pattern, own)}"
            yield task.document.problem(("fixtures", "tools", index), message)
    answered = {name for name in own if any(fnmatchcase(name, pattern) for pattern in patterns)} | set(brought)
    if not answered and not any(_may_name(pattern, servers) for pattern in patterns):
        message = (
            "nothing is answered from the cassette: list tools of the world or of upstreams in fixtures.tools, "
            "or bring tools in its header"
        )
        yield task.document.problem(("fixtures",), message)
        return
    yield from _unanswered(cassette, answered, file)


def _upstreams(task: TaskFolder) -> tuple[list[str], list[str]]:
    """Return the names of the task's HTTP APIs, each a tool, and of its MCP servers, whose tools nobody knows here."""
    listed = task.document.get("upstream")
    named = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    apis = [str(each.get("name")) for each in named if "http" in each]
    return apis, [str(each.get("name")) for each in named if "mcp" in each]


def _may_name(pattern: str, servers: list[str]) -> bool:
    return any(pattern.startswith(f"{name}_") or fnmatchcase(f"{name}_", pattern) for name in servers)


def _unanswered(cassette: Cassette, answered: set[str], file: str) -> Iterator[Problem]:
    told: set[str] = set()
    for line, call in enumerate(cassette.calls, 2):
        if call.tool not in answered and call.tool not in told:
            told.add(call.tool)
            message = f"no tool {call.tool!r} is answered from this cassette{nearest(call.tool, sorted(answered))}"
            yield Problem(file, line, field="tool", message=message)
