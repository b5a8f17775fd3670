"""final.json is read by a limited child: whatever stands in it, the reader survives and says what is wrong."""

from __future__ import annotations

import asyncio
import json

import pytest

from orchestrator.trial.final import read_final


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
