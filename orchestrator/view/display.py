"""Events as the page shows them: a title, facts in a line, and texts. Every value in them is foreign and stays text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from orchestrator.view.texts import as_text, block, step_in
from orchestrator.view.transcript import Line, Transcript

ARGUMENT_BYTES = 256 * 1024
"""Longer arguments are shown as they came."""
MOST_BLOCKS = 60
"""Texts of one event; the whole event is one more."""
_HEAD = frozenset({"v", "seq", "t", "source", "type"})
_EXACT = 2**53
Block = dict[str, Any]
Fact = tuple[str, Any]
_Shown = tuple[str, list[Fact], list[Block], set[str]]
"""Title, facts, texts, and the fields that they tell of."""


def show(transcript: Transcript, number: int) -> dict[str, Any]:
    """Return one event for the page. Raises StoreError."""
    event, line = transcript.read(number), transcript.lines[number]
    title, facts, blocks, told = _SHOWN.get(line.type, _other)(event, line)
    facts += [(name, value) for name, value in event.items() if name not in told | _HEAD and _is_short(value)]
    rest = [
        name
        for name in event
        if name not in told | _HEAD and not _is_short(event[name]) and event[name] not in ([], {})
    ]
    blocks += [block(name, event[name], step_in(name), "json") for name in rest]
    left_out = max(0, len(blocks) - MOST_BLOCKS)
    found = {
        "seq": number,
        "t": line.t,
        "source": line.source,
        "type": line.type,
        "step": line.step,
        "conversation": event.get("conversation") if isinstance(event.get("conversation"), int) else None,
        "title": title,
        "facts": [(name, _exact(value)) for name, value in facts if value is not None and value != ""],
        "blocks": blocks[:MOST_BLOCKS],
        "left_out": left_out,
        "bytes": line.size,
    }
    return found | _link(transcript, number, line)


def _link(transcript: Transcript, number: int, line: Line) -> dict[str, Any]:
    """Return the other end of a call or a result, and the time between."""
    other = line.other if line.type == "tool_result" else transcript.results.get(number)
    if other is None:
        return {}
    return {"other": other, "apart_s": round(abs(transcript.lines[other].t - line.t), 6)}


def _exact(value: Any) -> Any:
    """Return a value that a page reads as it is: its numbers have 53 bits."""
    return str(value) if isinstance(value, int) and abs(value) > _EXACT else value


def _is_short(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= 80)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else as_text(value)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _launch(event: dict[str, Any], _line: Line) -> _Shown:
    facts = [(name, value) for name, value in _map(event.get("budgets")).items() if _is_short(value)]
    facts += [(f"model {name}", value) for name, value in _map(event.get("models")).items() if _is_short(value)]
    told = {"trial", "launch", "run", "budgets"} | ({"models"} if _map(event.get("models")) else set())
    title = " launch ".join(filter(None, (_text(event.get("trial")), _text(event.get("launch")))))
    return title, facts, [], told


def _request(event: dict[str, Any], line: Line) -> _Shown:
    messages = _list(event.get("messages"))
    facts: list[Fact] = [("new", len(messages)), ("entries", event.get("total"))]
    if line.repeats:
        facts.append(("own answers sent back", len(line.repeats)))
    blocks: list[Block] = []
    for place, message in enumerate(messages):
        if place not in line.repeats:
            blocks += _message(message, f"/messages/{place}", _text(_map(message).get("role")))
    if tools := _list(event.get("tools")):
        names = ", ".join(
            _text(_map(tool).get("name")) or _text(_map(tool).get("type")) for tool in tools[:MOST_BLOCKS]
        )
        facts.append(("tools", len(tools)))
        blocks.append(block(f"tools: {names}"[:300], tools, "/tools", "json"))
    if params := _map(event.get("params")):
        blocks.append(block("params", params, "/params", "json"))
    told = {"model", "messages", "total", "kept", "tools", "params", "sha256", "conversation", "stream", "endpoint"}
    how = " streamed" if event.get("stream") is True else ""
    facts.insert(0, ("api", f"{_text(event.get('endpoint'))}{how}"))
    return _text(event.get("model")), facts, blocks, told


def _response(event: dict[str, Any], _line: Line) -> _Shown:
    tokens = _map(event.get("tokens"))
    facts: list[Fact] = [
        (name, tokens.get(name)) for name in ("uncached_input", "cache_read", "cache_write", "output", "reasoning")
    ]
    facts = [(name, value) for name, value in facts if value]
    facts.append(("cost_nano_usd", tokens.get("cost_nano_usd", "unknown") if tokens else None))
    facts += [(name, event.get(name)) for name in ("seconds", "waited_s", "first_token_s")]
    facts += [(word, "yes") for word in ("estimated", "broken") if event.get(word) is True]
    blocks = _message(event.get("message"), "/message", "")
    told = {
        "model",
        "message",
        "finish_reason",
        "tokens",
        "usage",
        "request",
        "seconds",
        "waited_s",
        "first_token_s",
        "estimated",
        "broken",
        "id",
    }
    title = ", ".join(filter(None, (_text(event.get("model")), _text(event.get("finish_reason")))))
    return title, facts, blocks, told


def _message(message: Any, pointer: str, role: str) -> list[Block]:
    """Return the texts of a message. One of an unknown shape is shown as it came."""
    parts = _map(message).get("parts")
    if not isinstance(parts, list):
        text = _map(message).get("content")  # as trajectories had it before there was one form for every API
        if isinstance(text, str) and text:
            return [block(role, text, f"{pointer}/content")]
        return [block(role, message, pointer, "json")] if message else []
    found = []
    for place, part in enumerate(parts[: MOST_BLOCKS + 1]):
        here, kind = f"{pointer}/parts/{place}", _map(part).get("type")
        if kind in {"text", "reasoning"} and isinstance(part.get("text"), str):
            label = role if kind == "text" else f"{role} reasoning".strip()
            if part["text"]:
                found.append(block(label, part["text"], f"{here}/text", kind))
        elif kind == "tool_call":
            found.append(block(f"{role} calls".strip(), _text(part.get("name")), f"{here}/name", "call"))
        elif kind == "media":
            known = {name: value for name, value in part.items() if value is not None and name != "type"}
            found.append(block(f"{role} media".strip(), known, here, "json"))
        else:
            found.append(block(role or "part", part, here, "json"))
    return found


def _error(event: dict[str, Any], _line: Line) -> _Shown:
    attempt = event.get("attempt")
    words = [f"status {event['status']}" if event.get("status") else "", _text(event.get("code"))]
    words.append(f"attempt {attempt + 1}" if isinstance(attempt, int) else "")
    return (
        ", ".join(filter(None, words)),
        [],
        _texts(event, ["message"]),
        {"status", "code", "attempt", "message", "request"},
    )


def _call(event: dict[str, Any], _line: Line) -> _Shown:
    facts: list[Fact] = []
    if event.get("known") is False and not event.get("problem"):
        facts.append(("known", "no tool of this request"))
    if event.get("valid") is not None:
        facts.append(("valid", "yes" if event["valid"] is True else "no"))
    told = {"name", "arguments", "known", "valid", "problem", "request", "id", "conversation"}
    facts.append(("problem", event.get("problem")))
    return _text(event.get("name")), facts, _arguments(event.get("arguments")), told


def _arguments(value: Any) -> list[Block]:
    """Return arguments one by one, since long texts are read as the lines that they are; what is no JSON object as it came."""
    found = value
    if isinstance(value, str) and len(value) <= ARGUMENT_BYTES:
        try:
            found = orjson.loads(value)
        except orjson.JSONDecodeError:
            found = None
    if not isinstance(found, dict) or len(found) > MOST_BLOCKS:
        return [block("arguments", value, "/arguments", "code")] if value not in (None, "") else []
    return [block(name[:200], one, f"/arguments{step_in(name)}", "code") for name, one in found.items()]


def _result(event: dict[str, Any], line: Line) -> _Shown:
    facts: list[Fact] = [("outcome", event.get("outcome")), ("seconds", event.get("seconds"))]
    if event.get("is_error") is True:
        facts.append(("outcome", "error"))
    told = {"content", "outcome", "seconds", "is_error", "name", "call", "id", "conversation", "index"}
    return line.name or _text(event.get("id")), facts, _texts(event, ["content"]), told


def _egress(event: dict[str, Any], _line: Line) -> _Shown:
    title = f"{_text(event.get('host'))}:{_text(event.get('port'))}"
    names = ("outcome", "reason", "address", "sent", "received", "seconds")
    return title, [(name, event.get(name)) for name in names], [], {"host", "port", *names}


def _finish(event: dict[str, Any], _line: Line) -> _Shown:
    facts: list[Fact] = [("confidence", event.get("confidence"))]
    return _text(event.get("status")), facts, _texts(event, ["message"]), {"status", "confidence", "message"}


def _refusal(event: dict[str, Any], _line: Line) -> _Shown:
    title = ", ".join(filter(None, (_text(event.get("what")), _text(event.get("kind")), _text(event.get("code")))))
    facts = [("status", event.get("status"))]
    return title, facts, _texts(event, ["message"]), {"what", "status", "kind", "code", "message"}


def _finding(event: dict[str, Any], _line: Line) -> _Shown:
    return _text(event.get("kind")), [], _texts(event, ["detail"]), {"kind", "detail"}


def _budget(event: dict[str, Any], _line: Line) -> _Shown:
    return _text(event.get("reason")), [], [], {"reason"}


def _seal(_event: dict[str, Any], _line: Line) -> _Shown:
    return "closed", [], [], {"sha256_before", "run", "trial"}


def _other(_event: dict[str, Any], _line: Line) -> _Shown:
    return "", [], [], set()


def _texts(event: dict[str, Any], names: Iterable[str]) -> list[Block]:
    return [block("", event[name], step_in(name)) for name in names if event.get(name) not in (None, "", [], {})]


_SHOWN: Mapping[str, Callable[[dict[str, Any], Line], _Shown]] = {
    "launch": _launch,
    "model_request": _request,
    "model_response": _response,
    "model_error": _error,
    "tool_call": _call,
    "tool_result": _result,
    "egress": _egress,
    "budget": _budget,
    "finish": _finish,
    "refusal": _refusal,
    "finding": _finding,
    "seal": _seal,
}
