"""From files to traces: what each value is, and which values belong together."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.errors import Problem, SpecError
from orchestrator.importers.atif import read_atif
from orchestrator.importers.conversations import is_messages, read_conversation
from orchestrator.importers.otel import SpanFolder, read_otel
from orchestrator.importers.own import HEAD, is_event, read_own
from orchestrator.importers.recorded import Given, Trace
from orchestrator.importers.values import Value, files_of, read_values
from orchestrator.records.message import Tool

MOST_PROBLEMS = 1000
"""Problems that are kept; of the others only their number."""
MOST_HELD = 512 << 20
"""Bytes of values that are one trace together."""
_OTHER_SIGNALS = frozenset({"resourceLogs", "resourceMetrics", "resourceProfiles"})
_KNOWN = (
    "an export request of OpenTelemetry, an ATIF document, a trajectory of ours, a list of chat messages or an object with one in"
    " `messages`, or a trajectory of tau-bench"
)


@dataclass
class Reader:
    """Reads traces into files of ``folder``, one each. What cannot be read is in ``problems`` afterwards."""

    folder: Path
    given: Given
    problems: list[Problem] = field(default_factory=list)
    more_problems: int = 0
    files: int = 0
    left_out: int = 0
    """Export requests of OpenTelemetry with logs, metrics or profiles: they hold no traces."""
    _number: int = 0

    def __post_init__(self) -> None:
        self._spans = SpanFolder(Path(tempfile.mkdtemp(dir=self.folder)))
        self._held: list[Value] = []
        self._bytes = 0

    def read(self, paths: Iterable[Path]) -> Iterator[Trace]:
        """Yield every trace, in the order of files; those of OpenTelemetry last, since their spans may be anywhere."""
        for path in files_of(list(paths)):
            if isinstance(path, Problem):
                self._bad(path)
                continue
            self.files += 1
            for value in read_values(path):
                yield from self._value(value) if isinstance(value, Value) else self._bad(value)
            yield from self._release()
        for trace, where in self._spans.traces():
            yield read_otel(self._spans.spans(trace), trace, where, self._path(), self.given)

    def _value(self, value: Value) -> Iterator[Trace]:
        """Yield the trace of a value, or what was held and ends before it."""
        if self._held and not self._continues(value):
            yield from self._release()
        data, where = value.data, (value.file, value.line)
        if is_event(data) or (isinstance(data, dict) and "role" in data and value.group is not None):
            self._hold(value)
        elif is_messages(data):
            yield read_conversation({"messages": data}, where, self._path(), self.given)
        elif isinstance(data, dict):
            yield from self._object(data, where)
        else:
            self._bad(Problem(file=value.file, line=value.line, message=f"it is none of these: {_KNOWN}"))

    def _hold(self, value: Value) -> None:
        self._bytes += len(value.raw)
        if self._bytes > MOST_HELD:
            why = f"the trace that begins here is larger than {MOST_HELD >> 20} MiB"
            self._bad(Problem(file=self._held[0].file, line=self._held[0].line, message=why))
            self._held, self._bytes = [], 0
        self._held.append(_light(value) if is_event(value.data) else value)

    def _object(self, data: dict[str, Any], where: tuple[str, int]) -> Iterator[Trace]:
        version = data.get("schema_version")
        if _OTHER_SIGNALS & data.keys():
            self.left_out += 1
        elif "resourceSpans" in data:
            if not self._spans.add(data, where):
                self._bad(
                    Problem(
                        file=where[0], line=where[1], message="none of its spans has attributes of GenAI (gen_ai.…)"
                    )
                )
        elif isinstance(version, str) and version.startswith("ATIF-") and isinstance(data.get("steps"), list):
            yield read_atif(data, where, self._path(), self.given)
        elif is_messages(data.get("messages")) or is_messages(data.get("traj")):
            yield read_conversation(data, where, self._path(), self.given)
        else:
            self._bad(Problem(file=where[0], line=where[1], message=f"it is none of these: {_KNOWN}"))

    def _continues(self, value: Value) -> bool:
        """Return whether a value goes on with what is held: the next event of a trajectory, the next message of a list."""
        last = self._held[-1]
        if is_event(last.data):
            return is_event(value.data) and value.data["seq"] == last.data["seq"] + 1
        return value.group == last.group and isinstance(value.data, dict) and "role" in value.data

    def _release(self) -> Iterator[Trace]:
        held, self._held, self._bytes = self._held, [], 0
        if not held:
            return
        if is_event(held[0].data):
            found = read_own(held, self._path())
            yield from self._bad(found) if isinstance(found, Problem) else [found]
        else:
            messages = {"messages": [value.data for value in held]}
            yield read_conversation(messages, (held[0].file, held[0].line), self._path(), self.given)

    def _path(self) -> Path:
        self._number += 1
        return self.folder / f"{self._number}.jsonl"

    def _bad(self, problem: Problem) -> tuple[Trace, ...]:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)
        else:
            self.more_problems += 1
        return ()


def _light(value: Value) -> Value:
    """Return an event without what is in it: its bytes are enough later."""
    return replace(value, data={name: value.data[name] for name in HEAD})


def read_tools(path: Path) -> list[Tool]:
    """Return the tools of a file: a JSON list of definitions as the Chat Completions API has them. Raises SpecError."""
    from orchestrator import wiring

    values = list(read_values(path)) if path.is_file() else []
    bad = [value for value in values if isinstance(value, Problem)]
    if bad:
        raise SpecError(bad)
    found = wiring.dialect("chat").tools({"tools": [value.data for value in values if isinstance(value, Value)]})
    if not found:
        msg = f'{path} has no tools: it must be a JSON list of {{"type": "function", "function": {{"name": …, "parameters": …}}}}'
        raise SpecError(msg)
    return found
