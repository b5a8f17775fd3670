"""What a Kubernetes API server says when something fails, and what it means here: the one place that reads its errors.

The most specific entry wins: the words of the answer, else its reason, else its HTTP status; without an answer the class of the exception.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from math import inf
from typing import Any

import orjson

from orchestrator.errors import SandboxError
from orchestrator.sandbox.kubernetes.resources import Resource


class Remedy(StrEnum):
    """What helps."""

    RETRY = "retry"
    """The same again after a short, jittered pause."""
    BACK_OFF = "back_off"
    """The same again, and less of everything: the server pushes back."""
    REFRESH = "refresh"
    """A new token. ``Api`` does this itself, once for each request."""
    RELIST = "relist"
    """What was asked to go on from is forgotten: list again."""
    LOOK = "look"
    """A create whose outcome nobody knows: get it by its name first."""
    RESULT = "result"
    """An answer for the caller: there is none, there is one already, another was quicker."""
    FATAL = "fatal"
    """A person has to do something."""


@dataclass(frozen=True)
class Fault:
    """What an error of the API server means."""

    cause: str
    """Stable word of the ApiError."""
    remedy: Remedy
    advice: str = ""
    """What a person does when the remedy did not help."""
    patience_seconds: float = 0.0
    """For how long trying again makes sense, since the first time."""
    unsure: bool = False
    """The request may have been done all the same."""


class ApiError(SandboxError):
    """A request that did not succeed."""

    def __init__(
        self, message: str, *, fault: Fault, status: int = 0, reason: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message, cause=fault.cause)
        self.fault = fault
        self.status = status
        """HTTP status; 0 when no answer came."""
        self.reason = reason
        """Kubernetes' own word, such as ``AlreadyExists``; empty when it gave none."""
        self.retry_after = retry_after
        """Seconds that the server asked to wait."""


_MINUTES = 600.0
"""A control plane that is replaced or upgraded is back by then."""
_PASSING = 30.0
"""Rights and admission can be wrong for a moment after a restart of the API server or a change of rules."""

_UNREACHABLE = Fault("api_unreachable", Remedy.RETRY, "see whether the cluster is up and reachable from here", _MINUTES)
_LOST = replace(_UNREACHABLE, cause="api_lost", unsure=True)
_TIMEOUT = Fault(
    "api_timeout",
    Remedy.BACK_OFF,
    "the API server is overloaded or the network stalls: see both",
    _MINUTES,
    unsure=True,
)
_GARBLED = Fault(
    "api_garbled", Remedy.RETRY, "see any proxy or load balancer before the API server", _MINUTES, unsure=True
)
_TLS = Fault("api_tls", Remedy.RETRY, "correct certificate-authority and server of the kubeconfig", _PASSING)
_CLIENT = Fault("api_client", Remedy.FATAL, "correct server or proxy in the kubeconfig")
_UNAVAILABLE = Fault(
    "api_unavailable", Remedy.BACK_OFF, "see the API server's and etcd's health", _MINUTES, unsure=True
)
_THROTTLED = Fault(
    "api_throttled",
    Remedy.BACK_OFF,
    "lower kubernetes.creates_per_second or give its identity a larger share",
    _MINUTES,
)
_CREDENTIALS = Fault(
    "api_credentials", Remedy.REFRESH, "log in again, or correct user or token of the kubeconfig", _PASSING
)
_FORBIDDEN = Fault(
    "api_forbidden", Remedy.RETRY, "give this identity that right, or correct what the cluster's rules refuse", _PASSING
)
_NOT_FOUND = Fault("not_found", Remedy.RESULT)
_EXISTS = Fault("already_exists", Remedy.RESULT)
_CONFLICT = Fault("conflict", Remedy.RESULT)
_GONE = Fault("gone", Remedy.RELIST)
_INVALID = Fault("invalid", Remedy.FATAL, "the cluster refuses this object: correct task or settings")
_TOO_LARGE = Fault(
    "too_large", Remedy.FATAL, "the object is too large for the cluster: shorten the task's command or inputs"
)
_UNSUPPORTED = Fault(
    "api_unsupported", Remedy.FATAL, "this cluster's version cannot do it: `orchestrate doctor --backend kubernetes`"
)
_QUOTA = Fault("quota", Remedy.BACK_OFF, "wait for pods to end, or ask for a larger ResourceQuota", inf)
_QUOTA_BUSY = replace(_QUOTA, cause="quota_busy", patience_seconds=_MINUTES)
_QUOTA_SHAPE = Fault(
    "quota_shape", Remedy.FATAL, "the ResourceQuota wants a request or limit that the pod does not have"
)
_POD_SECURITY = Fault(
    "pod_security", Remedy.FATAL, "the namespace's Pod Security level refuses this pod: use the chart's namespaces"
)
_POLICY = Fault(
    "admission_denied", Remedy.FATAL, "a policy of the cluster refuses this pod: change what it names, or ask its owner"
)
_WEBHOOK = Fault(
    "admission_webhook",
    Remedy.BACK_OFF,
    "an admission webhook of the cluster does not answer: see its owner",
    _MINUTES,
    unsure=True,
)
_LIMIT_RANGE = Fault(
    "limit_range", Remedy.FATAL, "the namespace's LimitRange refuses the task's resources: change either"
)
_NAMESPACE = Fault(
    "namespace_missing", Remedy.RETRY, "install the chart, or correct the namespaces of the settings", _PASSING
)
_ENDING = Fault("namespace_terminating", Remedy.FATAL, "the namespace is being deleted: use another")
_PRIORITY = Fault(
    "priority_class_missing", Remedy.RETRY, "install the chart, or correct kubernetes.priority_class", _PASSING
)

