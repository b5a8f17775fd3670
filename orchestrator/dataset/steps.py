"""From the events of a trajectory to rows of the table ``steps``.

What models, agents and providers said in an event is foreign: a value of an unexpected type is null, text is cut.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from orchestrator.dataset.calls import arguments_of, commands_of, goal_of, is_verifying, outcome_of
from orchestrator.dataset.columns import CALL_OUTCOMES, STEP_TYPES
from orchestrator.errors import NotFoundError
from orchestrator.records.base import BlobRef
from orchestrator.records.event import Event
from orchestrator.records.ids import TrialId
from orchestrator.records.manifest import RunManifest
from orchestrator.records.outcome import Outcome

Row = dict[str, Any]
ReadEvents = Callable[[BlobRef], Awaitable[Iterable[Event]]]
"""Reads the events of a closed trajectory, some only while they are gone through. Raises NotFoundError when it is gone, else StoreError."""

NAME_CHARS = 200
"""Longest name of a tool, model or call that is kept, in characters."""
MOST_TIME = 253_402_300_800.0
"""The end of the year 9999, in seconds since 1970."""
_BIGGEST_INT = 2**63 - 1


_BUCKETS = ("uncached_input", "cache_read", "cache_write", "cache_write_1h", "reasoning", "cost_nano_usd")
TRAJECTORIES = 2
"""Trajectories that are read at one time: each may be large."""


async def read_steps(
    manifest: RunManifest, launches: Iterable[tuple[TrialId, Outcome]], events: ReadEvents
) -> tuple[dict[tuple[TrialId, int], list[Row]], tuple[str, ...]]:
    """Return the rows of launches that have a trajectory, by trial and launch, and names of those whose trajectory is gone.

    Raises StoreError.
    """
    found: dict[tuple[TrialId, int], list[Row]] = {}
    gone: list[str] = []
    gate = asyncio.Semaphore(TRAJECTORIES)
    verify = {task.id: task.tools.verify for task in manifest.tasks}

    async def one(trial: TrialId, launch: int, blob: BlobRef) -> None:
        async with gate:
            try:
                # trials may be running in this loop
                found[trial, launch] = await asyncio.to_thread(step_rows, await events(blob), verify[trial.task])
            except NotFoundError:
                gone.append(launch_name(trial, launch))

    await asyncio.gather(
        *(
            one(trial, outcome.launch, outcome.trajectory)
            for trial, outcome in launches
            if outcome.trajectory is not None
        )
    )
    return found, tuple(sorted(gone))


def launch_name(trial: TrialId, launch: int) -> str:
    """Return how a launch is named to people."""
    return f"{trial} launch {launch}"


def step_rows(events: Iterable[Event], verify: Sequence[str] = ()) -> list[Row]:
    """Return one row for each model response, failed model call, tool call and refusal, in the order of the events.

    ``verify``: the task's patterns of tools and commands that count as verifying.
    """
    walk = _Walk(verify)
    return [row for event in events if (row := walk.row(event)) is not None]


class _Walk:
    """What must be remembered of earlier events to understand a later one."""

    def __init__(self, verify: Sequence[str]) -> None:
        self._verify = verify
        self._responses = 0
        self._requests: dict[int, Row] = {}
        self._calls: dict[str, Row] = {}
        self._numbered: dict[int, Row] = {}

    def row(self, event: Event) -> Row | None:
        data = event.data
        if event.type == "model_request":
            self._requests[event.seq] = {
                "conversation": count(data.get("conversation"), most=2**31 - 1),
                "model": name(data.get("model")),
            }
        if event.type == "tool_result":
            self._answered(event.source, data)
        if event.type not in STEP_TYPES:
            return None
        asked = self._requests.get(_number(data.get("request")), {})
        row: Row = {
            "seq": event.seq,
            # An imported trace need not have times, or none that a calendar has.
            "at": datetime.fromtimestamp(event.t, UTC) if 0 < event.t < MOST_TIME else None,
            "source": event.source,
            "type": event.type,
            "conversation": asked.get("conversation"),
        }
        if event.type == "model_response":
            return row | self._response(asked, data)
        if event.type == "tool_call":
            return self._call(row | {"step": asked.get("step")}, data)
        return row | {"model": asked.get("model"), "code": name(data.get("code"))}

    def _response(self, asked: Row, data: dict[str, Any]) -> Row:
        self._responses += 1
        asked["step"] = self._responses
        tokens, usage = data.get("tokens"), data.get("usage")
        counted = tokens if isinstance(tokens, dict) else {}
        reported = usage if isinstance(usage, dict) else {}
        output = counted.get("output", reported.get("completion_tokens", reported.get("output_tokens")))
        return {
            **{bucket: count(counted.get(bucket)) for bucket in _BUCKETS},
            "asked": asked.get("model"),
            "estimated": _flag(data.get("estimated")),
            "step": self._responses,
            "model": name(data.get("model")) or asked.get("model"),
            "finish_reason": name(data.get("finish_reason")),
            "seconds": _seconds(data.get("seconds")),
            "output": count(output),
        }

    def _call(self, row: Row, data: dict[str, Any]) -> Row:
        arguments = _text(data.get("arguments"))
        tool, call = name(data.get("name")), name(data.get("id"))
        parsed, wellformed = arguments_of(data.get("arguments"))
        commands = commands_of(parsed)
        row |= {
            "tool": tool,
            "call": call,
            "known": _flag(data.get("known")),
            "valid": _flag(data.get("valid")),
            "arguments_sha256": None if arguments is None else hashlib.sha256(_encoded(arguments)).digest(),
            "arguments_chars": None if arguments is None else len(arguments),
            "wellformed": wellformed,
            "goal": name(goal_of(tool, commands)),
            "verify": is_verifying(tool, commands, self._verify),
        }
        if row["source"] == "gateway":
            self._numbered[row["seq"]] = row
        elif call is not None:
            self._calls[call] = row
        return row

    def _answered(self, source: str, data: dict[str, Any]) -> None:
        """Note on a call what came of it. What the gateway did is told by its number, what an agent reports by the call's id."""
        own = source == "gateway"
        row = self._numbered.get(_number(data.get("call"))) if own else self._calls.get(name(data.get("id")) or "")
        content = _text(data.get("content"))
        if row is None:
            return
        row["result_chars"] = None if content is None else len(content)
        said = data.get("outcome")
        row["outcome"] = said if said in CALL_OUTCOMES else outcome_of(content, data.get("is_error"))


def name(value: object) -> str | None:
    """Return foreign text as a name: cut, and without halves of surrogate pairs, which no file can hold."""
    return _encoded(value[:NAME_CHARS]).decode() if isinstance(value, str) else None


def count(value: object, most: int = _BIGGEST_INT) -> int | None:
    """Return a foreign number as a count, None for anything that is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None


def _number(value: object) -> int:
    return value if isinstance(value, int) else -1


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")
