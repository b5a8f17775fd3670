"""A run as logs of Inspect (``.eval``), one for each agent: a zip with ``header.json``, one file for each trial, and their summaries.

A task is a sample, and its trials are the sample's epochs. The messages of model calls are stored once for each trial, as in Inspect's own
logs: a call names ranges of them.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from orchestrator import __version__
from orchestrator.dataset.rows import RunData, TrialRow
from orchestrator.exports.story import ModelCall, ToolUse, object_of
from orchestrator.exports.trial import ExportedTrial, in_time
from orchestrator.records.manifest import ManifestAgent, RunManifest
from orchestrator.records.message import Message, text_of
from orchestrator.records.verdict import CheckResult

LOG_VERSION = 2
"""Version of the log format, of inspect_ai 0.3."""
SCORER = "orchestrate"
_STOPS = {
    "stop": "stop", "end_turn": "stop", "stop_sequence": "stop", "completed": "stop", "tool_calls": "tool_calls", "tool_use": "tool_calls",
    "length": "max_tokens", "max_tokens": "max_tokens", "content_filter": "content_filter", "refusal": "content_filter",
}  # fmt: skip
_LIMITS = {
    "step_cap": "turn", "tool_call_cap": "custom", "token_budget": "token", "cost_budget": "cost", "wall_clock": "working",
    "context_exhausted": "context", "cancelled": "operator",
}  # fmt: skip
"""Termination reasons that Inspect calls limits."""
_GRADED = {"passed": "C", "failed": "I", "abstained": "N"}
"""Inspect's letters: correct, incorrect, no answer."""
_OLDEST = (1980, 1, 1, 0, 0, 0)
"""Of all files in a zip, so that the same run gives the same bytes."""


class InspectLog:
    """Writes the log of one agent, trial by trial; to be used as a context."""

    def __init__(self, path: Path, data: RunData, agent: ManifestAgent, *, content: bool = True) -> None:
        self._path = path
        self._data = data
        self._agent = agent
        self._content = content
        self._summaries: list[dict[str, Any]] = []
        self._rows: list[TrialRow] = []
        self._spans: list[tuple[float, float]] = []

    def __enter__(self) -> InspectLog:
        self._zip = zipfile.ZipFile(self._path, "x", zipfile.ZIP_DEFLATED)
        self._put("_journal/start.json", {"version": LOG_VERSION, "eval": self._spec(), "plan": self._plan()})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._zip.close()

    def add(self, trial: ExportedTrial) -> None:
        """Write one trial."""
        sample = _Sample(trial, content=self._content).whole()
        self._put(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", sample)
        self._summaries.append(_summary(sample))
        self._rows.append(trial.row)
        self._spans.append(in_time(trial))

    def _put(self, name: str, value: Any) -> None:
        info = zipfile.ZipInfo(name, _OLDEST)
        info.compress_type = zipfile.ZIP_DEFLATED
        self._zip.writestr(info, json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))

    def _finish(self) -> None:
        self._put("_journal/summaries/1.json", self._summaries)
        self._put("summaries.json", self._summaries)
        started = min((began for began, _ in self._spans), default=self._data.manifest.created_at.timestamp())
        stats = {
            "started_at": _iso(started),
            "completed_at": _iso(max((end for _, end in self._spans), default=started)),
        }
        header = {"version": LOG_VERSION, "status": "success", "eval": self._spec(), "plan": self._plan()}
        self._put("header.json", {**header, "results": self._results(), "stats": stats})

    def _results(self) -> dict[str, Any]:
        graded = [row for row in self._rows if row.graded_as in _GRADED]
        rate = _rate(graded)
        metrics = {} if rate is None else {"accuracy": {"name": "accuracy", "value": rate, "params": {}}}
        unscored = len(self._rows) - len(graded)
        score = {
            "name": SCORER,
            "scorer": SCORER,
            "scored_samples": len(graded),
            "unscored_samples": unscored,
            "params": {},
        }
        return {
            "total_samples": sum(row.agent.name == self._agent.name for row in self._data.rows),
            "completed_samples": len(self._rows),
            "scores": [{**score, "metrics": metrics}],
        }

    def _spec(self) -> dict[str, Any]:
        manifest, agent = self._data.manifest, self._agent
        models = agent.agent.models
        tasks = [task.id for task in manifest.tasks]
        return {
            "eval_id": _name(manifest.run, agent.name, "eval"),
            "run_id": manifest.run,
            "created": _iso(manifest.created_at.timestamp()),
            "task": manifest.suite,
            "task_id": manifest.suite_digest,
            "task_version": manifest.suite_digest,
            "solver": agent.name,
            "dataset": {"name": manifest.suite, "samples": len(tasks), "sample_ids": tasks, "shuffled": False},
            "model": models.get("main") or next(iter(models.values()), "none/none"),
            "config": {"epochs": max((task.samples for task in manifest.tasks), default=1)},
            "packages": {"orchestrate": manifest.orchestrate_version},
            "metadata": _about(manifest, agent),
            "scorers": [{"name": SCORER}],
        }

    def _plan(self) -> dict[str, Any]:
        return {"name": "plan", "steps": [{"solver": self._agent.name, "params": {}}]}


