"""final.json is read by a limited child: whatever stands in it, the reader survives and says what is wrong."""

from __future__ import annotations

import asyncio
import json

import pytest

from orchestrator.trial.final import read_adapted, read_final


def read(raw: bytes):
    return asyncio.run(read_final(raw))


def test_a_whole_answer() -> None:
    answer = {
        "status": "asked",
        "message": "which é?",
        "confidence": 0.5,
        "escalation": {"permission": "refund.approve"},
    }
    final, findings = read(json.dumps(answer, ensure_ascii=False).encode())
    assert final is not None
    assert final.model_dump() == answer
    assert findings == ()


def test_the_status_alone_is_enough() -> None:
    final, _ = read(b'{"status": "declined"}')
    assert final is not None
    assert (final.message, final.confidence, final.escalation) == ("", None, {})


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "valid ending"),
        (b"[]", "one JSON object"),
        (b"{}", "status"),
        (b'{"status": "passed"}', "status"),
        (b'{"status": ["completed"]}', "status"),
        (b'{"status": "completed", "verdict": "passed"}', "unknown field 'verdict'"),
        (b'{"status": "completed", "confidence": true}', "confidence"),
        (b'{"status": "completed", "confidence": 1.1}', "confidence"),
        (b'{"status": "completed", "confidence": NaN}', "confidence"),
        (b'{"status": "completed", "escalation": {"a": 1}}', "escalation"),
        (b'{"status": "completed", "message": "\\ud800"}', "valid ending"),
        (b"\xff\xfe", "valid ending"),
        (b'{"status":' + b"[" * 60_000, "final.json"),
        (b" " * 65_537, "larger than 65536"),
    ],
)
def test_everything_else_is_a_finding(raw: bytes, words: str) -> None:
    final, findings = read(raw)
    assert final is None
    assert [finding.type for finding in findings] == ["invalid_final"]
    assert words in findings[0].detail


def adapted(adapter: str, *lines: object):
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    return asyncio.run(read_adapted(adapter, text.encode("utf-8", "surrogatepass")))


RESULT = {"type": "result", "subtype": "success", "is_error": False, "result": "Fixed it.", "num_turns": 2}
MESSAGE = {"type": "item.completed", "item": {"id": "item_2", "type": "agent_message", "text": "Fixed it."}}
TURN = {"type": "turn.completed", "usage": {"input_tokens": 20}}
EXIT = {"exit_status": "Submitted", "submission": "Fixed it."}


@pytest.mark.parametrize(
    ("adapter", "lines"),
    [
        ("claude-code", ["warning: x", RESULT, "{ not json"]),
        ("claude-code", [{**RESULT, "is_error": True}, RESULT]),
        ("codex", ['cut off"}}', {"type": "turn.started"}, {"type": "item.completed", "item": 1}, MESSAGE, TURN]),
        ("codex", [{"type": "turn.failed"}, {"type": "turn.started"}, MESSAGE, TURN, {"type": "item.started"}]),
        ("mini-swe-agent", ["Saved trajectory", {"exit_status": "LimitsExceeded"}, EXIT]),
    ],
)
def test_an_agents_own_ending_is_read(adapter: str, lines: list[object]) -> None:
    final, findings = adapted(adapter, *lines)
    assert final is not None
    assert (final.status, final.message, final.confidence, findings) == ("completed", "Fixed it.", None, ())


@pytest.mark.parametrize(
    ("adapter", "lines", "says"),
    [
        ("claude-code", [], "no line of type 'result'"),
        ("claude-code", [{**RESULT, "subtype": "error_max_turns"}], "its result is 'error_max_turns'"),
        ("claude-code", [{**RESULT, "is_error": True}], "is_error True"),
        ("claude-code", [[RESULT]], "no line of type 'result'"),
        ("codex", [MESSAGE], "its last turn ended with None"),
        ("codex", [MESSAGE, TURN, {"type": "error", "message": "x"}], "ended with 'error'"),
        ("codex", [MESSAGE, TURN, {"type": "turn.started"}], "ended with 'turn.started'"),
        ("mini-swe-agent", [{"exit_status": "TimeExceeded"}], "its exit status is 'TimeExceeded'"),
        ("mini-swe-agent", [{"exit_status": {"a": "\ud800é" * 99}}], "its exit status is {'a': '"),
        ("mini-swe-agent", ["I am done. Submitted."], "no line with 'exit_status'"),
        ("mini-swe-agent", ['{"a":' * 100_000], "no line with 'exit_status'"),
    ],
)
def test_what_is_no_ending_of_its_own_is_a_finding(adapter: str, lines: list[object], says: str) -> None:
    final, findings = adapted(adapter, *lines)
    assert final is None
    assert [finding.type for finding in findings] == ["no_adapted_ending"]
    assert says in findings[0].detail
    assert findings[0].detail.isascii()


def test_a_long_or_broken_message_is_cut_and_mended() -> None:
    final, _ = adapted("claude-code", {**RESULT, "result": "\ud800" + "x" * 100_000})
    assert final is not None
    assert final.message == "?" + "x" * (16 * 1024 - 1)


def test_a_message_that_is_no_text_is_none() -> None:
    final, _ = adapted("mini-swe-agent", {**EXIT, "submission": ["a"]})
    assert final is not None
    assert final.message == ""
