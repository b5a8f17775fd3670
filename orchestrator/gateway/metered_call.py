"""One call of an agent to a model, in any dialect, whole or streamed: the budget, the attempts, the record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any, Literal

import orjson
from pydantic import JsonValue

from orchestrator.gateway.agent_stream import AgentStream
from orchestrator.gateway.calls import Route, Timing, Trying, with_retries
from orchestrator.gateway.dialects.base import ServerEvent, StreamError, StreamReader
from orchestrator.gateway.findings import printable
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.meter import BudgetSpentError
from orchestrator.gateway.provider import (
    ENDLESS,
    GARBLED,
    TIMED_OUT,
    ModelCall,
    ProviderError,
    is_moderated,
    told_in_stream,
)
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.transcript import Answered, Asked, Looked
from orchestrator.gateway.usage import costs_otherwise, estimate
from orchestrator.records.prices import priced
from orchestrator.records.usage import Usage
from orchestrator.settings import Price

_READ_ON_SECONDS = 60.0
"""How long a stream is read that nobody reads any more, for the tokens that it reports at its end."""
_PATIENT_SECONDS = 5.0
"""How long the reader of a stream may pause in all and nobody minds: a provider that gives a stream up after that is not to blame."""
_LEFT = "stream_left"
"""Code of a stream that was read on for so long."""
_ABORTED = "aborted"
"""Code of a call that was open when the trial, or this process, ended."""
_END = "[DONE]"
"""The last event of Chat Completions, where a provider sends it."""
_COUNTS_SECONDS = 2.0
"""How long a chat that is complete may take to report its tokens."""
_LONG_PART = 0.5
"""Of the time that a whole answer is waited for: one that takes longer than that is better asked for as a stream."""
_LINGER_SECONDS = 0.1
"""How long a provider may take to close a stream that has said that it is complete, so that its connection can be used again."""


class MeteredCall:
    """One call, from its place in the budget to its record."""

    def __init__(self, launch: Launch, route: Route, call: ModelCall, stream: AgentStream, size: int) -> None:
        """``size``: bytes of the request."""
        self._launch = launch
        self._route = route
        self._call = call
        self._stream = stream
        self._size = size
        self._is_stream = call.body.get("stream") is True and call.dialect.name != "embeddings"
        self._timing = Timing()
        self._reader: StreamReader | None = None
        self._began = 0.0
        self._first_token_s: float | None = None
        self._counted = 0
        """Tool calls of a stream that have been counted."""
        self._spent: BudgetSpentError | None = None
        """Why the rest of a stream is withheld."""
        self._told = False
        """The agent knows that it is."""
        self._unread_since: float | None = None
        self._settled = False
        self._number = 0
        """Of the attempt, from 0."""
        self._asked: Asked | None = None
        self._by_stream = route.model in launch.long_answers and self._may_be_streamed
        """A whole answer is asked for as a stream and put together here: as long as something comes, nothing has failed."""
        self._heard = 0
        """Events of the stream of this attempt that told no failure."""
        self._charged: Usage | None = None
        """What was used by a call that has failed and is charged all the same."""

    async def run(self) -> dict[str, Any] | None:
        """Return the answer; None when it has been streamed. Raises Refusal when nothing has been."""
        launch = self._launch
        if not launch.meter.may_ask:
            msg = "the provider has refused as many requests of this trial as may be sent"
            raise Refusal(429, "too_many_requests", msg, finding=True)
        try:
            await launch.meter.reserve()
        except BudgetSpentError as spent:
            raise budget_refusal(launch, spent) from None
        try:
            if launch.sealing:
                raise Refusal(403, "sealed", "the trial is over")
            async with launch.turns:
                dialect, body = self._call.dialect, self._call.body
                looked = await launch.buffered.pool.aside(self._size, lambda: launch.transcript.look(dialect, body))
                self._asked = launch.transcript.request(self._route.model, dialect, body, looked)
                await self._look_for_dates(looked)
                await asyncio.sleep(0)  # what is large took a while: the others have a turn
                answer = await self._answer()
                launch.trajectory.hand_over()  # what the agent knows of, the process after this one knows too
                return answer
        except ProviderError as error:
            refusal = await self._failed(error)
            launch.trajectory.hand_over()
        except asyncio.CancelledError:
            self._aborted()
            raise
        finally:
            if not self._settled:
                await launch.meter.settle(None)
        if not self._stream.begun:
            raise refusal
        await self._tell(refusal)
        return None

    async def _look_for_dates(self, looked: Looked) -> None:
        """Note when the request carries the real date although the task's clock is another."""
        launch, dates = self._launch, self._launch.dates
        if dates is None:
            return
        new = orjson.dumps([*looked.messages.values()])
        found = await launch.buffered.pool.aside(len(new), lambda: dates.found_in(new))
        if found is not None:
            launch.findings.add("clock_leak", f"a model request carries the real date, as {found!r}")

    async def _answer(self) -> dict[str, Any] | None:
        trying = Trying(self._launch.id, self._launch.clock, self._attempt_failed, lambda: self._shown)
        attempt = self._streamed if self._is_stream else self._whole
        return await with_retries(self._route, trying, self._timing, attempt)

    @property
    def _shown(self) -> bool:
        """Whether there is no way back: the agent has seen a part of the answer, or would have."""
        return self._stream.begun or self._spent is not None

    def _begin(self) -> None:
        """Begin an attempt, unless a limit was reached while the call waited. Raises Refusal."""
        try:
            self._launch.meter.check()
        except BudgetSpentError as spent:
            raise budget_refusal(self._launch, spent) from None
        self._began = time.monotonic()

    @property
    def _may_be_streamed(self) -> bool:
        return not self._is_stream and self._call.dialect.name != "embeddings"

    async def _whole(self, number: int) -> dict[str, Any]:
        self._begin()
        self._timing.is_whole = not self._by_stream
        if self._by_stream:
            answer = await self._put_together(number)
        else:
            answer = await self._route.provider.attempt(self._numbered(number))
        calls = await self._record(answer)
        try:
            self._launch.meter.take_tool_calls(len(calls))
        except BudgetSpentError as spent:
            raise budget_refusal(self._launch, spent) from None
        self._launch.tools.announced(calls)
        return answer

    async def _put_together(self, number: int) -> dict[str, Any]:
        """Return a whole answer that comes as a stream.

        A whole one that does not come in time may be long, which is the agent's choice, or its provider may hang. A stream tells which:
        its time-out is one of silence.
        """
        body = {
            name: value for name, value in self._call.body.items() if name != "stream_options"
        }  # nobody sees the stream
        call = replace(self._numbered(number), body={**body, "stream": True})
        self._begin_stream(reader := call.dialect.reader(call.body, is_shown=False))
        try:
            async with aclosing(self._route.provider.stream(call)) as parts:
                await self._follow(reader, parts)
        except ProviderError as error:
            if not self._is_about_streams(error):
                raise
            self._by_stream = False
            msg = f"{error.message}; it was asked for a stream since the answer had not come in time"
            raise ProviderError(error.status, msg, code="provider_streams_not", retryable=True) from None
        return reader.answer()

    def _is_about_streams(self, error: ProviderError) -> bool:
        """Return whether a provider refused, at once, a stream that it was not the agent who asked for.

        What comes of a stream that has begun is what it would be otherwise: too large, filtered, broken.
        """
        if self._timing.lost is None or self._heard or error.context or is_moderated(error.code):
            return False
        return not error.ours or error.code == GARBLED

    def _seen_alive(self) -> None:
        """Note that a stream goes on which was asked for since a whole answer had not come in time.

        As soon as it has taken as long as that, the provider has not hung, and what was lost was the beginning of a long answer.
        """
        lost, took_s = self._timing.lost, time.monotonic() - self._began
        if lost is None or took_s < lost.seconds * _LONG_PART:
            return
        self._launch.long_answers.add(self._route.model)
        if took_s >= lost.seconds:
            self._timing.found_work(self._launch.clock)

    def _begin_stream(self, reader: StreamReader) -> None:
        self._reader = reader
        self._first_token_s = None
        self._heard = 0

    async def _streamed(self, number: int) -> None:
        self._begin()
        self._launch.meter.return_tool_calls(self._counted)  # of an attempt that nobody has seen anything of
        self._counted = 0
        self._begin_stream(reader := self._call.dialect.reader(self._call.body))
        async with aclosing(self._route.provider.stream(self._numbered(number))) as parts:
            last = await self._follow(reader, parts)
            await self._complete(reader, last)
            with suppress(TimeoutError, ProviderError):
                async with asyncio.timeout(_LINGER_SECONDS):
                    await anext(parts, None)

    async def _follow(self, reader: StreamReader, parts: AsyncGenerator[list[ServerEvent], None]) -> list[ServerEvent]:
        """Pass a stream on up to where it says that it is complete, and return what comes from there on. Raises ProviderError."""
        last: list[ServerEvent] = []
        try:
            async with asyncio.timeout(None) as patience:
                async for events in parts:
                    shown = self._take(reader, events)
                    if not reader.done:
                        await self._show(shown)
                        continue
                    last += shown
                    if self._call.dialect.name != "chat" or events[-1].data == _END:
                        return last
                    # Token counts may come after the end that is told, and so may nothing at all.
                    patience.reschedule(asyncio.get_running_loop().time() + _COUNTS_SECONDS)
        except ProviderError as error:
            if not reader.done:
                raise self._too_long(reader) if error.code == ENDLESS and reader.characters else error from None
        except TimeoutError:
            if not reader.done:
                raise
        if not reader.done:
            msg = f"the answer of {self._route.model} broke off"
            raise ProviderError(200, msg, code="stream_broken", retryable=True)
        return last

    def _take(self, reader: StreamReader, events: Iterable[ServerEvent]) -> list[ServerEvent]:
        """Return what the agent gets for a part of a stream. Raises ProviderError."""
        shown: list[ServerEvent] = []
        try:
            for event in events:
                frames = reader.take(event)
                self._heard += 1
                if self._first_token_s is None and reader.characters + reader.calls:
                    self._first_token_s = time.monotonic() - self._began
                if self._is_stream and reader.calls > self._counted:
                    self._count_calls(reader)
                if self._spent is None:
                    shown += frames
        except StreamError as error:
            raise told_in_stream(self._route.model.partition("/")[0], error.code, error.message) from None
        except ValueError:
            msg = f"the answer of {self._route.model} is no stream of this API"
            raise ProviderError(200, msg, code=GARBLED, retryable=True) from None
        if reader.characters + reader.calls:
            self._seen_alive()
        # What came before the call that is too many is nothing by itself: where nothing was sent yet, the agent gets a plain refusal.
        return shown if self._spent is None or self._stream.begun else []

    def _too_long(self, reader: StreamReader) -> ProviderError:
        """Return the error for an answer without an end: its length is the agent's choice, and another attempt would be as long."""
        msg = f"the answer of {self._route.model} had not ended when the longest time for one was over; ask for less"
        return ProviderError(413, msg, code=ENDLESS, ours=False, charged_characters=reader.characters)

    def _count_calls(self, reader: StreamReader) -> None:
        """Count the tool calls that have begun, before the agent sees them; withhold all from one on that is too many."""
        new, self._counted = reader.calls - self._counted, reader.calls
        if self._spent is not None:
            return
        try:
            self._launch.meter.take_tool_calls(new)
            names = [call["name"] for call in self._call.dialect.reply(reader.answer()).calls]
            self._launch.tools.announced(names[len(names) - new :])
        except BudgetSpentError as spent:
            self._spent = spent

    async def _show(self, shown: list[ServerEvent]) -> None:
        """Give the agent a part of the answer. Raises ProviderError when nobody has read it for too long."""
        if not self._is_stream:
            return
        self._launch.trajectory.hand_over()  # whatever becomes of this process, the one after it knows that this call was made
        await self._stream.send(shown)
        if self._spent is not None and self._stream.begun:
            await self._tell(budget_refusal(self._launch, self._spent))
        if self._spent is None and not self._stream.gone:
            return
        self._unread_since = self._unread_since or time.monotonic()
        if time.monotonic() - self._unread_since > _READ_ON_SECONDS:
            msg = f"nobody reads the answer of {self._route.model} any more"
            raise ProviderError(200, msg, code=_LEFT, ours=False)

    async def _complete(self, reader: StreamReader, shown: list[ServerEvent]) -> None:
        """Record a stream that is complete, before its last frames let the agent go on. Raises Refusal."""
        await self._record(reader.answer())
        if self._spent is not None and not self._stream.begun:
            raise budget_refusal(self._launch, self._spent)
        await self._show(shown)
        if self._stream.stalled:
            self._launch.findings.add("slow_reader", "the agent kept a streamed answer waiting for too long")

    async def _record(self, answer: dict[str, Any], *, broken: bool = False) -> list[str | None]:
        """Count and record an answer. Returns the names of the tools that it asks for."""
        launch = self._launch
        reply = self._call.dialect.reply(answer)
        usage, estimated = self._usage(answer, reply.tokens, broken=broken)
        self._settled = True
        await launch.meter.settle(usage)
        self._timing.seconds = time.monotonic() - self._began
        answered = Answered(
            reply=reply,
            usage=usage,
            estimated=estimated,
            timing=self._timing,
            first_token_s=self._first_token_s,
            broken=broken,
            put_together=self._by_stream,
        )
        if self._asked is not None:
            launch.transcript.response(self._asked, answered)
        if reply.model is not None:
            launch.models.add(printable(reply.model, 200))
        launch.request_failure = None
        return [call["name"] for call in reply.calls]

    def _usage(self, answer: Mapping[str, Any], tokens: Usage | None, *, broken: bool) -> tuple[Usage, bool]:
        """Return what a call has used, and whether that is an estimate."""
        price = self._price(answer)
        if (
            tokens is not None and not tokens.total
        ):  # a request alone has some: nothing was counted, and no budget would ever end
            tokens = None
        if tokens is not None and not broken:
            return priced(tokens, price), False
        characters = self._reader.characters if self._reader is not None else len(orjson.dumps(answer))
        if broken:
            # The cost is estimated too: a provider's failure must not end the trial by a cost limit that an unknown cost breaks.
            self._launch.findings.add(
                "stream_broken", f"an answer of {self._route.model} broke off; its usage is estimated"
            )
            guess = self._estimate(characters)
            return priced(
                tokens.model_copy(update={"output": max(tokens.output, guess.output)}) if tokens else guess, price
            ), True
        return self._guess(characters), True

    def _price(self, answer: Mapping[str, Any]) -> Price | None:
        price, why = self._launch.body.prices.get(self._route.model), costs_otherwise(answer)
        if price is None or why is None:
            return price
        self._launch.findings.add("price_unknown", f"what {self._route.model} answered {why}: its cost is not known")
        return None

    def _guess(self, characters: int) -> Usage:
        said = f"{self._route.model} reported no usable token counts; they are estimated"
        self._launch.findings.add("usage_missing", said)
        return self._estimate(characters)

    def _estimate(self, characters: int) -> Usage:
        return estimate(len(orjson.dumps(self._call.dialect.items(self._call.body))), characters)

    async def _failed(self, error: ProviderError) -> Refusal:
        """Settle a call that has failed for good, and return what the agent is told."""
        launch = self._launch
        if self._shown and self._reader is not None:
            if not self._settled:
                await self._record(self._reader.answer(), broken=True)
            if self._spent is not None:
                return budget_refusal(launch, self._spent)
            if error.ours and self._stream.paused_s > _PATIENT_SECONDS:
                launch.findings.add("slow_reader", "the agent kept a streamed answer waiting, and it broke off")
                launch.request_failure = "model_request_error"
                return Refusal(403, "stream_broken", error.message, code=error.code)
            if error.ours:  # the next call may go better, but a trial that ends on this one is not the agent's
                launch.request_failure = "model_api_error"
                return Refusal(502, "model_api_error", error.message, code=error.code)
        elif self._charged is not None:
            self._settled = True
            await launch.meter.settle(self._charged)
        if error.code == _LEFT:
            return Refusal(403, "stream_left", error.message)
        if error.ours:
            launch.end("model_api_error")
            return Refusal(502, "model_api_error", f"{error.message}; the trial ends now", code=error.code)
        launch.meter.take_side_call()
        launch.request_failure = _request_failure(error)
        return Refusal(error.status, "model_request_error", error.message, code=error.code)

    def _aborted(self) -> None:
        """Only a seal cancels. The provider may have worked and charged: the cost is not known."""
        if not self._began:
            return
        launch = self._launch
        self._charged = self._estimate(self._reader.characters) if self._reader is not None else Usage()
        launch.meter.add(self._charged)
        said = "a model call was open when the trial ended; its usage is not known"
        launch.findings.add("call_aborted", said)
        self._attempt_failed(self._number, ProviderError(0, said, code=_ABORTED), True)

    def _attempt_failed(self, attempt: int, error: ProviderError, is_last: bool) -> None:
        data: dict[str, JsonValue] = {
            "request": self._asked.event if self._asked is not None else None,
            "attempt": attempt,
            "status": error.status,
            "code": error.code,
            "message": error.message,
            "failure": _failure(error) if is_last else None,
        }
        used_up = error.charged_characters
        if self._by_stream and self._reader is not None and not error.ours:  # what nobody gets was written all the same
            used_up = max(used_up, self._reader.characters)
        if is_last and not (self._shown and self._reader is not None) and used_up:
            self._charged = self._guess(used_up)
        used = self._charged
        if error.code == TIMED_OUT and not self._shown:
            used = self._timed_out()
            self._by_stream = self._may_be_streamed
        if used is not None:
            data["tokens"] = used.model_dump(mode="json")
        self._launch.trajectory.append("model_error", "gateway", data)

    def _timed_out(self) -> Usage:
        """Count an attempt whose answer nobody waits for any more: by its request, since of the answer nothing is known."""
        price = self._launch.body.prices.get(self._route.model)
        used = priced(self._estimate(self._reader.characters if self._reader is not None else 0), price)
        self._launch.meter.add(used)
        said = f"an answer of {self._route.model} did not come in time; its request is counted by its size"
        self._launch.findings.add("call_timed_out", said)
        return used

    async def _tell(self, refusal: Refusal) -> None:
        """Say in a stream that it has failed, once."""
        if self._told:
            return
        self._told = True
        self._launch.refused(refusal, f"POST {self._call.dialect.path}")
        await self._stream.send(self._call.dialect.error_events(refusal.kind, refusal.code, refusal.message))

    def _numbered(self, attempt: int) -> ModelCall:
        call, self._number = self._call, attempt
        return ModelCall(call.dialect, call.body, call.model, call.headers, attempt)


def _failure(error: ProviderError) -> str:
    """Return the word for how a call has failed."""
    if error.code in {_LEFT, _ABORTED}:
        return str(error.code)
    return "model_api_error" if error.ours else _request_failure(error)


def _request_failure(error: ProviderError) -> Literal["context_exhausted", "model_request_error"]:
    return "context_exhausted" if error.context else "model_request_error"


def budget_refusal(launch: Launch, spent: BudgetSpentError) -> Refusal:
    """Note that a launch has reached a limit, and return what its agent is told."""
    launch.spend(spent.reason)
    return Refusal(403, "budget_exhausted", str(spent), code=spent.reason)