class _Sample:
    def __init__(self, trial: ExportedTrial, *, content: bool) -> None:
        self._trial = trial
        self._content = content
        self._pool: list[dict[str, Any]] = []
        self._places: dict[int, int] = {}
        """Where an entry of a conversation is in the pool, by identity: calls share entries."""

    def whole(self) -> dict[str, Any]:
        trial, outcome = self._trial, self._trial.outcome
        started, ended = in_time(trial)
        calls = trial.story.calls
        main = [call for call in calls if call.conversation == trial.story.main]
        events = sorted(
            [*map(self._model, calls), *map(self._tool, trial.story.tools)], key=lambda event: str(event["timestamp"])
        )
        messages = [self._entry(message) for message in (main[-1].input if main else [])]
        if main and main[-1].answer is not None:
            messages.append(self._entry(main[-1].answer))
        return {
            "id": trial.row.trial.task,
            "epoch": trial.row.trial.sample,
            "input": self._text(next((text_of(m) for m in (main[0].input if main else []) if m["role"] == "user"), "")),
            "target": trial.row.task.expect,
            "messages": messages,
            "output": _output(main[-1], self._content)
            if main
            else {"model": "", "choices": [], "completion": self._text(trial.message)},
            "scores": _scores(trial, content=self._content),
            "metadata": {
                "launch": outcome.launch,
                "termination_reason": outcome.termination_reason,
                "result": trial.row.graded_as,
                "tier": trial.row.task.tier,
                "kind": trial.row.task.kind,
                "tags": list(trial.row.task.tags),
            },
            "store": {},
            "events": events,
            "events_data": {"messages": self._pool, "calls": []},
            "model_usage": _usage_by_model(calls),
            "started_at": _iso(started),
            "completed_at": _iso(ended),
            "total_time": round(ended - started, 6),
            "working_time": outcome.working_s,
            "uuid": _name(trial.manifest.run, outcome.trial, str(outcome.launch)),
            "attachments": {},
            **_ending(trial),
        }

    def _model(self, call: ModelCall) -> dict[str, Any]:
        ended = call.ended or call.started
        found: dict[str, Any] = {
            **self._event("model", call.seq, call.started),
            "model": call.model,
            "input": [],
            "input_refs": _ranges([self._place(message) for message in call.input]),
            "tools": [_tool_info(tool) for tool in call.tools],
            "tool_choice": "auto",
            "config": {},
            "output": _output(call, self._content)
            if call.response is not None
            else {"model": call.model, "choices": []},
            "completed": _iso(ended),
            "retries": call.attempts,
            "metadata": {"conversation": call.conversation, "api": call.endpoint, "stream": call.stream},
        }
        if call.response is None:
            found["error"] = str((call.error or {}).get("code") or "no answer")
        return found

    def _tool(self, use: ToolUse) -> dict[str, Any]:
        found: dict[str, Any] = {
            **self._event("tool", use.seq, use.started),
            "type": "function",
            "id": use.id or f"call-{use.seq}",
            "function": use.name,
            "arguments": (use.parsed or {}) if self._content else {},
            "result": self._text(use.result or ""),
            "metadata": {"source": use.source, "valid": use.valid, "problem": use.problem, "outcome": use.outcome},
            "events": [],
        }
        if use.ended is not None:
            found["completed"] = _iso(use.ended)
        if use.is_error:
            found["error"] = {
                "type": "unknown",
                "message": self._text(use.result or "") or use.outcome or "the tool failed",
            }
        return found

    def _event(self, kind: str, seq: int, when: float) -> dict[str, Any]:
        outcome = self._trial.outcome
        began = max(0.0, when - self._trial.story.started)
        identity = _name(self._trial.manifest.run, outcome.trial, f"{outcome.launch} {seq}")
        return {"event": kind, "uuid": identity, "timestamp": _iso(when), "working_start": round(began, 6)}

    def _place(self, message: Message) -> int:
        """Return where an entry is in the pool; it is put there when it first comes."""
        place = self._places.get(id(message))
        if place is None:
            place = self._places[id(message)] = len(self._pool)
            self._pool.append(self._entry(message))
        return place

    def _entry(self, message: Message) -> dict[str, Any]:
        return _chat_message(message, self._content)

    def _text(self, text: str) -> str:
        return text if self._content else ""


