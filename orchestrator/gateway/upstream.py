"""Providers that are asked over HTTP: those that speak OpenAI's API, and Anthropic's.

A key is in the header of its request and nowhere else: not in errors, logs or answers. What a provider sends is bounded: its size, its
depth, and how long it may be silent. Redirections are not followed, and nothing is unpacked.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Protocol
from urllib.parse import urlencode

import aiohttp
import orjson
from yarl import URL

from orchestrator.gateway.blame import blame, told
from orchestrator.gateway.body import within_depth
from orchestrator.gateway.config import ProviderConfig
from orchestrator.gateway.dialects.base import Dialect, ServerEvent
from orchestrator.gateway.dialects.shape import TooDeepError, parsed
from orchestrator.gateway.dialects.sse import EventParser
from orchestrator.gateway.provider import (
    ENDLESS,
    GARBLED,
    TIMED_OUT,
    ModelCall,
    ProviderError,
    RetryPolicy,
    Service,
)

MOST_BYTES = 32 << 20
"""Of one answer."""
MOST_DEPTH = 100
"""Levels of its JSON."""
_FED_BYTES = 16 << 10
"""Of a stream that are looked at before others have their turn."""
_LARGE = 1 << 20
"""Bytes of an answer from which on it is read beside the loop: log probabilities of a long one are millions of values."""
_HIDDEN = "[hidden]"
_COUNT_TOKENS = "/messages/count_tokens"


@dataclass(frozen=True)
class Sending:
    """One request as it goes over the wire."""

    url: str
    data: bytes
    headers: dict[str, str]


class Decoder(Protocol):
    """Finds the events in the bytes of a stream."""

    def feed(self, data: bytes) -> list[ServerEvent]:
        """Take more bytes and return the events that are whole now. Raises ValueError."""
        ...

    def end(self) -> ServerEvent | None:
        """Return an event that the end of the stream ends."""
        ...


class HttpProvider:
    """One configured provider, shared by all launches."""

    services: frozenset[Service] = frozenset({"chat", "responses", "embeddings"})
    """What it offers unless its configuration says something else."""
    stream_type = "text/event-stream"

    def __init__(self, name: str, config: ProviderConfig, session: aiohttp.ClientSession) -> None:
        self.name = name
        self.retry = RetryPolicy(config.attempts, config.backoff_seconds)
        self._config = config
        self._session = session
        self._secrets = tuple(secret.encode() for secret in config.secrets)
        self._aside = asyncio.Semaphore(1)

    def offers(self, service: Service) -> bool:
        """Return whether calls of this shape can be sent to it."""
        chosen = self._config.endpoints
        if chosen is None:
            return service in self.services
        return service in chosen or (service == "count_tokens" and "messages" in chosen)

    async def attempt(self, call: ModelCall) -> dict[str, Any]:
        """Send the request once. Raises ProviderError, whose text holds no secret."""
        sending = await self.sending(call, call.dialect.outgoing(call.body, call.model), call.dialect.upstream)
        return await self._ask(sending, call.dialect.is_answer)

    async def count_tokens(self, call: ModelCall) -> dict[str, Any]:
        """Ask once for the number of tokens. Raises ProviderError."""
        sending = await self.sending(call, {**call.body, "model": call.model}, _COUNT_TOKENS)
        return await self._ask(sending, lambda found: isinstance(found.get("input_tokens"), int))

    async def stream(self, call: ModelCall) -> AsyncGenerator[list[ServerEvent], None]:
        """Send the request once and yield what comes. Raises ProviderError, whose text holds no secret."""
        sending = await self.sending(call, call.dialect.outgoing(call.body, call.model), call.dialect.upstream)
        size = 0
        async with self._open(sending, self.stream_type, self._config.stream_seconds) as response:
            if response.status != 200:
                raise self._error(response, await self._read(response))
            if "json" in response.content_type:
                msg = f"provider {self.name} did not stream its answer"
                raise ProviderError(200, msg, code=GARBLED, retryable=True)
            decoder = self.decoder()
            async for data in response.content.iter_any():
                size += len(data)
                if size > MOST_BYTES:
                    raise _too_large(self.name, size)
                for begin in range(0, len(data), _FED_BYTES):
                    if begin:
                        await asyncio.sleep(0)  # of lines without anything in them there can be very many
                    try:
                        events = decoder.feed(data[begin : begin + _FED_BYTES])
                    except ValueError:
                        msg = f"provider {self.name} sent something that is no stream of events"
                        raise ProviderError(200, msg, code=GARBLED, retryable=True) from None
                    if events:
                        yield self._hidden(events)
            if (last := decoder.end()) is not None:
                yield self._hidden([last])

    async def sending(self, call: ModelCall, body: dict[str, Any], path: str) -> Sending:
        """Return the request for a call. Raises ProviderError when there is nothing to show the provider."""
        url = self._config.base_url.rstrip("/") + path
        if self._config.query:
            url += f"?{urlencode(self._config.query)}"
        headers = {**call.headers, **self.credentials(call.dialect)}
        return Sending(url, orjson.dumps(body), headers)

    def credentials(self, dialect: Dialect) -> dict[str, str]:
        """Return the headers that show the key."""
        del dialect
        return {} if self._config.key is None else {"Authorization": f"Bearer {self._config.key.get_secret_value()}"}

    def decoder(self) -> Decoder:
        """Return what reads one stream."""
        return EventParser(MOST_BYTES)  # some answers repeat a request of any size in one event

    async def _ask(self, sending: Sending, is_answer: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any]:
        async with self._open(sending, "application/json", self._config.timeout_seconds) as response:
            data = await self._read(response)
            if response.status != 200:
                raise self._error(response, data)
        if len(data) < _LARGE:
            return self._answer(data, is_answer)
        async with self._aside:  # one at one time: what is made of it in memory is many times as large
            return await asyncio.to_thread(self._answer, data, is_answer)

    @asynccontextmanager
    async def _open(self, sending: Sending, accept: str, total_s: float) -> AsyncIterator[aiohttp.ClientResponse]:
        quiet_s = self._config.timeout_seconds
        headers = {
            "Content-Type": "application/json",
            "Accept": accept,
            "Accept-Encoding": "identity",
            **sending.headers,
            **{name: value.get_secret_value() for name, value in self._config.headers.items()},
        }
        try:
            async with self._session.post(
                URL(sending.url, encoded=True),  # a signature holds for the address as it is spelled
                data=sending.data,
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=total_s, sock_connect=min(10, quiet_s), sock_read=quiet_s),
            ) as response:
                if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                    msg = f"provider {self.name} compressed its answer, which it was not asked for"
                    raise ProviderError(response.status, msg, code=GARBLED, retryable=True)
                yield response
        except aiohttp.ConnectionTimeoutError:
            msg = f"provider {self.name} could not be reached: no connection came about in time"
            raise ProviderError(0, msg, code="provider_unreachable", retryable=True) from None
        except TimeoutError as error:
            msg = f"provider {self.name} was silent for {quiet_s:g} s, or took more than {total_s:g} s in all"
            is_endless = accept == self.stream_type and not isinstance(error, aiohttp.ServerTimeoutError)
            raise ProviderError(0, msg, code=ENDLESS if is_endless else TIMED_OUT, retryable=not is_endless) from None
        except (aiohttp.ClientError, OSError, ValueError, asyncio.IncompleteReadError) as error:
            msg = f"provider {self.name} could not be reached: {_why(error)}"
            raise ProviderError(0, msg, code="provider_unreachable", retryable=True) from None

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in response.content.iter_any():
            size += len(part)
            if size > MOST_BYTES:
                raise _too_large(self.name, size)
            parts.append(part)
        return b"".join(parts)

    def _answer(self, data: bytes, is_answer: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any]:
        try:
            value = parsed(self._hide(data))
        except TooDeepError:
            raise too_deep(self.name, len(data)) from None
        except ValueError:
            msg = f"provider {self.name} sent an answer that is not JSON ({len(data)} bytes)"
            raise ProviderError(200, msg, code=GARBLED, retryable=True) from None
        if not isinstance(value, dict) or not is_answer(value):
            msg = f"provider {self.name} sent an answer that is none of this API"
            raise ProviderError(200, msg, code=GARBLED, retryable=True)
        if not within_depth(value, MOST_DEPTH):
            raise too_deep(self.name, len(data))
        return value

    def _error(self, response: aiohttp.ClientResponse, data: bytes) -> ProviderError:
        said = told(data, response.headers)
        found = blame(response.status, said)
        message, code = f"provider {self.name} answered with status {response.status}", None
        if not found.is_ours:
            message += f": {said.message}" if said.message else ""
            code = said.code
        return ProviderError(
            found.status,
            self._hide(message.encode("utf-8", "replace")).decode(),
            code=self._hide(code.encode("utf-8", "replace")).decode() if code else None,
            retryable=found.is_retryable,
            ours=found.is_ours,
            retry_after_s=_retry_after(response.headers.get("Retry-After")),
        )

    def _hidden(self, events: list[ServerEvent]) -> list[ServerEvent]:
        return [self._cleaned(event) for event in events] if self._secrets else events

    def _cleaned(self, event: ServerEvent) -> ServerEvent:
        data = event.data.encode("utf-8", "replace")
        clean = self._hide(data)
        return event if clean is data else ServerEvent(clean.decode(), event.event)

    def _hide(self, data: bytes) -> bytes:
        for secret in self._secrets:
            if secret in data:
                data = data.replace(secret, _HIDDEN.encode())
        return data


class AnthropicProvider(HttpProvider):
    """Anthropic's API: Messages natively, and Chat Completions at its compatible address."""

    services = frozenset({"messages", "count_tokens", "chat"})
    version = "2023-06-01"
    """Of the Messages API: what is sent unless the agent names one."""

    def credentials(self, dialect: Dialect) -> dict[str, str]:
        """Return the headers that show the key."""
        if dialect.name != "messages":
            return super().credentials(dialect)
        return {} if self._config.key is None else {"x-api-key": self._config.key.get_secret_value()}

    async def sending(self, call: ModelCall, body: dict[str, Any], path: str) -> Sending:
        """Return the request for a call."""
        sending = await super().sending(call, body, path)
        if call.dialect.name == "messages":
            sending.headers.setdefault("anthropic-version", self.version)
        return sending


def _too_large(name: str, size: int) -> ProviderError:
    # How much is answered is up to the request (its token limit, log probabilities), and another attempt would get as much.
    msg = f"provider {name} sent an answer of more than {MOST_BYTES} bytes; ask for less"
    return ProviderError(413, msg, code="answer_too_large", ours=False, charged_characters=size)


def too_deep(name: str, size: int) -> ProviderError:
    """Return the error for an answer that nests too deep: arguments do as the agent wants, and another attempt would be no other."""
    msg = f"provider {name} sent an answer that nests deeper than {MOST_DEPTH} levels; ask for less depth"
    return ProviderError(422, msg, code="answer_too_deep", ours=False, charged_characters=size)


def _why(error: Exception) -> str:
    """Return what failed in words of ours: the exception's own text may quote what was sent, headers included."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "no machine of that name was found"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted here"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return type(error).__name__


def _retry_after(value: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header (RFC 9110, 10.2.3), or None."""
    if value is None:
        return None
    if value.strip().isdigit():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError):
        return None
