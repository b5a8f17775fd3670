"""Recording: one trial with the live world, and a cassette of what its tools answered.

Nothing is listened to beside the trial: what the gateway wrote into the trajectory is what was called and what came of it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import orjson

from orchestrator import wiring
from orchestrator.dataset.rows import collect
from orchestrator.driver.local import Stopper
from orchestrator.driver.order import Loaded, Order, load_order
from orchestrator.driver.single import run_single_of
from orchestrator.errors import InfrastructureError, SpecError
from orchestrator.records.event import Event
from orchestrator.records.ids import TrialId
from orchestrator.settings import Settings
from orchestrator.spec.base import digest
from orchestrator.spec.bundle import Bundle, Item, world_json
from orchestrator.spec.call_key import call_key, masks_of, redacted
from orchestrator.spec.cassette import (
    FORMAT,
    VERSION,
    Cassette,
    RecordedCall,
    RecordedTool,
    parse_cassette,
)
from orchestrator.spec.files import display, read_document
from orchestrator.spec.loaded import LoadedTask
from orchestrator.spec.task import Fixtures

_REDACTED = "[redacted]"
_NOTHING_SAID = frozenset({"cancelled", "world_lost"})
"""Failures that are none of the tool's."""
_OUTCOMES = frozenset({"ok", "error", "timeout"})


@dataclass(frozen=True)
class Change:
    """What a recording makes of one tool's calls in a cassette, in numbers of different calls."""

    tool: str
    calls: int
    """Lines that it has now."""
    new: int
    gone: int
    changed: int
    """Calls with other answers than before."""


@dataclass(frozen=True)
class Recorded:
    """A cassette that was recorded and is not written yet."""

    run: str
    trial: TrialId
    file: Path
    data: bytes
    changes: tuple[Change, ...]

    @property
    def replaces(self) -> bool:
        """Whether writing it loses something that was recorded before."""
        return any(change.gone or change.changed for change in self.changes)

    def write(self) -> None:
        """Put the cassette into the task's folder, whole or not at all. Raises SpecError."""
        _put(self.file, self.data)


async def record_task(order: Order, settings: Settings, stopper: Stopper) -> Recorded:
    """Run the one trial of an order live and return what was recorded.

    Raises SpecError for a task without tools to record and for what no cassette holds, InfrastructureError when the trial was lost.
    """
    with _cassette_there(order.suite / order.tasks[0]):
        loaded = load_order(order)
        task = loaded.tasks[0]
        fixtures = task.task.fixtures
        if fixtures is None or not fixtures.tools:
            msg = f"{display(task.folder)}: there is nothing to record; list tools of its world in fixtures.tools"
            raise SpecError(msg)
        file = task.folder / fixtures.cassette
        before, _ = parse_cassette(file.read_bytes() if file.is_file() else _header(()), display(file))
        run, trial = await run_single_of(order, _live(loaded), settings, stopper)
        made = made_cassette(await _events(settings, run, trial), fixtures, before or Cassette((), ()))
    if not any(_is_listed(call.tool, fixtures) for call in made.calls):
        msg = f"{display(task.folder)}: {trial} of run {run} called none of the tools in fixtures.tools, so nothing was recorded"
        raise SpecError(msg)
    data = to_bytes(made)
    _, problems = parse_cassette(data, display(file))
    if problems:
        raise SpecError(problems)
    return Recorded(run, trial, file, data, tuple(_changes(before or Cassette((), ()), made, fixtures)))


def made_cassette(events: Iterable[Event], fixtures: Fixtures, before: Cassette) -> Cassette:
    """Return a cassette with the calls of a trajectory, of the tools that ``fixtures`` lists, after the lines of other tools."""
    kept = [call for call in before.calls if not _is_listed(call.tool, fixtures)]
    masks = masks_of(fixtures.redact)
    asked: dict[int, Mapping[str, Any]] = {}
    found: list[RecordedCall] = []
    brought: list[RecordedTool] = []
    for event in events:
        if event.type == "launch":
            brought += _brought(event.data.get("tools"), fixtures)
        if event.source != "gateway" or not _is_listed(str(event.data.get("name")), fixtures):
            continue
        if event.type == "tool_call" and event.data["valid"]:
            asked[event.seq] = event.data
        elif event.type == "tool_result" and (call := asked.pop(_number(event.data["call"]), None)) is not None:
            found += _recorded(call, event.data, lambda value: redacted(value, masks, _REDACTED))
    calls = [call.model_copy(update={"number": number}) for number, call in enumerate([*kept, *found], 1)]
    return Cassette(tuple({tool.name: tool for tool in (*before.tools, *brought)}.values()), tuple(calls))


def _brought(told: Any, fixtures: Fixtures) -> Iterator[RecordedTool]:
    """Yield the tools of MCP servers: without the server nothing else knows them."""
    for each in told if isinstance(told, list) else ():
        tool = RecordedTool.model_validate_json(orjson.dumps(each))
        if _is_listed(tool.name, fixtures):
            yield tool


