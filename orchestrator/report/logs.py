"""A trajectory as lines for people, or as its raw events."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console

from orchestrator.dataset.rows import RunData
from orchestrator.errors import NotFoundError
from orchestrator.interfaces import ObjectStore
from orchestrator.records.event import Event
from orchestrator.records.ids import TrialId
from orchestrator.report.following import Look, TrialLog
from orchestrator.report.program import program
from orchestrator.report.show import find_row
from orchestrator.report.state import read_blob
from orchestrator.report.table import say
from orchestrator.report.terminal import dollars, seconds
from orchestrator.report.text import clean, clean_lines, plural

TEXT_LINES = 40
"""Lines of one text that are shown."""
ARGUMENT_BYTES = 256 * 1024
"""Longer arguments are shown as they came, not parsed."""
_AMOUNTS: dict[str, Callable[[Any], str]] = {
    "max_steps": lambda count: plural(count, "step"),
    "max_tool_calls": lambda count: plural(count, "tool call"),
    "max_wall_seconds": lambda value: f"{seconds(value)} of work",
    "hard_wall_seconds": lambda value: f"{seconds(value)} in all",
    "max_tokens": lambda count: plural(count, "token"),
    "max_cost_usd": lambda value: f"${value:,.2f}" if round(value, 2) == value else dollars(value),
    "steps": lambda count: plural(count, "step"),
    "tool_calls": lambda count: plural(count, "tool call"),
    "tokens": lambda count: plural(count, "token"),
    "cost_nano_usd": lambda cost: "cost unknown" if cost is None else f"cost {dollars(cost / 1e9)}",
    "waiting_s": lambda value: f"waited {seconds(value)}",
    "end_in_s": lambda value: f"ends in {seconds(value)}" if value else "ends now",
}
"""Amounts of budgets and counters in words."""
_HIDDEN = frozenset({"run", "trial", "sha256_before"})
"""The first two stand in the title; the digest is for programs."""
_ODD_CALLS = {"known": "no tool of this request", "valid": "arguments do not fit"}
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
) -> tuple[list[dict[str, Any]], str]:
    """Print the trajectory of a trial on the console, if there is one, and return the raw events and what is missing of them, in words.

    It is the winner's, or what there is already of a launch that runs, or still of one that was lost; only then something is missing.
    Raises SpecError for an unknown trial, NotFoundError when no trajectory was kept, and StoreError when it is not the one that was sealed.
    """
    from orchestrator.trace.read import read_events

    row = find_row(data, trial)
    blob = row.outcome.trajectory if row.outcome else None
    missing = ""
    look = None
    if row.outcome is None or row.outcome.outcome_class == "infra":
        look = await TrialLog(store, data.manifest.run, trial).look()
    if look is not None and look.events and (blob is None or (row.outcome and look.launch != row.outcome.launch)):
        events, missing = look.events, unfinished(look)
    elif blob is None:
        raise NotFoundError(f"the trajectory of {trial} in run {data.manifest.run}")
    else:
        events = read_events(await read_blob(store, blob), blob.key)
    if console:
        printer = LogPrinter(console, data.manifest.run, trial)
        printer.title(plural(len(events), "event"), missing)
        for event in events:
            printer.event(event)
        printer.end(runs=look is not None and look.state == "running")
    return [raw(event) for event in events], missing


def unfinished(look: Look) -> str:
    """Return what the events of a look are not; empty for those of a sealed launch."""
    if look.state == "sealed":
        return ""
    if look.state == "lost":
        return f"unfinished: launch {look.launch} was lost ({look.cause or 'for our reasons'}) and this had reached the store"
    return f"unfinished: launch {look.launch} has not ended, and this is in the store so far"


def raw(event: Event) -> dict[str, Any]:
    """Return an event as its line in the file has it, with texts of earlier events in full."""
    return {"v": event.v, "seq": event.seq, "t": event.t, "source": event.source, "type": event.type, **event.data}


class LogPrinter:
    """Prints the events of one trial, as they come."""

    def __init__(self, console: Console, run: str, trial: TrialId) -> None:
        self._console = console
        self._run = run
        self._trial = trial
        self._start: float | None = None
        self._said: set[str] = set()
        self._cut = False

    def title(self, what: str, missing: str = "") -> None:
        """Print what this is."""
        head = f"{self._trial}   run {clean(self._run)}   {what}"
        say(self._console, f"{head}; agent: only reported by the agent or its model, not seen to happen", "bold")
        if missing:
            say(self._console, missing, "yellow")

    def event(self, event: Event) -> None:
        """Print one event. Times count from the first of its launch."""
        if self._start is None or event.seq == 0:
            self._start, self._said = event.t, set()
        title, text = _words(event.type, event.data, self._said)
        source = "agent" if event.source == "agent" else ""
        head = f"{event.t - self._start:8.2f}s  {event.type:<14}  {source:<5}  {clean(title, 300)}".rstrip()
        say(self._console, head, STYLES.get(event.type, ""))
        lines = clean_lines(text)
        for line in lines[:TEXT_LINES]:
            say(self._console, f"             │ {line}")
        if len(lines) > TEXT_LINES:
            self._cut = True
            say(self._console, f"               … {plural(len(lines) - TEXT_LINES, 'more line')}", "dim")

    def end(self, *, runs: bool = False) -> None:
        """Print how to read more: in full, and, of a launch that runs, what comes."""
        words = f"{program()} logs {clean(self._run)} {self._trial}"
        if self._cut:
            say(self._console, f"in full, as JSON: {words} --json", "dim")
        if runs:
            say(self._console, f"as it goes on: {words} --follow", "dim")


def _words(kind: str, data: Mapping[str, Any], said: set[str]) -> tuple[str, str]:
    """Return a short title and a longer text for an event; what is not known is shown as JSON.

    ``said`` collects the answers, so that a request that only repeats one does not print it again.
    """
    if kind == "model_request" and isinstance(data.get("messages"), list):
        texts = [text for message in data["messages"] if (text := _message(message, said))]
        new = f"{len(data['messages'])} new of {data.get('total')} messages"
        return f"{data.get('model')}, {new}", "\n".join(texts)
    if kind == "model_response":
        message = data.get("message")
        said.add(_key(message))
        broken = "broke off" if data.get("broken") is True else None
        return _joined(data.get("model"), data.get("finish_reason"), broken), _spoken(message)
    if kind == "model_error":
        status = data.get("status")
        attempt = data.get("attempt")
        which = f"attempt {attempt + 1}" if isinstance(attempt, int) else None
        return _joined(f"status {status}" if status else None, data.get("code"), which), _content(data.get("message"))
    if kind in {"tool_call", "tool_result"}:
        return _tool(kind, data)
    if kind == "finish":  # its message is in the call before it
        sure = data.get("confidence")
        return _joined(data.get("status"), None if sure is None else f"confidence {sure}"), ""
    return ("; " if kind == "launch" else ", ").join(_facts(data)), ""


def _message(message: Any, said: set[str]) -> str:
    role, text = _get(message, "role"), _spoken(message)
    if role == "assistant" and _key(message) in said:
        return ""
    called = ", ".join(_content(_get(call, "name")) for call in _parts(message, "tool_call") if _get(call, "name"))
    pieces = [piece for piece in (text, f"(calls {called})" if called else "") if piece]
    return f"{role}: {' '.join(pieces)}" if pieces else ""


def _key(message: Any) -> str:
    calls = [(_get(call, "name"), _get(call, "arguments")) for call in _parts(message, "tool_call")]
    return json.dumps([_spoken(message), calls])


def _parts(message: Any, kind: str) -> list[Any]:
    parts = _get(message, "parts")
    return [part for part in parts if _get(part, "type") == kind] if isinstance(parts, list) else []


def _spoken(message: Any) -> str:
    """Return what a message says, and what it shows, in brackets."""
    shown = [f"[{_content(_get(part, 'media_type'))}]" for part in _parts(message, "media")]
    return "\n".join([*(_content(_get(part, "text")) for part in _parts(message, "text")), *shown])


def _tool(kind: str, data: Mapping[str, Any]) -> tuple[str, str]:
    if kind == "tool_result":
        return _content(data.get("id") or data.get("name")), _content(data.get("content", data.get("result")))
    odd = ", ".join(words for name, words in _ODD_CALLS.items() if data.get(name) is False)
    problem = data.get("problem")
    if problem and odd and data.get("known") is not False:  # of an unknown tool, the problem says the same again
        odd = f"{odd}: {_content(problem)}"
    return f"{data.get('name')}{f' ({odd})' if odd else ''}", _arguments(data.get("arguments"))


def _facts(data: Mapping[str, Any]) -> list[str]:
    """Return the fields in words. A field without a value says nothing, but for a cost that is not known."""
    found = []
    for name, value in data.items():
        if name in _HIDDEN or (name != "cost_nano_usd" and value in (None, "", [], {})):
            continue
        if name == "cost_nano_usd" or (isinstance(value, int | float) and name in _AMOUNTS):
            found.append(_AMOUNTS[name](value))
        elif isinstance(value, Mapping):
            found.append(f"{name} {_joined(*_facts(value))}")
        else:
            found.append(f"{name}: {_content(value)}")
    return found


def _joined(*words: Any) -> str:
    return ", ".join(str(word) for word in words if word is not None)


def _arguments(value: Any) -> str:
    """Return arguments one a line, long texts as the lines that they are; what is no JSON object as it came."""
    found = value
    if isinstance(value, str) and len(value) <= ARGUMENT_BYTES:
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(value)
    if not isinstance(found, dict):
        return _content(value)
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
