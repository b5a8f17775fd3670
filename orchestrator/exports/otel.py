"""Trials as OpenTelemetry traces: ``invoke_agent`` with its ``chat`` and ``execute_tool`` spans, and verdicts as log records.

Every id comes from the content, so that a second export of a trial is the same trace and not another one. A request repeats its whole
conversation; a span holds what was new in it, and ``orchestrate.input.kept`` says how many entries came before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, cast

from orchestrator import __version__
from orchestrator.exports.story import ModelCall, ToolUse
from orchestrator.exports.trial import ExportedTrial, in_time
from orchestrator.records.message import Message
from orchestrator.records.outcome import Outcome
from orchestrator.records.usage import Usage
from orchestrator.trace import genai

_INTERNAL, _CLIENT = 1, 3
"""Kinds of spans."""
_ERROR = {"code": 2}
_ROLES = {"developer": "system"}
_GOOD_ENDINGS = frozenset({"completed", "declined", "asked"})
Attributes = dict[str, Any]


def spans_of(trial: ExportedTrial, *, content: bool = True) -> dict[str, Any]:
    """Return a trial's spans, in the JSON form of an OTLP export request for traces. ``content``: also what was said."""
    return {"resourceSpans": [_resource(trial, "scopeSpans", "spans", _Spans(trial, content=content).all())]}


def logs_of(trial: ExportedTrial, *, content: bool = True) -> dict[str, Any] | None:
    """Return the verdict of a trial, in the JSON form of an OTLP export request for logs: the trial's result and each check's.

    None when it was not graded.
    """
    verdict = trial.row.verdict
    if verdict is None:
        return None
    spans = _Spans(trial, content=content)
    grader = {"orchestrate.grader.id": verdict.grader_digest, "orchestrate.grader.version": verdict.grader_version}
    whole: Attributes = {genai.EVALUATION_NAME: "trial", genai.EVALUATION_LABEL: trial.row.graded_as, **grader}
    if trial.passed is not None:
        whole[genai.EVALUATION_SCORE] = float(trial.passed)
    elif verdict.error is not None:
        whole[genai.ERROR_TYPE] = verdict.error.type
    records = [spans.log(whole)]
    for check in (*verdict.checks, *verdict.invariants):
        found: Attributes = {genai.EVALUATION_NAME: check.id, "orchestrate.check.type": check.type, **grader}
        found["orchestrate.check.gate"] = check.gate
        if check.passed is not None:
            found |= {
                genai.EVALUATION_SCORE: float(check.passed),
                genai.EVALUATION_LABEL: "passed" if check.passed else "failed",
            }
        if content and check.evidence:
            found[genai.EVALUATION_EXPLANATION] = "\n".join(check.evidence)
        records.append(spans.log(found))
    return {"resourceLogs": [_resource(trial, "scopeLogs", "logRecords", records)]}