WORDS: tuple[tuple[re.Pattern[str], Fault], ...] = tuple(
    (re.compile(pattern), fault)
    for pattern, fault in (
        (r"exceeded quota: ", _QUOTA),
        (r"failed quota: .*must specify", _QUOTA_SHAPE),
        (
            r"status unknown for quota|cannot be fulfilled on resourcequotas|evaluating quota|quota evaluation",
            _QUOTA_BUSY,
        ),
        (r"violates PodSecurity ", _POD_SECURITY),
        (r"ValidatingAdmissionPolicy .* denied request", _POLICY),
        (r"admission webhook .* denied the request", _POLICY),
        (r"failed calling webhook|failed to call webhook", _WEBHOOK),
        (r"(?:maximum|minimum) \S+ usage per |limit to request ratio per ", _LIMIT_RANGE),
        (r"because it is being terminated", _ENDING),
        (r"^namespaces \"[^\"]*\" not found", _NAMESPACE),
        (r"no PriorityClass with name", _PRIORITY),
    )
)
"""Meaning of an answer's own words, whatever its status. The first that is found wins."""

REASONS: dict[str, Fault] = {
    "Unauthorized": _CREDENTIALS,
    "Forbidden": _FORBIDDEN,
    "NotFound": _NOT_FOUND,
    "AlreadyExists": _EXISTS,
    "Conflict": _CONFLICT,
    "Gone": _GONE,
    "Expired": _GONE,
    "Invalid": _INVALID,
    "BadRequest": _INVALID,
    "ServerTimeout": _TIMEOUT,
    "Timeout": _TIMEOUT,
    "TooManyRequests": _THROTTLED,
    "InternalError": _UNAVAILABLE,
    "ServiceUnavailable": _UNAVAILABLE,
    "StorageReadError": _UNAVAILABLE,
    "RequestEntityTooLarge": _TOO_LARGE,
    "MethodNotAllowed": _UNSUPPORTED,
    "NotAcceptable": _UNSUPPORTED,
    "UnsupportedMediaType": _UNSUPPORTED,
}
"""Meaning of the reason that Kubernetes gives."""

STATUSES: dict[int, Fault] = {
    400: _INVALID,
    401: _CREDENTIALS,
    403: _FORBIDDEN,
    404: _NOT_FOUND,
    405: _UNSUPPORTED,
    406: _UNSUPPORTED,
    407: _CLIENT,
    408: _TIMEOUT,
    409: _CONFLICT,
    410: _GONE,
    412: _CONFLICT,
    413: _TOO_LARGE,
    415: _UNSUPPORTED,
    422: _INVALID,
    429: _THROTTLED,
    431: _TOO_LARGE,
    499: _LOST,
    501: _UNSUPPORTED,
    504: _TIMEOUT,
}
"""Meaning of an HTTP status that came without a reason, as from a proxy. Other 5xx: unavailable; anything else: garbled."""

