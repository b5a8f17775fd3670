"""One file that somebody has: a trajectory of ours, which may still grow, or traces in a form that can be imported."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from orchestrator.errors import NotFoundError, SpecError
from orchestrator.importers.own import is_event
from orchestrator.importers.read import Reader
from orchestrator.importers.recorded import Given, Trace
from orchestrator.view.transcript import LINE_BYTES, Transcript

MOST_TRACES = 10_000
"""Traces of one file that are shown."""
MOST_OPEN = 8
_MOST_NOTES = 20


class OpenedFile:
    """The traces of one file, as trajectories. ``traces`` is empty where the file is itself a trajectory."""

    def __init__(self, path: Path, folder: Path) -> None:
        """``folder`` is an empty one, in which traces of another form are written down.

        Raises SpecError for a file that cannot be read or has no trace in it, and StoreError for a broken trajectory.
        """
        self.name = path.name
        self.traces: list[Trace] = []
        self.notes: list[str] = []
        self._open: OrderedDict[int, Transcript] = OrderedDict()
        if _is_trajectory(path):
            self._open[0] = _transcript(path)
            self._open[0].read_on()
        else:
            self._import(path, folder)

    def _import(self, path: Path, folder: Path) -> None:
        reader = Reader(folder, Given(lambda _model: None))
        found = reader.read([path])
        self.traces = list(islice(found, MOST_TRACES))
        if next(found, None) is not None:
            self.notes.append(f"only the first {MOST_TRACES:,} traces are shown")
        if not self.traces:
            raise SpecError(reader.problems or f"{path} is empty")
        self.notes += [str(problem) for problem in reader.problems[:_MOST_NOTES]]
        if more := len(reader.problems) + reader.more_problems - _MOST_NOTES:
            self.notes += [f"{more:,} more problems"] if more > 0 else []

    async def transcript(self, number: int) -> Transcript:
        """Return a trace by its number, from 0. Raises NotFoundError and StoreError."""
        if number not in self._open:
            if not 0 <= number < len(self.traces):
                msg = f"trace {number}"
                raise NotFoundError(msg)
            self._open[number] = _transcript(self.traces[number].path)
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
        found = self._open[number]
        await asyncio.to_thread(found.read_on)
        return found

    def listed(self) -> dict[str, Any]:
        """Return what the traces say of themselves."""
        return {"traces": [_trace_json(trace) for trace in self.traces], "notes": self.notes}


def _is_trajectory(path: Path) -> bool:
    """Return whether a file begins with an event of ours, or is empty and may yet."""
    try:
        with path.open("rb") as file:
            first = file.readline(LINE_BYTES)
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise SpecError(msg) from error
    try:
        return not first or is_event(orjson.loads(first))
    except orjson.JSONDecodeError:
        return False


def _transcript(path: Path) -> Transcript:
    return Transcript(path.open("rb"), str(path))


def _trace_json(trace: Trace) -> dict[str, Any]:
    usage = trace.usage
    return {
        "line": trace.line,
        "task": trace.task,
        "agent": trace.agent,
        "ending": trace.reason,
        "steps": trace.steps,
        "calls": trace.tool_calls,
        "tokens": usage.total if usage else None,
        "cost_nano_usd": usage.cost_nano_usd if usage else None,
        "models": list(trace.models),
        "took_s": None if trace.started is None or trace.ended is None else trace.ended - trace.started,
    }
