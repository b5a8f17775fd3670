"""Tools that are answered from a cassette: nothing behind them changes between trials.

A call that was not recorded is a typed error of the tool, and the trial goes on: an agent may find its way without it. It is told no more
than that; what was recorded is for people, who find the nearest recorded call among the findings. A trial that fails after such a call has
left the recorded path, and says nothing about the agent.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from orchestrator.gateway.bundled import unusable
from orchestrator.gateway.findings import printable
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.toolbox import Effect, Tool, ToolAnswer
from orchestrator.gateway.wire import LaunchBody
from orchestrator.gateway.worlds.tools import check
from orchestrator.interfaces import BundleSource
from orchestrator.spec.call_key import call_key, leaves, masked, masks_of
from orchestrator.spec.cassette import Cassette, RecordedCall, RecordedTool, parse_cassette
from orchestrator.spec.task import Fixtures

_KEPT = 8
"""Cassettes in memory, read and put in order; those of the tasks under way are few."""
_COMPARED = 500
"""Recorded calls of a tool that are looked at for the nearest one."""
_TOLD = 20
"""Misses of a launch that are looked into; more are only counted."""
_NAMED = 3
"""Arguments that are named where a call differs."""
_MISS = "fixture_miss"


class Recording:
    """A cassette, ordered for answering, for all launches of a task."""

    def __init__(self, cassette: Cassette, fixtures: Fixtures) -> None:
        """Raises ValueError for arguments that have no canonical form."""
        self.tools = cassette.tools
        self._patterns = () if fixtures.mode == "live" else fixtures.tools
        self._masks = masks_of((*fixtures.volatile, *fixtures.redact))
        self._by_key: dict[str, list[RecordedCall]] = defaultdict(list)
        self._by_tool: dict[str, list[RecordedCall]] = defaultdict(list)
        self._leaves: dict[str, list[tuple[int, dict[str, str]]]] = {}
        """Of recorded calls by tool, from the first miss on."""
        for call in cassette.calls:
            self._by_key[call_key(call.tool, call.arguments, self._masks)].append(call)
            self._by_tool[call.tool].append(call)

    def covers(self, tool: str) -> bool:
        """Return whether calls of a tool that something else offers are answered from here."""
        return any(fnmatchcase(tool, pattern) for pattern in self._patterns)

    def brings(self, start: str) -> bool:
        """Return whether it has tools of its own whose names begin so."""
        return any(tool.name.startswith(start) for tool in self.tools) and bool(self._patterns)

    def key(self, tool: str, arguments: dict[str, Any]) -> str | None:
        """Return what equal calls have in common; None: there can be none."""
        try:
            return call_key(tool, arguments, self._masks)
        except ValueError:
            return None

    def answer(self, key: str | None, number: int) -> RecordedCall | None:
        """Return what the call with this key got the ``number``-th time, from 0; the last answer comes again and again."""
        found = self._by_key.get(key or "")
        return None if not found else found[min(number, len(found) - 1)]

    def nearest(self, tool: str, arguments: dict[str, Any]) -> str:
        """Return, for people, which recorded call of the tool is most like this one and how they differ."""
        recorded = self._compared(tool)
        if not recorded:
            return f"no call of {tool} was recorded"
        try:
            asked = dict(leaves(masked(arguments, self._masks)))
        except ValueError:
            return "its arguments have no canonical form"
        number, values, differing = min(
            ((number, values, _differing(asked, values)) for number, values in recorded), key=lambda each: len(each[2])
        )
        told = [
            f"{name or 'arguments'} {_told(asked, name)} where {_told(values, name)} was recorded"
            for name in differing[:_NAMED]
        ]
        more = f"; and {len(differing) - _NAMED} more" if len(differing) > _NAMED else ""
        return f"nearest is call {number}: {'; '.join(told)}{more}"

    def _compared(self, tool: str) -> list[tuple[int, dict[str, str]]]:
        if tool not in self._leaves:
            calls = self._by_tool.get(tool, [])[:_COMPARED]
            self._leaves[tool] = [(call.number, dict(leaves(masked(call.arguments, self._masks)))) for call in calls]
        return self._leaves[tool]


def _differing(asked: dict[str, str], recorded: dict[str, str]) -> list[str]:
    return [name for name in sorted({*asked, *recorded}) if asked.get(name) != recorded.get(name)]


def _told(values: dict[str, str], name: str) -> str:
    return printable(values[name], 40) if name in values else "nothing"


class Recordings:
    """Reads the cassettes of world bundles, each once."""

    def __init__(self, bundles: BundleSource) -> None:
        self._bundles = bundles
        self._kept: OrderedDict[str, Recording | None] = OrderedDict()
        self._lock = asyncio.Lock()

    async def open(self, body: LaunchBody) -> Recording | None:
        """Return what the tools of a launch's task are answered from; None: nothing is recorded. Raises Refusal and StoreError."""
        if body.world is None:
            return None
        async with self._lock:
            if body.world not in self._kept:
                folder = await self._bundles.fetch("world", body.world)
                self._kept[body.world] = await asyncio.to_thread(_read, folder, body.task)
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(body.world)
            return self._kept[body.world]