CLASSES: dict[str, Fault] = {
    "ClientConnectorError": _UNREACHABLE,
    "ClientConnectorDNSError": _UNREACHABLE,
    "UnixClientConnectorError": _UNREACHABLE,
    "ClientProxyConnectionError": _UNREACHABLE,
    "ClientHttpProxyError": _CLIENT,
    "ClientSSLError": _TLS,
    "ClientConnectorSSLError": _TLS,
    "ClientConnectorCertificateError": _TLS,
    "SSLError": _TLS,
    "ServerFingerprintMismatch": _TLS,
    "ConnectionTimeoutError": replace(_UNREACHABLE, cause="api_timeout"),
    "SocketTimeoutError": _TIMEOUT,
    "ServerTimeoutError": _TIMEOUT,
    "TimeoutError": _TIMEOUT,
    "ServerConnectionError": _LOST,
    "ServerDisconnectedError": _LOST,
    "ClientOSError": _LOST,
    "ClientConnectionError": _LOST,
    "ClientConnectionResetError": _LOST,
    "ClientPayloadError": _LOST,
    "UploadAbortedError": _LOST,
    "OSError": _LOST,
    "ClientResponseError": _GARBLED,
    "ContentTypeError": _GARBLED,
    "WSServerHandshakeError": _GARBLED,
    "TooManyRedirects": _CLIENT,
    "RedirectClientError": _CLIENT,
    "NonHttpUrlRedirectClientError": _CLIENT,
    "InvalidUrlRedirectClientError": _CLIENT,
    "InvalidURL": _CLIENT,
    "InvalidUrlClientError": _CLIENT,
    "NonHttpUrlClientError": _CLIENT,
    "WSMessageTypeError": _GARBLED,
    "ClientError": _LOST,
    "ValueError": _GARBLED,
}
"""Meaning of an exception by the name of its class or of the nearest class above it. ValueError: the answer is not JSON."""


@dataclass(slots=True)
class Doing:
    """What was asked of the API server when it failed."""

    verb: str
    """``create``, ``get``, ``list``, ``watch``, …"""
    what: Resource | str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        what = self.what if isinstance(self.what, str) else self.what.words(self.namespace, self.name)
        return f"{self.verb} {what}"


@cache
def foreign() -> tuple[type[Exception], ...]:
    """Return what may come out of a request."""
    import aiohttp

    return (aiohttp.ClientError, TimeoutError, OSError, ValueError)


def refused(doing: Doing, status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """Return the error that an answer of the API server stands for. ``body`` is whatever came: a Status, or a proxy's page."""
    said = _status(body)
    if (code := said.get("code")) and status == 200:  # an ERROR event of a watch
        status = int(code)
    reason, text = str(said.get("reason") or ""), _line(str(said.get("message") or ""))
    fault = _answered(status, reason, text)
    words = (
        f"HTTP {status} {reason}: {text}" if text else f"HTTP {status} {reason or _line(body.decode(errors='replace'))}"
    )
    wait = _seconds(retry_after)
    if wait is None:
        wait = _seconds((said.get("details") or {}).get("retryAfterSeconds"))
    return ApiError(
        _told(doing, words.rstrip(": "), fault),
        fault=_looking(doing, fault),
        status=status,
        reason=reason,
        retry_after=wait,
    )


def failed(doing: Doing, error: Exception) -> ApiError:
    """Return the error for a request that got no usable answer."""
    fault = next((CLASSES[each.__name__] for each in type(error).__mro__ if each.__name__ in CLASSES), _LOST)
    words = _line(str(error)) or type(error).__name__
    return ApiError(_told(doing, words, fault), fault=_looking(doing, fault))


def _answered(status: int, reason: str, text: str) -> Fault:
    for pattern, fault in WORDS:
        if pattern.search(text):
            return fault
    if (found := REASONS.get(reason) or STATUSES.get(status)) is not None:
        return found
    return _UNAVAILABLE if status >= 500 else _GARBLED


def _looking(doing: Doing, fault: Fault) -> Fault:
    """A create that may have been done is looked for, not repeated."""
    return replace(fault, remedy=Remedy.LOOK) if doing.verb == "create" and fault.unsure else fault


def _told(doing: Doing, words: str, fault: Fault) -> str:
    end = f"; {fault.advice}" if fault.advice else ""
    return f"the cluster could not {doing}: {words.rstrip('. ')}{end}"


def _status(body: bytes) -> dict[str, Any]:
    try:
        said = orjson.loads(body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _line(text: str) -> str:
    return " ".join(text.split())[:500]


def _seconds(value: Any) -> float | None:
    """Read a Retry-After. A date there is not used by API servers, so it says nothing."""
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return min(seconds, _MINUTES) if seconds >= 0 else None
