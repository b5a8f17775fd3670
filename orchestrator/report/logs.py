"""A trajectory as lines for people, or as its raw events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from orchestrator.dataset.rows import RunData
from orchestrator.errors import NotFoundError
from orchestrator.interfaces import ObjectStore
from orchestrator.records.event import Event
from orchestrator.records.ids import TrialId
from orchestrator.report.show import find_row
from orchestrator.report.state import read_blob
from orchestrator.report.table import say
from orchestrator.report.text import clean, clean_lines

TEXT_LINES = 40
"""Lines of one text that are shown."""
ARGUMENT_BYTES = 256 * 1024
"""Longer arguments are shown as they came, not parsed."""
STYLES = {
    "model_error": "red",
    "refusal": "red",
    "budget": "yellow",
    "finding": "yellow",
    "finish": "green",
    "tool_call": "cyan",
    "tool_result": "dim",
}


async def show_logs(
    store: ObjectStore, data: RunData, trial: TrialId, console: Console | None = None
) -> list[dict[str, Any]]:
    """Print the trajectory of a trial's winner on the console, if there is one, and return the raw events.

    Raises SpecError for an unknown trial, NotFoundError when no trajectory was kept, and StoreError when it is not the one that was sealed.
    """
    from orchestrator.trace.read import read_events

    row = find_row(data, trial)
    blob = row.outcome.trajectory if row.outcome else None
    if blob is None:
        raise NotFoundError(f"the trajectory of {trial} in run {data.manifest.run}")
    events = read_events(await read_blob(store, blob), blob.key)
    if console:
        _print(console, trial, events)
    return [{"v": e.v, "seq": e.seq, "t": e.t, "source": e.source, "type": e.type, **e.data} for e in events]


def _print(console: Console, trial: TrialId, events: list[Event]) -> None:
    start = events[0].t if events else 0.0
    say(
        console,
        f"{trial}   {len(events):,} events; agent: only reported by the agent or its model, not seen to happen",
        "bold",
    )
    for event in events:
        title, text = _words(event.type, event.data)
        source = "agent" if event.source == "agent" else ""
        head = f"{event.t - start:8.2f}s  {event.type:<14}  {source:<5}  {clean(title, 300)}".rstrip()
        say(console, head, STYLES.get(event.type, ""))
        lines = clean_lines(text)
        for line in lines[:TEXT_LINES]:
            say(console, f"             │ {line}")
        if len(lines) > TEXT_LINES:
            say(console, f"               … {len(lines) - TEXT_LINES:,} more lines", "dim")


def _words(kind: str, data: Mapping[str, Any]) -> tuple[str, str]:
    """Return a short title and a longer text for an event; what is not known is shown as JSON."""
    if kind == "model_request" and isinstance(data.get("messages"), list):
        texts = [f"{_get(m, 'role')}: {_content(_get(m, 'content'))}" for m in data["messages"]]
        return f"{data.get('model')}, {len(texts)} new of {data.get('total')} messages", "\n".join(texts)
    if kind == "model_response":
        return f"{data.get('model')}, {data.get('finish_reason')}", _content(_get(data.get("message"), "content"))
    if kind == "tool_call":
        return str(data.get("name")), _arguments(data.get("arguments"))
    if kind == "tool_result":
        return str(data.get("id") or data.get("name") or ""), _content(data.get("content", data.get("result")))
    return ", ".join(f"{name}: {_content(value)}" for name, value in data.items()), ""


def _arguments(value: Any) -> str:
    """Return arguments one a line, long texts as the lines that they are; what is no JSON object as it came."""
    if not isinstance(value, str) or len(value) > ARGUMENT_BYTES:
        return _content(value)
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    if not isinstance(found, dict):
        return value
    texts = {name: _content(one) for name, one in found.items()}
    return "\n".join(f"{name}:\n{text}" if "\n" in text else f"{name}: {text}" for name, text in texts.items())


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _content(value: Any) -> str:
    """Return the text of a message's content: a string, parts with texts, or anything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(_get(part, "text"), str) for part in value):
        return "\n".join(_get(part, "text") for part in value)
    return json.dumps(value, ensure_ascii=False)
