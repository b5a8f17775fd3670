"""A provider that speaks ``/v1/chat/completions``. The key is in the header and nowhere else: not in errors, logs or answers."""

from __future__ import annotations

import asyncio
import os
import time
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
import orjson

from orchestrator.gateway.body import within_depth
from orchestrator.gateway.config import ProviderConfig
from orchestrator.gateway.provider import ModelCall, ProviderError, RetryPolicy, is_ours, is_retryable

_MOST_BYTES = 32 << 20
_MOST_DEPTH = 100
_MOST_MESSAGE = 2000
_HIDDEN = "[hidden]"


class OpenAIProvider:
    """One configured provider, shared by all launches."""

    def __init__(self, name: str, config: ProviderConfig, session: aiohttp.ClientSession) -> None:
        self.name = name
        self.retry = RetryPolicy(config.attempts, config.backoff_seconds)
        self._config = config
        self._session = session

    async def attempt(self, call: ModelCall) -> dict[str, Any]:
        """Send the request once. Raises ProviderError, whose text holds no secret."""
        try:
            async with (
                asyncio.timeout(self._config.timeout_seconds),
                self._session.post(
                    self._config.base_url.rstrip("/") + "/chat/completions",
                    data=orjson.dumps(call.body),
                    headers=self._headers(),
                    allow_redirects=False,
                ) as response,
            ):
                data = await _read(response, self.name)
                retry_after = _retry_after(response.headers.get("Retry-After"))
                status = response.status
        except TimeoutError:
            msg = f"provider {self.name} did not answer within {self._config.timeout_seconds:g} s"
            raise ProviderError(0, msg, code="provider_timeout", retryable=True) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            msg = f"provider {self.name} could not be reached: {_why(error)}"
            raise ProviderError(0, msg, code="provider_unreachable", retryable=True) from None
        if status != 200:
            raise self._error(status, data, retry_after)
        return self._answer(data)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._config.key is not None:
            headers["Authorization"] = f"Bearer {self._config.key.get_secret_value()}"
        return headers | {name: value.get_secret_value() for name, value in self._config.headers.items()}

    def _answer(self, data: bytes) -> dict[str, Any]:
        try:
            value = orjson.loads(self._hide(data))
        except orjson.JSONDecodeError:
            msg = f"provider {self.name} sent an answer that is not JSON ({len(data)} bytes)"
            raise ProviderError(200, msg, code="provider_garbled", retryable=True) from None
        choices = value.get("choices") if isinstance(value, dict) else None
        if not isinstance(choices, list) or not choices or not within_depth(value, _MOST_DEPTH):
            msg = f"provider {self.name} sent an answer without choices"
            raise ProviderError(200, msg, code="provider_garbled", retryable=True)
        found: dict[str, Any] = value
        return found

    def _error(self, status: int, data: bytes, retry_after: float | None) -> ProviderError:
        message, code = f"provider {self.name} answered with status {status}", None
        if not is_ours(status):
            said, code = _said(data)
            message += f": {said}" if said else ""
        message = self._hide(message.encode()).decode()
        code = self._hide(code.encode()).decode() if code else None
        return ProviderError(
            status,
            message,
            code=code,
            retryable=is_retryable(status),
            ours=is_ours(status),
            retry_after_s=retry_after,
        )

    def _hide(self, data: bytes) -> bytes:
        for secret in self._config.secrets:
            data = data.replace(secret.encode(), _HIDDEN.encode())
        return data


async def _read(response: aiohttp.ClientResponse, name: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > _MOST_BYTES:
            # How much is answered is up to the request (its token limit, log probabilities), and another attempt would get as much.
            msg = f"provider {name} sent an answer of more than {_MOST_BYTES} bytes; ask for less"
            raise ProviderError(413, msg, code="answer_too_large", ours=False, charged_characters=size)
        parts.append(part)
    return b"".join(parts)


def _why(error: Exception) -> str:
    """Return what failed in words of ours: the exception's own text may quote what was sent, headers included."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "no machine of that name was found"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted here"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return type(error).__name__


def _said(data: bytes) -> tuple[str, str | None]:
    """Return message and code of an error body, decoded first, so that no escape can carry a secret past the filter."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return "", None
    error = value.get("error") if isinstance(value, dict) else None
    if isinstance(error, str):
        return error[:_MOST_MESSAGE], None
    if not isinstance(error, dict):
        return "", None
    message, code = error.get("message"), error.get("code") or error.get("type")
    return (
        message[:_MOST_MESSAGE] if isinstance(message, str) else "",
        code[:100] if isinstance(code, str) else None,
    )


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
