"""Trajectories that a gateway of ours wrote, from a folder that was pulled or from another store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.dataset.steps import MOST_TIME
from orchestrator.errors import Problem, StoreError
from orchestrator.gateway.dialects.shape import obj, word
from orchestrator.importers.recorded import Trace, ending_of, reason_of
from orchestrator.importers.values import Value
from orchestrator.records.event import Event
from orchestrator.records.ids import TrialId
from orchestrator.records.state import FinalAnswer
from orchestrator.records.termination import TerminationReason
from orchestrator.records.usage import Usage
from orchestrator.trace.read import each_event

MOST_FINAL = 128 << 10
"""Characters of an ending as JSON."""
MOST_TOKENS = 10**15
"""Tokens, and nano-USD, that a trace can have used: more is nonsense."""
HEAD = frozenset({"v", "seq", "t", "source", "type"})
"""What every event of a trajectory has."""


def is_event(value: object) -> bool:
    """Return whether a value is an event of a trajectory."""
    return isinstance(value, dict) and value.keys() >= HEAD and isinstance(value["seq"], int)


def read_own(lines: Sequence[Value], path: Path) -> Trace | Problem:
    """Take a trajectory as it is; ``gateway`` in it is what the gateway saw that wrote it. ``path``: a new file."""
    data = b"".join(line.raw.strip() + b"\n" for line in lines)
    file, first = lines[0].file, lines[0].line
    try:
        events = list(each_event(data, file))
    except StoreError as error:
        return Problem(file=file, line=first, message=f"the trajectory that begins here cannot be read: {error}")
    path.write_bytes(data)
    told = _Told(events)
    trial = told.trial()
    return Trace(
        identity=hashlib.sha256(data).hexdigest(),
        path=path,
        sha256=hashlib.sha256(data).hexdigest(),
        file=file,
        line=first,
        task=trial.task if trial else None,
        agent=trial.agent if trial else None,
        reason=told.reason(),
        ended_as=ending_of(told.last("finish").get("status")),
        final=told.final(),
        usage=told.usage(),
        steps=told.count("model_response"),
        tool_calls=told.calls(),
        models=tuple(sorted({model for each in told.of("model_response") if (model := word(each.get("model")))})),
        prices={},
        started=told.span[0],
        ended=told.span[1],
        waiting_s=told.waiting(),
    )


class _Told:
    """What a trajectory says of its trial."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events

    def of(self, kind: str) -> list[Mapping[str, Any]]:
        return [event.data for event in self._events if event.type == kind]

    def last(self, kind: str) -> Mapping[str, Any]:
        return next(iter(reversed(self.of(kind))), {})

    def final(self) -> FinalAnswer | None:
        """Return the ending that the agent gave; None for what is none, or is larger than a gateway takes."""
        said = self.last("finish")
        if len(json.dumps(said)) > MOST_FINAL:
            return None
        try:
            return FinalAnswer.model_validate(said)
        except ValueError:
            return None

    def count(self, kind: str) -> int:
        return len(self.of(kind))

    def calls(self) -> int:
        return sum(event.type == "tool_call" and event.source == "agent" for event in self._events)

    def trial(self) -> TrialId | None:
        try:
            return TrialId.parse(str(self.last("launch").get("trial")))
        except ValueError:
            return None

    def reason(self) -> TerminationReason:
        stated = (self.last("finish").get("status"), self.last("budget").get("reason"))
        sealed = self.last("seal")
        found = (*stated, sealed.get("termination_reason"), sealed.get("stopped"))
        return next((reason for word_ in found if (reason := reason_of(word_))), "not_recorded")

    @property
    def span(self) -> tuple[float, float] | tuple[None, None]:
        times = [event.t for event in self._events if 0 < event.t < MOST_TIME]
        return (min(times), max(times)) if times else (None, None)

    def usage(self) -> Usage | None:
        total = Usage(cost_nano_usd=0)
        for response in self.of("model_response"):
            tokens = obj(response.get("tokens"))
            try:
                total = total.plus(Usage.model_validate(tokens))
            except ValueError:
                return None
            if not tokens or total.total > MOST_TOKENS or (total.cost_nano_usd or 0) > MOST_TOKENS:
                return None
        return total

    def waiting(self) -> float | None:
        found: list[float] = []
        for response in self.of("model_response"):
            value = response.get("waited_s")
            if not isinstance(value, int | float) or value < 0:
                return None
            found.append(value)
        return sum(found)
