"""The provider ``scripted``: plays conversations from files, so that the whole path runs without a key, and always in the same way.

The trial's seed chooses the conversation. The turn is the number of answers that the model has given in the request's conversation, so
asking again gives the same answer. Turns with ``error`` are faults: they are what the first attempts at the next answer get, one each.
Side calls of an agent, such as one for a title, are answered by ``others`` and are no turns.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any

import orjson

from orchestrator.gateway.dialects.base import Dialect, Said, ServerEvent
from orchestrator.gateway.provider import ModelCall, ProviderError, RetryPolicy, Service, is_ours, is_retryable
from orchestrator.gateway.usage import estimate
from orchestrator.records.message import Message
from orchestrator.records.usage import Usage
from orchestrator.spec.scripts import Conversation, Other, Script, ScriptedCall, ScriptedUsage, Turn

_SEARCHED = 64 << 10
"""Characters at the end of a message that ``expect`` and ``match`` are searched in."""
_QUOTED = 200
"""Characters of it that a refusal quotes."""
_FRAMES = 8
"""Events of a stream that are sent at one time."""


class ScriptedProvider:
    """One trial's conversation."""

    retry = RetryPolicy(attempts=5, backoff_seconds=0.01)

    def __init__(self, script: Script, seed: int) -> None:
        self._seed = seed
        self._turns = _choose(script, seed).turns
        self._others = script.others

    def offers(self, service: Service) -> bool:
        """Return whether models can be played in this shape: all but embeddings."""
        return service != "embeddings"

    async def attempt(self, call: ModelCall) -> dict[str, Any]:
        """Return the turn that the request has come to. Raises ProviderError."""
        messages = [call.dialect.message(item) for item in call.dialect.items(call.body)]
        return call.dialect.answer(call.body, self._said(call, messages))

    async def stream(self, call: ModelCall) -> AsyncGenerator[list[ServerEvent], None]:
        """Yield the same in several parts. Raises ProviderError."""
        events = iter(call.dialect.events(await self.attempt(call)))
        while part := list(itertools.islice(events, _FRAMES)):
            yield part

    async def count_tokens(self, call: ModelCall) -> dict[str, Any]:
        """Return an estimate: four characters a token."""
        return {"input_tokens": _size(call)}

    def _said(self, call: ModelCall, messages: Sequence[Message]) -> Said:
        for number, other in enumerate(self._others):
            if _matches(other, messages):
                return self._saying(call, f"other {number}", f"side{number}", other)
        index = _answers(call.dialect, messages)
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
        return self._saying(call, str(index), str(index + 1), turn)

    def _saying(self, call: ModelCall, place: str, prefix: str, says: Turn | Other) -> Said:
        name = hashlib.sha256(f"{self._seed}\0{place}".encode()).hexdigest()[:24]
        return Said(
            id=f"scripted-{name}",
            model=call.model,
            text=says.text,
            calls=tuple(_call(prefix, number, each) for number, each in enumerate(says.calls, 1)),
            tokens=_tokens(call, says.text, says.calls, says.usage),
        )


def _choose(script: Script, seed: int) -> Conversation:
    total = sum(conversation.weight for conversation in script.conversations)
    digest = hashlib.sha256(f"orchestrate/conversation/v1\0{seed}".encode()).digest()
    point = int.from_bytes(digest[:8], "big") / 2**64 * total
    for conversation in script.conversations:
        point -= conversation.weight
        if point < 0:
            return conversation
    return script.conversations[-1]


def _answers(dialect: Dialect, messages: Sequence[Message]) -> int:
    """Return how many answers of the model a conversation holds. In the Responses API one answer is several entries in a row."""
    own = [message["role"] == "assistant" for message in messages]
    if dialect.name != "responses":
        return sum(own)
    return sum(now and not before for before, now in itertools.pairwise([False, *own]))


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


def _matches(other: Other, messages: Sequence[Message]) -> bool:
    """Return whether a request is the side call: by its instructions, or by its last message."""
    instructions = [_text(message) for message in messages if message["role"] in {"system", "developer"}]
    return any(re.search(other.match, text[-_SEARCHED:], re.MULTILINE) for text in [*instructions, _last(messages)])


def _fault(status: int) -> ProviderError:
    msg = f"the script answers with status {status} here"
    return ProviderError(status, msg, code="script_fault", retryable=is_retryable(status), ours=is_ours(status))


def _call(prefix: str, number: int, call: ScriptedCall) -> tuple[str, str, str]:
    return f"call_{prefix}_{number}", call.name, orjson.dumps(call.arguments).decode()


def _tokens(call: ModelCall, text: str, calls: Iterable[ScriptedCall], usage: ScriptedUsage | None) -> Usage:
    if usage is not None:
        return Usage(uncached_input=usage.input, output=usage.output)
    said = len(text) + sum(len(each.name) + len(orjson.dumps(each.arguments)) for each in calls)
    return Usage(uncached_input=_size(call), output=estimate(0, said).output)


def _size(call: ModelCall) -> int:
    return estimate(len(orjson.dumps(call.dialect.items(call.body))), 0).uncached_input


def _ends_with(messages: Sequence[Message]) -> str:
    """Return how the last message ends, escaped, for who wrote the script."""
    text = _last(messages).strip()
    if not text:
        return "the last message has no text" if messages else "there is no message"
    return f"the last message ends with: {'…' if len(text) > _QUOTED else ''}{text[-_QUOTED:]!r}"


def _last(messages: Sequence[Message]) -> str:
    return _text(messages[-1]) if messages else ""


def _text(message: Message) -> str:
    """Return what a message says, results of tools included."""
    said = [
        part["text"] if part["type"] == "text" else part["content"]
        for part in message["parts"]
        if part["type"] in {"text", "tool_result"}
    ]
    return "\n".join(said)
