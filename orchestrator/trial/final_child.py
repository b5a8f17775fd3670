"""Read one final.json on standard input and print what it says. Runs alone, with nothing to lose: no credential, little memory, no files.

Stdlib only; started with ``python -I -S``. Prints one JSON line: ``{"final": {…}}`` or ``{"error": "…"}``.
"""

from __future__ import annotations

import json
import resource
import sys

LIMIT = 64 * 1024
STATUSES = ("completed", "declined", "asked")
WORDS = ("low", "medium", "high")


def confine() -> None:
    """Give up everything that reading 64 KiB does not need."""
    for limit, value in (
        (resource.RLIMIT_AS, 256 << 20),
        (resource.RLIMIT_CPU, 2),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))


def check(data: object) -> dict[str, object]:
    """Return the answer with its four fields. Raises ValueError with the reason in words."""
    if not isinstance(data, dict):
        raise ValueError("it must be one JSON object")
    unknown = sorted(set(data) - {"status", "message", "confidence", "escalation"})
    if unknown:
        raise ValueError(f"unknown field {str(unknown[0])[:40]!r}")
    if data.get("status") not in STATUSES:
        raise ValueError("status must be completed, declined or asked")
    if not isinstance(data.get("message", ""), str):
        raise ValueError("message must be a text")
    return {
        "status": data["status"],
        "message": data.get("message", ""),
        "confidence": check_confidence(data.get("confidence")),
        "escalation": check_escalation(data.get("escalation")),
    }


def check_confidence(value: object) -> object:
    """Return a confidence word, a number from 0 to 1, or None."""
    if value is None or value in WORDS:
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise ValueError("confidence must be low, medium, high or a number from 0 to 1")


def check_escalation(value: object) -> dict[str, str]:
    """Return the escalation's fields; absent means none."""
    if value is None:
        return {}
    if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
        return value
    raise ValueError("escalation must be an object with texts")


def answer(raw: bytes) -> dict[str, object]:
    """Return what is to be printed for the raw bytes of a file."""
    if len(raw) > LIMIT:
        return {"error": f"final.json is larger than {LIMIT} bytes"}
    try:
        final = check(json.loads(raw.decode("utf-8")))
        json.dumps(final, ensure_ascii=False).encode("utf-8")  # a lone surrogate is no text
    except (ValueError, RecursionError, MemoryError) as error:
        return {"error": f"final.json is not a valid ending: {str(error)[:200]}"}
    return {"final": final}


if __name__ == "__main__":
    confine()
    json.dump(answer(sys.stdin.buffer.read(LIMIT + 1)), sys.stdout)
