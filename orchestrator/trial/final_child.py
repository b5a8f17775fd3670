"""Read how an agent says that it ended. Runs alone, with nothing to lose: no credential, little memory, no files.

Standard input is one final.json, or with an adapter's name as argument the end of what the agent printed. Stdlib only; started with
``python -I -S``. Prints one JSON line: ``{"final": {…}}``, or ``{"error": "…"}`` with the reason why there is none.
"""

from __future__ import annotations

import json
import resource
import sys

LIMIT = 64 * 1024
OUTPUT_LIMIT = 4 << 20
MESSAGE_LIMIT = 16 * 1024
STATUSES = ("completed", "declined", "asked")
WORDS = ("low", "medium", "high")


def confine() -> None:
    """Give up everything that reading some MiB does not need."""
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


def objects(raw: bytes) -> list[dict[str, object]]:
    """Return the lines that are JSON objects; programs print other things between them, and the first line may be cut."""
    found = []
    for line in raw.split(b"\n"):
        if not line.lstrip().startswith(b"{"):
            continue
        try:
            value = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def claude_code(lines: list[dict[str, object]]) -> dict[str, object]:
    """Read the result that ``claude --print --output-format json`` (or ``stream-json``) ends with. Raises ValueError."""
    for line in reversed(lines):
        if line.get("type") == "result":
            if line.get("subtype") == "success" and line.get("is_error") is False:
                return completed(line.get("result"))
            raise ValueError(f"its result is {word(line.get('subtype'))}, is_error {word(line.get('is_error'))}")
    raise ValueError("it printed no line of type 'result'")


def codex(lines: list[dict[str, object]]) -> dict[str, object]:
    """Read the events of ``codex exec --json``: how the last turn ended, and the last message before. Raises ValueError."""
    message: object = ""
    ended: object = None
    for line in lines:
        item = line.get("item")
        if line.get("type") == "item.completed" and isinstance(item, dict) and item.get("type") == "agent_message":
            message = item.get("text")
        if line.get("type") in ("turn.started", "turn.completed", "turn.failed", "error"):
            ended = line["type"]
    if ended == "turn.completed":
        return completed(message)
    raise ValueError(f"its last turn ended with {word(ended)}")


def mini_swe_agent(lines: list[dict[str, object]]) -> dict[str, object]:
    """Read ``exit_status`` and ``submission`` of its trajectory, printed as the last line that has them. Raises ValueError."""
    for line in reversed(lines):
        if "exit_status" in line:
            if line["exit_status"] == "Submitted":
                return completed(line.get("submission"))
            raise ValueError(f"its exit status is {word(line['exit_status'])}")
    raise ValueError("it printed no line with 'exit_status'")


def completed(message: object) -> dict[str, object]:
    """Return an ending of an agent that ended by itself. What it says in prose is its message and nothing else."""
    text = message if isinstance(message, str) else ""
    text = text.encode("utf-8", "replace").decode("utf-8")[:MESSAGE_LIMIT]
    return {"status": "completed", "message": text, "confidence": None, "escalation": {}}


def word(value: object) -> str:
    """Return a value as it may stand in a finding."""
    return ascii(value)[:80]


ADAPTERS = {"claude-code": claude_code, "codex": codex, "mini-swe-agent": mini_swe_agent}


def adapted(adapter: str, raw: bytes) -> dict[str, object]:
    """Return what is to be printed for the end of what an agent printed."""
    try:
        return {"final": ADAPTERS[adapter](objects(raw[-OUTPUT_LIMIT:]))}
    except (ValueError, MemoryError) as error:
        return {"error": f"{adapter}: {str(error)[:200]}"}


if __name__ == "__main__":
    confine()
    if len(sys.argv) > 1:
        json.dump(adapted(sys.argv[1], sys.stdin.buffer.read(OUTPUT_LIMIT)), sys.stdout)
    else:
        json.dump(answer(sys.stdin.buffer.read(LIMIT + 1)), sys.stdout)