def _number(value: Any) -> int:
    return int(value)


def _recorded(call: Mapping[str, Any], result: Mapping[str, Any], hide: Any) -> Iterator[RecordedCall]:
    outcome, error = result["outcome"], result.get("error") or {}
    kind = error.get("kind")
    if outcome not in _OUTCOMES or kind in _NOTHING_SAID:
        return
    line: dict[str, Any] = {"number": 1, "tool": call["name"], "arguments": hide(call["arguments"]), "outcome": outcome}
    if outcome == "ok":
        line["data"] = hide(orjson.loads(result["content"]))
    else:
        message = str(result["content"]).removeprefix(f"{kind}: ")
        line["error"] = {**error, "kind": kind or outcome, "message": message}
    yield RecordedCall.model_validate_json(orjson.dumps(line))


def to_bytes(cassette: Cassette) -> bytes:
    """Return a cassette as it is written."""
    lines = [orjson.dumps(call.model_dump(mode="json", exclude_defaults=True)) + b"\n" for call in cassette.calls]
    return b"".join([_header(cassette.tools), *lines])


def _header(tools: Iterable[Any]) -> bytes:
    told = [tool.model_dump(mode="json") for tool in tools]
    return orjson.dumps({"format": FORMAT, "version": VERSION, **({"tools": told} if told else {})}) + b"\n"


def _is_listed(tool: str, fixtures: Fixtures) -> bool:
    return any(fnmatchcase(tool, pattern) for pattern in fixtures.tools)


def _live(loaded: Loaded) -> Loaded:
    """Return what was loaded, its one task with a live world."""
    return replace(loaded, tasks=tuple(_live_task(task) for task in loaded.tasks))


def _live_task(loaded: LoadedTask) -> LoadedTask:
    fixtures = loaded.task.fixtures
    live = None if fixtures is None else fixtures.model_copy(update={"mode": "live"})
    task = loaded.task.model_copy(update={"fixtures": live})
    others = [item for item in loaded.bundles.world.items if item.path != "task.json"]
    world = Bundle.of([*others, Item("task.json", data=world_json(task))])
    return replace(
        loaded,
        task=task,
        digest=digest({"task": loaded.digest, "fixtures": "live"}),  # its numbers are none of the task's
        bundles=replace(loaded.bundles, world=world),
    )


async def _events(settings: Settings, run: str, trial: TrialId) -> Iterable[Event]:
    store = wiring.object_store(settings.store)
    data = await collect(store, run)
    outcome = next(row.outcome for row in data.rows if row.trial == trial)
    if outcome is None or outcome.outcome_class != "result" or outcome.trajectory is None:
        why = "it did not end" if outcome is None else outcome.error or outcome.termination_reason
        msg = f"{trial} of run {run} tells of no whole trial, so nothing was recorded: {why}"
        raise InfrastructureError(msg)
    return await wiring.event_reader(store)(outcome.trajectory)


def _changes(before: Cassette, after: Cassette, fixtures: Fixtures) -> Iterator[Change]:
    masks = masks_of((*fixtures.volatile, *fixtures.redact))

    def answers(cassette: Cassette) -> dict[str, dict[str, list[Any]]]:
        found: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
        for call in cassette.calls:
            key = call_key(call.tool, call.arguments, masks)
            found[call.tool][key].append((call.outcome, call.data, call.error))
        return found

    old, new = answers(before), answers(after)
    for tool in sorted({*old, *new}):
        was, now = old.get(tool, {}), new.get(tool, {})
        yield Change(
            tool=tool,
            calls=sum(map(len, now.values())),
            new=len(now.keys() - was.keys()),
            gone=len(was.keys() - now.keys()),
            changed=sum(was[key] != now[key] for key in was.keys() & now.keys()),
        )


@contextlib.contextmanager
def _cassette_there(folder: Path) -> Iterator[None]:
    """Have an empty cassette where the task names one and there is none: without it the task could not be read."""
    document = read_document(folder / "task.yaml", []) if (folder / "task.yaml").is_file() else None
    named = None if document is None else document.get("fixtures", "cassette")
    file = folder / str(named)
    if not isinstance(named, str) or ".." in named or not named.startswith("fixtures/") or os.path.lexists(file):
        yield
        return
    is_new = not file.parent.exists()
    _put(file, _header(()))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
        if is_new:
            with contextlib.suppress(OSError):  # what somebody else has laid there stays
                file.parent.rmdir()


def _put(file: Path, data: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}.", delete=False) as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        made = Path(opened.name)
        made.chmod(0o644)
        made.replace(file)
    except OSError as error:
        msg = f"{display(file)} cannot be written: {error.strerror}"
        raise SpecError(msg) from error
