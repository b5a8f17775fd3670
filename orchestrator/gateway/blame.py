"""Whose act a provider's error is: the agent's, whose request nobody will ever take, or nobody's here: an outage, a key, a bill.

An outage taken for an act of the agent would be the agent's score; an act taken for an outage would buy another launch. So what decides is
what the provider has typed: the status, the words of ``code`` and ``type``, AWS's header. Messages decide in two cases only, where there is
no typed word, and there only as a whole sentence: providers repeat pieces of a request in their messages, names of fields at the very
beginning, so words somewhere in them prove nothing.

Sources: OpenAI "Error codes" and "Rate limits"; Anthropic "Errors"; Azure OpenAI "Content filtering"; OpenRouter "Errors and debugging";
Amazon Bedrock "Troubleshooting API error codes".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.gateway.dialects.shape import parsed
from orchestrator.gateway.provider import is_moderated, is_ours, is_retryable

_MOST_MESSAGE = 2000
_MOST_CODE = 100
_FLAGGED = "flagged_input"
"""Field of ``metadata`` by which OpenRouter says that it was moderation, where its code is a number. Only that it is there counts."""
_AWS_TYPE = "x-amzn-ErrorType"
_KEYS_AND_BILLS = frozenset(
    {
        "authentication_error",
        "billing_error",
        "billing_hard_limit_reached",
        "billing_not_active",
        "insufficient_quota",
        "invalid_api_key",
        "permission_error",
        "AccessDeniedException",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "NotAuthorized",
        "RequestExpired",
        "ServiceQuotaExceededException",
        "ThrottlingException",
        "UnrecognizedClientException",
    }
)
"""What is ours also where the status is 400."""
_PASSING = frozenset({"ServiceQuotaExceededException", "ThrottlingException"})
"""Of these, what another attempt may find better."""
_UNPAID = re.compile(
    r"Your credit balance is too low[^:]{0,200}"
    r"|You have reached your specified [a-z ]{0,20}API usage limits\.(?: You will regain access on [\d-]{10} at [\d:]{5} UTC\.)?"
    r"|This organization has been disabled\."
)
"""Anthropic's 400 ``invalid_request_error`` for bills. What begins with a field's name goes on with a colon."""
_TOO_LARGE = re.compile(r"Request too large for .{1,200}?: Limit (\d{1,12}), Requested (\d{1,12})\. ")
"""OpenAI's 429 for a request larger than all that may be sent in a minute. Of the request it holds the model's name, which is ours."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a provider says of an error. All of it is untrusted."""

    message: str = ""
    code: str | None = None
    """Its most exact typed word."""
    words: frozenset[str] = frozenset()
    """All of them."""


@dataclass(frozen=True, kw_only=True)
class Blame:
    """What follows from an error."""

    status: int
    """What the agent gets where it is its own."""
    is_ours: bool
    is_retryable: bool
    """Whether the same request may succeed later."""


def told(data: bytes, headers: Mapping[str, str]) -> Told:
    """Read the body of an error, decoded, so that no escape can carry a secret past a filter; the headers know Bedrock's type."""
    error = _error(data)
    if isinstance(error, str):
        return Told(message=error[:_MOST_MESSAGE])
    aws = headers.get(_AWS_TYPE, "").partition(":")[0]
    inner, more = _object(error.get("innererror")), _object(error.get("metadata"))
    flagged = _FLAGGED if _FLAGGED in more else None
    typed = [error.get("code"), aws, flagged, error.get("type"), inner.get("code")]
    words = [word[:_MOST_CODE] for word in typed if isinstance(word, str) and word]
    message = error.get("message")
    return Told(
        message=message[:_MOST_MESSAGE] if isinstance(message, str) else "",
        code=words[0] if words else None,
        words=frozenset(words),
    )


def blame(status: int, said: Told) -> Blame:
    """Return whose act an error with this status (200 is none) is.

    Ours are passing failures (408, 429, 5xx), redirections, keys, permissions and bills. The agent's is every other 4xx, and of the former:
    403 with a typed word for moderation, and 429 where a request alone is larger than the limit, by the provider's own numbers.
    """
    if status == 403 and any(map(is_moderated, said.words)):
        return Blame(status=403, is_ours=False, is_retryable=False)
    if status == 429 and _is_too_large(said):  # clients ask again after a 429, and this never passes
        return Blame(status=413, is_ours=False, is_retryable=False)
    is_bill = bool(said.words & _KEYS_AND_BILLS) or (status == 400 and _UNPAID.fullmatch(said.message) is not None)
    may_pass = is_retryable(status) or bool(said.words & _PASSING)
    return Blame(status=status, is_ours=is_ours(status) or is_bill, is_retryable=may_pass)


def _is_too_large(said: Told) -> bool:
    found = _TOO_LARGE.match(said.message) if said.code == "rate_limit_exceeded" else None
    return found is not None and 0 < int(found[1]) < int(found[2])


def _error(data: bytes) -> dict[str, Any] | str:
    try:
        value = parsed(data)  # what it repeats of a request may be cut anywhere
    except ValueError:
        return {}
    value = value[0] if isinstance(value, list) and value else value
    error = value.get("error", value) if isinstance(value, dict) else {}
    return error if isinstance(error, dict | str) else {}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