def _resource(trial: ExportedTrial, scopes: str, name: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    scope = {"name": "orchestrate", "version": __version__}
    about = {"service.name": "orchestrate", "service.version": __version__, "orchestrate.run.id": trial.manifest.run}
    return {
        "resource": {"attributes": attributes(about)},
        scopes: [{"scope": scope, name: items, "schemaUrl": genai.SCHEMA_URL}],
        "schemaUrl": genai.SCHEMA_URL,
    }


def _tokens(usage: Usage) -> Attributes:
    return {
        genai.INPUT_TOKENS: usage.uncached_input + usage.cache_read + usage.cache_write,
        genai.OUTPUT_TOKENS: usage.output,
        genai.CACHE_READ_TOKENS: usage.cache_read,
        genai.CACHE_WRITE_TOKENS: usage.cache_write,
        genai.REASONING_TOKENS: usage.reasoning,
    }


def _seconds(outcome: Outcome) -> Attributes:
    known = {"orchestrate.working_s": outcome.working_s, "orchestrate.waiting_s": outcome.waiting_s}
    return {name: value for name, value in known.items() if value is not None}


class _Spans:
    def __init__(self, trial: ExportedTrial, *, content: bool) -> None:
        self._trial = trial
        self._content = content
        outcome = trial.outcome
        content_digest = outcome.trajectory.sha256 if outcome.trajectory else ""
        name = "\0".join((trial.manifest.run, outcome.trial, str(outcome.launch), content_digest))
        self._trace = hashlib.sha256(name.encode()).digest()[:16]
        self._root = self._id("trial")

    def all(self) -> list[dict[str, Any]]:
        story = self._trial.story
        calls = {call.seq: call for call in story.calls}
        return [
            self._trial_span(),
            *map(self._chat, story.calls),
            *(self._tool(use, calls.get(use.request if use.request is not None else -1)) for use in story.tools),
        ]

    def log(self, found: Attributes) -> dict[str, Any]:
        _, ended = in_time(self._trial)
        return {
            "timeUnixNano": _nano(ended),
            "severityNumber": 9,
            "eventName": genai.EVALUATION_EVENT,
            "attributes": attributes({**found, **self._about()}),
            "traceId": self._trace.hex(),
            "spanId": self._root,
        }

    def _about(self) -> Attributes:
        trial, task = self._trial, self._trial.row.task
        return {
            genai.EVAL_CASE_ID: task.id,
            "orchestrate.task.id": task.id,
            "orchestrate.task.version": task.version,
            "orchestrate.trial.id": trial.outcome.trial,
            "orchestrate.trial.attempt": trial.outcome.launch,
            "orchestrate.suite.id": trial.manifest.suite,
            "orchestrate.suite.digest": trial.manifest.suite_digest,
        }

    def _trial_span(self) -> dict[str, Any]:
        trial, outcome, usage = self._trial, self._trial.outcome, self._trial.outcome.usage
        agent = trial.row.agent
        found: Attributes = {
            genai.OPERATION_NAME: genai.INVOKE_AGENT,
            genai.AGENT_NAME: agent.name,
            genai.AGENT_ID: agent.digest,
            genai.CONVERSATION_ID: self._conversation(trial.story.main),
            **(_tokens(usage) if outcome.tells("tokens") else {}),
            "orchestrate.termination_reason": outcome.termination_reason,
            **_seconds(outcome),
            "orchestrate.result": trial.row.graded_as,
            **self._about(),
        }
        if agent.agent.version:
            found[genai.AGENT_VERSION] = agent.agent.version
        if usage.cost_nano_usd is not None:
            found["orchestrate.cost_nano_usd"] = usage.cost_nano_usd
        if trial.passed is not None:
            found[genai.EVAL_PASSED] = trial.passed
        failed = outcome.termination_reason not in _GOOD_ENDINGS
        if failed:
            found[genai.ERROR_TYPE] = outcome.termination_reason
        if self._content and trial.message:
            said = [
                {"role": "assistant", "parts": [{"type": "text", "content": trial.message}], "finish_reason": "stop"}
            ]
            found[genai.OUTPUT_MESSAGES] = json.dumps(said, ensure_ascii=False)
        return self._span(self._root, f"invoke_agent {agent.name}", _INTERNAL, in_time(trial), found, failed=failed)

    def _chat(self, call: ModelCall) -> dict[str, Any]:
        operation = genai.EMBEDDINGS if call.endpoint == "embeddings" else genai.CHAT
        model = call.model.partition("/")[2] or call.model
        found: Attributes = {
            genai.OPERATION_NAME: operation,
            genai.PROVIDER_NAME: call.provider,
            genai.REQUEST_MODEL: model,
            genai.CONVERSATION_ID: self._conversation(call.conversation),
            "orchestrate.api": call.endpoint,
            "orchestrate.input.kept": call.kept,
            "orchestrate.attempts.failed": call.attempts,
            **_params(call.params),
            **_response(call),
        }
        if self._content:
            found |= _said(call)
        if failed := call.response is None:
            found[genai.ERROR_TYPE] = str((call.error or {}).get("code") or "no_answer")
        times = call.started, call.ended or call.started
        return self._span(self._id(f"event {call.seq}"), f"{operation} {model}", _CLIENT, times, found, failed=failed)

    def _tool(self, use: ToolUse, call: ModelCall | None) -> dict[str, Any]:
        found: Attributes = {
            genai.OPERATION_NAME: genai.EXECUTE_TOOL,
            genai.TOOL_NAME: use.name,
            genai.TOOL_TYPE: "function",
            "orchestrate.source": use.source,
            genai.CONVERSATION_ID: self._conversation(call.conversation if call else use.conversation),
        }
        optional: Attributes = {
            genai.TOOL_CALL_ID: use.id,
            "orchestrate.tool.valid": use.valid,
            "orchestrate.tool.problem": use.problem,
        }
        optional |= {"orchestrate.tool.outcome": use.outcome, "orchestrate.tool.seconds": use.seconds}
        found |= {key: value for key, value in optional.items() if value is not None}
        if use.is_error:
            found[genai.ERROR_TYPE] = use.outcome or "tool_error"
        if self._content:
            arguments = use.arguments
            found[genai.TOOL_CALL_ARGUMENTS] = json.dumps(arguments) if isinstance(arguments, dict) else arguments or ""
            if use.result is not None:
                found[genai.TOOL_CALL_RESULT] = use.result
        times = use.started, use.ended or use.started
        span = self._id(f"event {use.seq}")
        return self._span(span, f"execute_tool {use.name}", _INTERNAL, times, found, failed=use.is_error is True)

    def _span(
        self, identity: str, name: str, kind: int, times: tuple[float, float], found: Attributes, *, failed: bool
    ) -> dict[str, Any]:
        span: dict[str, Any] = {"traceId": self._trace.hex(), "spanId": identity, "name": name, "kind": kind}
        if identity != self._root:
            span["parentSpanId"] = self._root
        started, ended = times
        span |= {"startTimeUnixNano": _nano(started), "endTimeUnixNano": _nano(max(started, ended))}
        return {**span, "attributes": attributes(found), "status": dict(_ERROR) if failed else {}}

    def _conversation(self, number: int) -> str:
        return f"{self._trace.hex()}/{number}"

    def _id(self, what: str) -> str:
        return hashlib.sha256(self._trace + what.encode()).hexdigest()[:16]


def _params(params: Mapping[str, Any]) -> Attributes:
    return {
        genai.REQUEST_PARAMS[name]: value
        for name, value in params.items()
        if name in genai.REQUEST_PARAMS and isinstance(value, int | float) and not isinstance(value, bool)
    }


def _response(call: ModelCall) -> Attributes:
    answer = call.response or {}
    found: Attributes = {}
    for key, name in ((genai.RESPONSE_ID, "id"), (genai.RESPONSE_MODEL, "model")):
        if isinstance(value := answer.get(name), str):
            found[key] = value
    if isinstance(reason := answer.get("finish_reason"), str):
        found[genai.FINISH_REASONS] = [reason]
    for name in ("waited_s", "first_token_s", "seconds"):
        if isinstance(value := answer.get(name), int | float):
            found[f"orchestrate.{name}"] = float(value)
    tokens = call.tokens
    if tokens:
        read, write = tokens.get("cache_read", 0), tokens.get("cache_write", 0)
        found[genai.INPUT_TOKENS] = tokens.get("uncached_input", 0) + read + write
        found[genai.OUTPUT_TOKENS] = tokens.get("output", 0)
        found |= {genai.CACHE_READ_TOKENS: read, genai.CACHE_WRITE_TOKENS: write}
        found[genai.REASONING_TOKENS] = tokens.get("reasoning", 0)
    if "cost_nano_usd" in tokens:
        found["orchestrate.cost_nano_usd"] = tokens["cost_nano_usd"]
    return found


def _said(call: ModelCall) -> Attributes:
    new = call.input[call.kept :]
    found: Attributes = {}
    system = [part for message in new if message["role"] in {"system", "developer"} for part in _parts(message)]
    others = [_chat_message(message) for message in new if message["role"] not in {"system", "developer"}]
    if system:
        found[genai.SYSTEM_INSTRUCTIONS] = json.dumps(system, ensure_ascii=False)
    if others:
        found[genai.INPUT_MESSAGES] = json.dumps(others, ensure_ascii=False)
    if call.answer is not None:
        reason = str((call.response or {}).get("finish_reason") or "unknown")
        said = [{**_chat_message({**call.answer, "role": "assistant"}), "finish_reason": reason}]
        found[genai.OUTPUT_MESSAGES] = json.dumps(said, ensure_ascii=False)
    if call.tools and not call.kept:
        tools = [
            {"type": "function", **{k: tool.get(k) for k in ("name", "description")}, "parameters": tool.get("schema")}
            for tool in call.tools
        ]
        found[genai.TOOL_DEFINITIONS] = json.dumps(tools, ensure_ascii=False)
    return found


def _chat_message(message: Message) -> dict[str, Any]:
    return {"role": _ROLES.get(message["role"], message["role"]), "parts": _parts(message)}


def _parts(message: Message) -> list[dict[str, Any]]:
    return [_part(cast("dict[str, Any]", part)) for part in message["parts"]]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a message in the convention's form."""
    kind = part["type"]
    if kind in {"text", "reasoning"}:
        return {"type": kind, "content": part.get("text", "")}
    if kind == "tool_call":
        return {"type": kind, "id": part.get("id"), "name": part.get("name") or "", "arguments": part.get("arguments")}
    if kind == "tool_result":
        return {"type": "tool_call_response", "id": part.get("id"), "response": part.get("content")}
    if kind == "media" and isinstance(part.get("url"), str):
        media = str(part.get("media_type") or "")
        return {"type": "uri", "modality": media.partition("/")[0], "mime_type": media, "uri": part["url"]}
    return {key: value for key, value in part.items() if value is not None}


def attributes(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return attributes in OTLP's JSON form."""
    return [{"key": key, "value": _value(value)} for key, value in found.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}  # 64 bits: JSON's numbers have 53
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": str(value)}


def _nano(seconds: float) -> str:
    return str(round(seconds * 1e6) * 1000)  # events are written to the microsecond
