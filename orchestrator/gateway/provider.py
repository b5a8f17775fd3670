"""What every model provider does: one attempt of one call, whole or as a stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from orchestrator.gateway.dialects.base import Dialect, ServerEvent
from orchestrator.records.message import Endpoint

Service = Endpoint | Literal["count_tokens"]
"""What a provider may offer."""


TIMED_OUT = "provider_timeout"
"""Code of an attempt that was sent and whose answer did not come in time: the provider may have worked, and charges for it."""
ENDLESS = "answer_too_long"
"""Code of a stream that goes on when the time for one is over."""
GARBLED = "provider_garbled"
"""Code of an answer that is none."""
MOST_TIMED_OUT = 2
"""Attempts of one call that may time out: what takes too long takes as long again, and is paid again."""


@dataclass(frozen=True)
class RetryPolicy:
    """How often a call is tried, and how long to pause between."""

    attempts: int
    backoff_seconds: float


@dataclass(frozen=True)
class ModelCall:
    """One call of an agent, for a provider."""

    dialect: Dialect
    body: Mapping[str, Any]
    """The request as the agent sent it."""
    model: str
    """The provider's own name of the model."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """What goes along of the agent's headers."""
    attempt: int = 0
    """Number of the attempt, from 0."""


class ProviderError(Exception):
    """An attempt failed. ``retryable`` and ``ours`` say what follows."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        retryable: bool = False,
        ours: bool = True,
        retry_after_s: float | None = None,
        charged_characters: int = 0,
    ) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status of the provider; 0 when there was none."""
        self.message = message
        self.code = code
        self.retryable = retryable
        """Whether another attempt may go better."""
        self.ours = ours
        """False: the request itself is at fault, so the agent gets the error. True: it is no act of the agent."""
        self.retry_after_s = retry_after_s
        self.charged_characters = charged_characters
        """Size of an answer that came and cannot be passed on: it has been used and must be paid for."""

    @property
    def overload(self) -> bool:
        """Whether the provider says that it gets too many calls."""
        return self.status in _OVERLOADED or self.code in _OVERLOAD_CODES

    @property
    def context(self) -> bool:
        """Whether the conversation is longer than the model takes."""
        said = self.message.lower()
        return not self.ours and (self.code in _CONTEXT_CODES or any(words in said for words in _CONTEXT_WORDS))


class Provider(Protocol):
    """One source of models."""

    retry: RetryPolicy

    def offers(self, service: Service) -> bool:
        """Return whether calls of this shape can be sent to it."""
        ...

    async def attempt(self, call: ModelCall) -> dict[str, Any]:
        """Return the answer, an object in the call's dialect. Raises ProviderError."""
        ...

    def stream(self, call: ModelCall) -> AsyncGenerator[list[ServerEvent], None]:
        """Yield the events of the answer as they come. Raises ProviderError."""
        ...

    async def count_tokens(self, call: ModelCall) -> dict[str, Any]:
        """Return the answer to a question for the number of tokens of a request. Raises ProviderError."""
        ...


RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})
_OVERLOADED = frozenset({429, 529})
_OVERLOAD_CODES = frozenset({"overloaded_error", "rate_limit_error", "rate_limit_exceeded", "throttlingException"})
_CONTEXT_CODES = frozenset({"context_length_exceeded", "context_window_exceeded", "model_context_window_exceeded"})
_CONTEXT_WORDS = (
    "prompt is too long",
    "input is too long",
    "maximum context length",
    "exceed context limit",
    "context window",
)
"""How providers say it that have no code of its own for it."""
_MOST_CODE = 100
_REQUEST_CODES = (
    "invalid_",
    "image_",
    "empty_image",
    "failed_to_download_image",
    "unsupported_",
    "content_policy",
    "data_inspection_failed",
    "BadRequest",
    "ResponsibleAIPolicyViolation",
)
"""Beginnings of words for what is wrong with a request, such as an image that is none: nothing that passes, and an act of the agent."""
_MODERATED = frozenset(
    {
        "content_filter",
        "content_policy_violation",
        "data_inspection_failed",
        "DataInspectionFailed",
        "flagged_input",
        "invalid_prompt",
        "moderation_blocked",
        "refusal",
        "ResponsibleAIPolicyViolation",
    }
)
"""Words of OpenAI, Azure, OpenRouter and Alibaba for it, whole: beginnings of them stand for keys and countries, too."""
_STATUS_OF_CODE = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "billing_error": 402,
    "insufficient_quota": 429,
    "request_too_large": 413,
    "throttlingException": 429,
    "validationException": 400,
}


def is_retryable(status: int) -> bool:
    """Return whether a status means that the same request may succeed later."""
    return status in RETRYABLE_STATUSES or status >= 500


def is_ours(status: int) -> bool:
    """Return whether a status is no act of the agent: passing failures, redirections, and keys that do not work."""
    return is_retryable(status) or status in {401, 402, 403} or status < 400


def is_moderated(code: str | None) -> bool:
    """Return whether a typed word says that moderation has refused a request, or stopped its answer."""
    return code in _MODERATED


def status_of(code: str | None) -> int:
    """Return the HTTP status that fits a provider's word for an error that it told inside of a stream."""
    code = code or ""
    if code in _STATUS_OF_CODE:
        return _STATUS_OF_CODE[code]
    if code in _CONTEXT_CODES or code.startswith(_REQUEST_CODES) or "content_filter" in code:
        return 400
    if len(code) == 3 and code.isdecimal() and 400 <= int(code) < 600:
        return int(code)
    return 500


def told_in_stream(name: str, code: str | None, message: str) -> ProviderError:
    """Return the error that a provider has told inside of a stream."""
    status, code = status_of(code), code and code[:_MOST_CODE]
    said = message if not is_ours(status) else ""
    text = f"provider {name} ended its answer with {code or 'an error'}" + (f": {said}" if said else "")
    return ProviderError(status, text, code=code, retryable=is_retryable(status), ours=is_ours(status))
