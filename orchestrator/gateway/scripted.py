"""The provider ``scripted``: plays conversations from files, so that the whole path runs without a key, and always in the same way.

The trial's seed chooses the conversation. The turn is the number of assistant messages in the request, so asking again gives the
same answer. Turns with ``error`` are faults: they are what the first attempts at the next answer get, one each.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import orjson

from orchestrator.gateway.provider import ModelCall, ProviderError, RetryPolicy, is_ours, is_retryable
from orchestrator.gateway.usage import estimate
from orchestrator.spec.scripts import Conversation, Script, Turn

_SEARCHED = 64 << 10
"""Characters at the end of the last message that ``expect`` is searched in."""

_QUOTED = 200
"""Characters of it that a refusal quotes."""


class ScriptedProvider:
    """One trial's conversation."""

    retry = RetryPolicy(attempts=5, backoff_seconds=0.01)

    def __init__(self, script: Script, seed: int) -> None:
        self._seed = seed
        self._turns = _choose(script, seed).turns

    async def attempt(self, call: ModelCall) -> dict[str, Any]:
        """Return the turn that the request has come to. Raises ProviderError."""
        messages = call.body.get("messages")
        messages = messages if isinstance(messages, list) else []
        index = sum(isinstance(m, dict) and m.get("role") == "assistant" for m in messages)
        faults, turn = _turn(self._turns, index)
        if call.attempt < len(faults):
            raise _fault(faults[call.attempt])
        if turn is None:
            if faults:
                raise _fault(faults[-1])
            have = sum(t.error is None for t in self._turns)
            msg = f"the script has {have} answers and was asked for number {index + 1}"
            raise ProviderError(400, msg, code="script_exhausted", ours=False)
        if turn.expect is not None and not re.search(turn.expect, _last(messages)[-_SEARCHED:]):
            msg = f"answer {index + 1} of the script expects {turn.expect!r}; {_ends_with(messages)}"
            raise ProviderError(400, msg, code="script_mismatch", ours=False)
        return self._response(call.body, index, turn)

    def _response(self, body: dict[str, Any], index: int, turn: Turn) -> dict[str, Any]:
        calls = [
            {
                "id": f"call_{index + 1}_{number}",
                "type": "function",
                "function": {"name": call.name, "arguments": orjson.dumps(call.arguments).decode()},
            }
            for number, call in enumerate(turn.calls, 1)
        ]
        message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
        if calls:
            message["tool_calls"] = calls
        name = hashlib.sha256(f"{self._seed}\0{index}".encode()).hexdigest()[:24]
        return {
            "id": f"chatcmpl-scripted-{name}",
            "object": "chat.completion",
            "created": 0,
            "model": body.get("model"),
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
            "usage": _usage(body, message, turn),
        }


def _choose(script: Script, seed: int) -> Conversation:
    total = sum(conversation.weight for conversation in script.conversations)
    digest = hashlib.sha256(f"orchestrate/conversation/v1\0{seed}".encode()).digest()
    point = int.from_bytes(digest[:8], "big") / 2**64 * total
    for conversation in script.conversations:
        point -= conversation.weight
        if point < 0:
            return conversation
    return script.conversations[-1]


def _turn(turns: tuple[Turn, ...], index: int) -> tuple[list[int], Turn | None]:
    """Return the faults before the answer of that index, and the answer; None past the end."""
    faults: list[int] = []
    answers = 0
    for turn in turns:
        if turn.error is not None:
            faults.append(turn.error)
        elif answers == index:
            return faults, turn
        else:
            answers += 1
            faults = []
    return (faults, None) if answers == index else ([], None)


def _fault(status: int) -> ProviderError:
    msg = f"the script answers with status {status} here"
    return ProviderError(status, msg, code="script_fault", retryable=is_retryable(status), ours=is_ours(status))


def _usage(body: dict[str, Any], message: dict[str, Any], turn: Turn) -> dict[str, int]:
    if turn.usage is not None:
        sent, got = turn.usage.input, turn.usage.output
    else:
        guess = estimate(len(orjson.dumps(body.get("messages"))), len(orjson.dumps(message)))
        sent, got = guess.uncached_input, guess.output
    return {"prompt_tokens": sent, "completion_tokens": got, "total_tokens": sent + got}


def _ends_with(messages: list[Any]) -> str:
    """Return how the last message ends, escaped, for who wrote the script."""
    text = _last(messages).strip()
    if not text:
        return "the last message has no text" if messages else "there is no message"
    return f"the last message ends with: {'…' if len(text) > _QUOTED else ''}{text[-_QUOTED:]!r}"


def _last(messages: list[Any]) -> str:
    message = messages[-1] if messages else None
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""
