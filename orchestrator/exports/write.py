"""Writes the trials of a run for other programs, a few trials in memory at a time."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, TypeVar, get_args
from urllib.parse import quote

import orjson

from orchestrator.dataset.export import prepare_folder
from orchestrator.dataset.rows import RunData, TrialRow
from orchestrator.errors import NotFoundError, SpecError, StoreError
from orchestrator.exports.atif import trajectory_of
from orchestrator.exports.inspect_log import InspectLog
from orchestrator.exports.otel import logs_of, spans_of
from orchestrator.exports.otlp import OtlpSender, Signal, check_endpoint
from orchestrator.exports.story import tell
from orchestrator.exports.trial import ExportedTrial
from orchestrator.records.base import BlobRef
from orchestrator.records.event import Event
from orchestrator.records.ids import TrialId

TraceFormat = Literal["otel", "atif", "inspect"]
TRACE_FORMATS: tuple[TraceFormat, ...] = get_args(TraceFormat)
Item = TypeVar("Item")
Value = TypeVar("Value")
_AHEAD = 8
"""Trajectories that are fetched at one time."""
EventReader = Callable[[BlobRef], Awaitable[Iterable[Event]]]


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a person wants."""

    kind: TraceFormat
    folder: Path | None = None
    """New or empty; None: nothing is written."""
    endpoint: str | None = None
    """Address of a collector, for ``otel``; None: nothing is sent."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """What the collector wants to be shown."""
    content: bool = True
    """Also what was said: prompts, answers, arguments, results, evidence."""


@dataclass
class Exported:
    """What came of it."""

    trials: int = 0
    files: list[Path] = field(default_factory=list)
    left_out: list[tuple[TrialId, str]] = field(default_factory=list)
    """Trials without a sealed trajectory, and why there is none."""


async def export_traces(read: EventReader, data: RunData, wish: Wish) -> Exported:
    """Write, and send, every trial of a run that has a sealed trajectory.

    Raises SpecError for a folder or address that cannot be used, StoreError, and InfrastructureError when the collector fails.
    """
    if wish.endpoint is not None and wish.kind != "otel":
        msg = f"--endpoint goes with --format otel; {wish.kind} is written into a folder: --out DIR"
        raise SpecError(msg)
    if wish.folder is None and wish.endpoint is None:
        also = ", or --endpoint URL to send it to a collector" if wish.kind == "otel" else ""
        msg = f"name a new folder with --out DIR{also}"
        raise SpecError(msg)
    if wish.folder is not None:
        prepare_folder(wish.folder)
    try:
        if wish.kind == "otel":
            return await _otel(read, data, wish)
        if wish.kind == "atif":
            return await _atif(read, data, wish)
        return await _inspect(read, data, wish)
    except OSError as error:
        msg = f"{wish.folder} cannot be written: {error.strerror or error}"
        raise StoreError(msg, cause="export") from error


async def _trials(
    read: EventReader, data: RunData, rows: Iterable[TrialRow], done: Exported
) -> AsyncIterator[ExportedTrial]:
    async def fetch(row: TrialRow) -> tuple[TrialRow, Iterable[Event] | str]:
        if row.outcome is None or row.outcome.trajectory is None:
            return row, "no launch of it has ended" if row.outcome is None else "it left no trajectory"
        try:
            return row, await read(row.outcome.trajectory)
        except NotFoundError:
            return row, "its trajectory is gone"

    async for row, events in _ahead(fetch, rows):
        if isinstance(events, str) or row.outcome is None:
            done.left_out.append((row.trial, str(events)))
            continue
        story = tell(events)
        done.trials += 1
        yield ExportedTrial(manifest=data.manifest, row=row, outcome=row.outcome, story=story)


async def _ahead(fetch: Callable[[Item], Awaitable[Value]], items: Iterable[Item]) -> AsyncIterator[Value]:
    """Yield what is fetched of each item, in order, while some of the next are under way."""
    under_way: deque[asyncio.Task[Value]] = deque()
    left = iter(items)
    try:
        while True:
            under_way.extend(asyncio.ensure_future(fetch(item)) for item in islice(left, _AHEAD - len(under_way)))
            if not under_way:
                return
            yield await under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def _otel(read: EventReader, data: RunData, wish: Wish) -> Exported:
    done = Exported()
    async with AsyncExitStack() as stack:
        sender = None
        if wish.endpoint is not None:
            sender = await stack.enter_async_context(OtlpSender(check_endpoint(wish.endpoint), wish.headers))
        files: dict[Signal, IO[bytes]] = {}
        if wish.folder is not None:
            done.files = [wish.folder / "traces.jsonl", wish.folder / "logs.jsonl"]
            files = {
                "traces": stack.enter_context(done.files[0].open("xb")),
                "logs": stack.enter_context(done.files[1].open("xb")),
            }
        async for trial in _trials(read, data, data.rows, done):
            requests: dict[Signal, dict[str, Any]] = {"traces": spans_of(trial, content=wish.content)}
            if (logs := logs_of(trial, content=wish.content)) is not None:
                requests["logs"] = logs
            for signal, request in requests.items():
                if signal in files:
                    files[signal].write(orjson.dumps(request) + b"\n")
                if sender is not None:
                    await sender.send(signal, request)
    return done


async def _atif(read: EventReader, data: RunData, wish: Wish) -> Exported:
    done = Exported()
    assert wish.folder is not None  # noqa: S101 - it was asked for
    async for trial in _trials(read, data, data.rows, done):
        path = wish.folder / f"{_file(str(trial.row.trial))}.json"
        path.write_text(json.dumps(trajectory_of(trial, content=wish.content), indent=2), encoding="utf-8")
        done.files.append(path)
    return done


async def _inspect(read: EventReader, data: RunData, wish: Wish) -> Exported:
    done = Exported()
    assert wish.folder is not None  # noqa: S101 - it was asked for
    for agent in data.manifest.agents:
        path = wish.folder / f"{_file(agent.name)}.eval"
        done.files.append(path)
        rows = [row for row in data.rows if row.agent.name == agent.name]
        with InspectLog(path, data, agent, content=wish.content) as log:
            async for trial in _trials(read, data, rows, done):
                log.add(trial)
    return done


def _file(name: str) -> str:
    return quote(name, safe="@:+=,._-")