def _read(folder: Path, task: str) -> Recording | None:
    """Return what a bundle holds of recorded answers. Raises Refusal."""
    try:
        said = orjson.loads((folder / "task.json").read_bytes()).get("fixtures")
        fixtures = None if said is None else Fixtures.model_validate_json(orjson.dumps(said))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise unusable("fixtures_unusable", f"the fixtures of task {task} are", error) from None
    if fixtures is None:
        return None
    what = fixtures.cassette
    try:
        cassette, problems = parse_cassette((folder / what).read_bytes(), what)
        if cassette is not None:
            return Recording(cassette, fixtures)
        why = str(problems[0])
    except (OSError, ValueError) as error:
        why = f"{what}: {error}"
    raise Refusal(400, "fixtures_unusable", f"the recorded answers of task {task} cannot be used: {why}")


def replayed(launch: Launch, recording: Recording | None, live: Iterable[Tool]) -> Iterator[Tool]:
    """Yield the tools of a launch: those that something offers, answered from the recording where it covers them, and its own."""
    if recording is None:
        yield from live
        return
    player = _Player(launch, recording)
    for tool in live:
        yield player.instead_of(tool) if recording.covers(tool.name) else tool
    for brought in recording.tools:
        yield player.brought(brought)


class _Player:
    """Answers the calls of one launch."""

    def __init__(self, launch: Launch, recording: Recording) -> None:
        self._launch = launch
        self._recording = recording
        self._asked: Counter[str] = Counter()

    def instead_of(self, tool: Tool) -> Tool:
        """Return a tool that takes the same arguments and is answered from the recording."""

        def prepare(arguments: dict[str, Any]) -> Effect:
            tool.prepare(arguments)  # what does not fit is refused as it would be in life
            return self._effect(tool.name, arguments)

        return self._tool(replace(tool, prepare=prepare))

    def brought(self, recorded: RecordedTool) -> Tool:
        """Return a tool that only the recording knows."""
        schema = {"properties": {}, **recorded.arguments, "type": "object"}

        def prepare(arguments: dict[str, Any]) -> Effect:
            check(recorded.name, arguments, schema)
            return self._effect(recorded.name, arguments)

        return self._tool(Tool(name=recorded.name, description=recorded.description, schema=schema, prepare=prepare))

    def _tool(self, tool: Tool) -> Tool:
        def recall(arguments: dict[str, Any]) -> None:
            if self._next(tool.name, arguments) is None:
                self._launch.fixture_misses += 1

        return replace(tool, recall=recall, recalls_failures=True)

    def _next(self, name: str, arguments: dict[str, Any]) -> RecordedCall | None:
        key = self._recording.key(name, arguments)
        found = self._recording.answer(key, self._asked[key or ""])
        self._asked[key or ""] += 1
        return found

    def _effect(self, name: str, arguments: dict[str, Any]) -> Effect:
        async def play() -> ToolAnswer:
            found = self._next(name, arguments)
            if found is None:
                return await self._missed(name, arguments)
            error = found.error
            if error is None:
                return ToolAnswer(data=found.data)
            outcome: Any = found.outcome
            return ToolAnswer(
                outcome=outcome,
                kind=error.kind,
                message=f"{error.kind}: {error.message}",
                code=error.status,
                retry_after=error.retry_after,
            )

        return play

    async def _missed(self, name: str, arguments: dict[str, Any]) -> ToolAnswer:
        self._launch.fixture_misses += 1
        if self._launch.fixture_misses <= _TOLD:
            nearest = await asyncio.to_thread(self._recording.nearest, name, arguments)
            self._launch.findings.add(_MISS, f"{name}: {nearest}")
        return ToolAnswer(outcome="error", kind=_MISS, message=f"{_MISS}: nothing was recorded for this call of {name}")