def _chat_message(message: Message, content: bool) -> dict[str, Any]:
    role = {"developer": "system"}.get(message["role"], message["role"])
    said: list[dict[str, Any]] = []
    if content:
        said = [_content(dict(part)) for part in message["parts"] if part["type"] not in {"tool_call", "tool_result"}]
    only_text = all(part["type"] == "text" for part in said)
    found: dict[str, Any] = {"role": role, "content": "\n".join(part["text"] for part in said) if only_text else said}
    if role == "assistant":
        calls = [
            _tool_call(dict(part), number, content)
            for number, part in enumerate(message["parts"])
            if part["type"] == "tool_call"
        ]
        return {**found, "tool_calls": calls} if calls else found
    results = [part for part in message["parts"] if part["type"] == "tool_result"]
    if results and role in {"tool", "user"}:
        told = "\n".join(str(part.get("content", "")) for part in results) if content else ""
        return {"role": "tool", "content": told, "tool_call_id": results[0].get("id")}
    return found


def _content(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": str(part.get("text", ""))}
    if part["type"] == "reasoning":
        return {"type": "reasoning", "reasoning": str(part.get("text", ""))}
    named = f"{part.get('media_type') or part.get('kind')} {part.get('url') or part.get('sha256') or ''}".strip()
    return {"type": "text", "text": f"[{named}]"}


def _tool_call(part: dict[str, Any], number: int, content: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": str(part.get("id") or f"call-{number}"),
        "function": str(part.get("name") or ""),
        "type": "function",
    }
    arguments = object_of(part.get("arguments") or "{}")
    if arguments is None:
        found["parse_error"] = "the arguments are no JSON object"
    return {**found, "arguments": arguments if arguments is not None and content else {}}


def _output(call: ModelCall, content: bool) -> dict[str, Any]:
    answer = call.response or {}
    model = answer["model"] if isinstance(answer.get("model"), str) else call.model
    message = call.answer or Message(role="assistant", parts=[])
    stop = _STOPS.get(str(answer.get("finish_reason")), "unknown")
    found: dict[str, Any] = {
        "model": model,
        "choices": [{"message": _chat_message({**message, "role": "assistant"}, content), "stop_reason": stop}],
        "completion": text_of(message) if content else "",
        "usage": _usage([call]),
    }
    if isinstance(seconds := answer.get("seconds"), int | float):
        found["time"] = seconds
    return found


def _usage(calls: Sequence[ModelCall]) -> dict[str, Any]:
    """Return the sum in Inspect's form, where input leaves out what caches served."""
    total: dict[str, int] = {}
    for call in calls:
        for name, count in call.tokens.items():
            total[name] = total.get(name, 0) + count
    names = ("uncached_input", "output", "cache_write", "cache_read", "reasoning")
    plain, output, write, read, reasoning = (total.get(name, 0) for name in names)
    found: dict[str, Any] = {
        "input_tokens": plain,
        "output_tokens": output,
        "total_tokens": plain + output + write + read,
    }
    found |= {"input_tokens_cache_write": write, "input_tokens_cache_read": read, "reasoning_tokens": reasoning}
    if calls and all("cost_nano_usd" in call.tokens for call in calls if call.response is not None):
        found["total_cost"] = total.get("cost_nano_usd", 0) / 1e9
    return found


def _usage_by_model(calls: Sequence[ModelCall]) -> dict[str, Any]:
    models = sorted({call.model for call in calls})
    return {model: _usage([call for call in calls if call.model == model]) for model in models}


def _scores(trial: ExportedTrial, *, content: bool) -> dict[str, Any]:
    letter = _GRADED.get(trial.row.graded_as)
    verdict = trial.row.verdict
    if letter is None or verdict is None:
        return {}
    checks = [_check(check, content) for check in (*verdict.checks, *verdict.invariants)]
    failed = ", ".join(trial.row.failed_checks)
    score: dict[str, Any] = {"value": letter, "metadata": {"checks": checks, "grader": verdict.grader_digest}}
    if content and trial.message:
        score["answer"] = trial.message
    if failed:
        score["explanation"] = f"failed: {failed}"
    return {SCORER: score}


def _check(check: CheckResult, content: bool) -> dict[str, Any]:
    found = {"id": check.id, "type": check.type, "gate": check.gate, "passed": check.passed}
    return {**found, "evidence": list(check.evidence)} if content else found


def _ending(trial: ExportedTrial) -> dict[str, Any]:
    outcome = trial.outcome
    if outcome.outcome_class == "infra":
        return {
            "error": {"message": outcome.error or outcome.termination_reason, "traceback": "", "traceback_ansi": ""}
        }
    kind = _LIMITS.get(outcome.termination_reason)
    if kind is None:
        return {}
    budgets = trial.row.task.budgets
    limits = {
        "turn": budgets.max_steps,
        "token": budgets.max_tokens,
        "cost": budgets.max_cost_usd,
        "working": budgets.max_wall_seconds,
    }
    return {
        "limit": {
            "type": kind,
            "limit": limits.get(kind) or budgets.max_tool_calls,
            "reason": outcome.termination_reason,
        }
    }


def _summary(sample: dict[str, Any]) -> dict[str, Any]:
    names = (
        "id",
        "epoch",
        "input",
        "target",
        "metadata",
        "scores",
        "model_usage",
        "started_at",
        "completed_at",
        "total_time",
    )
    error, limit = sample.get("error"), sample.get("limit")
    found = {name: sample[name] for name in (*names, "working_time", "uuid")}
    found["input"] = str(found["input"])[:1000]
    return {
        **found,
        "error": error["message"] if error else None,
        "limit": limit["type"] if limit else None,
        "completed": True,
        "message_count": len(sample["messages"]),
    }


def _rate(rows: Sequence[TrialRow]) -> float | None:
    """Return the share of trials that passed, as the mean over tasks."""
    by_task: dict[str, list[bool]] = {}
    for row in rows:
        by_task.setdefault(row.trial.task, []).append(row.graded_as == "passed")
    rates = [sum(found) / len(found) for found in by_task.values()]
    return sum(rates) / len(rates) if rates else None


def _about(manifest: RunManifest, agent: ManifestAgent) -> dict[str, Any]:
    return {
        "agent": agent.name,
        "agent_digest": agent.digest,
        "suite_digest": manifest.suite_digest,
        "backend": manifest.backend,
        "commit": manifest.code.commit,
        "exported_by": f"orchestrate {__version__}",
    }


def _tool_info(tool: dict[str, Any]) -> dict[str, Any]:
    schema = tool.get("schema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    required = schema.get("required") if isinstance(schema, dict) else None
    parameters = {
        "type": "object",
        "properties": properties if isinstance(properties, dict) else {},
        "required": required if isinstance(required, list) else [],
    }
    return {
        "name": str(tool.get("name") or ""),
        "description": str(tool.get("description") or ""),
        "parameters": parameters,
    }


def _ranges(places: Sequence[int]) -> list[tuple[int, int]]:
    """Return positions as ranges, each with its end excluded."""
    found: list[tuple[int, int]] = []
    for place in places:
        if found and found[-1][1] == place:
            found[-1] = found[-1][0], place + 1
        else:
            found.append((place, place + 1))
    return found


def _name(*words: str) -> str:
    """Return an identifier that depends on the words alone."""
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:22]


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
