"""What every model provider does: one attempt of one call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class RetryPolicy:
    """How often a call is tried, and how long to pause between."""

    attempts: int
    backoff_seconds: float


@dataclass(frozen=True)
class ModelCall:
    """One call as it goes to a provider."""

    body: dict[str, Any]
    """The request, with the provider's own name of the model."""
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


class Provider(Protocol):
    """One source of models."""

    retry: RetryPolicy

    async def attempt(self, call: ModelCall) -> dict[str, Any]:
        """Return the response, an object in the shape of ``/v1/chat/completions``. Raises ProviderError."""
        ...


RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})


def is_retryable(status: int) -> bool:
    """Return whether a status means that the same request may succeed later."""
    return status in RETRYABLE_STATUSES or status >= 500


def is_ours(status: int) -> bool:
    """Return whether a status is no act of the agent: passing failures, redirections, and keys that do not work."""
    return is_retryable(status) or status in {401, 402, 403} or status < 400
