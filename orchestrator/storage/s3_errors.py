"""What S3 and boto3 say when something fails, and what it means here: the one place that reads their errors.

The most specific entry wins: the error code of an answer, else its HTTP status, else the class of the exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.errors import NotFoundError, StoreError
from orchestrator.storage.identities import PREFIXES
from orchestrator.storage.s3_place import S3Place

Remedy = Literal["none", "wait", "renew", "resign"]
"""What may help: nothing; the same again after a while; a new session; once again with a new time in the signature."""


@dataclass(frozen=True)
class Fault:
    """What an error of S3 means."""

    cause: str
    """Stable word of the StoreError."""
    remedy: Remedy
    advice: str
    """What a person does when the remedy did not help."""


@dataclass(frozen=True)
class Doing:
    """What was asked of S3 when it failed."""

    verb: str
    """``read``, ``write``, …"""
    action: str
    """The right that it needs, such as ``s3:GetObject``."""
    key: str
    """The store's key, or the prefix that was listed."""


MISSING = "store_not_found"
PRECONDITION = "store_precondition"
RANGE = "store_range"
UPLOAD = "store_upload"

_BUSY = Fault(
    "store_busy", "wait", "it limits requests: run fewer trials at one time or ask for a higher limit, then try again"
)
_CONFLICT = Fault("store_conflict", "wait", "other writers of the same object kept it busy: try again")
_DOWN = Fault("store_unavailable", "wait", "see whether the service is up and reachable from here, then try again")
_GARBLED = Fault("store_answer", "wait", "something that is not S3 answered: see the endpoint and any proxy between")
_CORRUPT = Fault("store_corrupt", "wait", "bytes changed on the way: see the network and any proxy between")
_DENIED = Fault("store_denied", "none", "give it that right, or use another identity")
_BUCKET = Fault("store_bucket", "none", "create the bucket, or correct the store's URL")
_REGION = Fault("store_region", "none", "the bucket is elsewhere: correct region and endpoint in the store's URL")
_KEYS = Fault(
    "store_credentials",
    "renew",
    "give this process valid AWS credentials (environment, profile or role), then try again",
)
_CLOCK = Fault("store_clock", "resign", "set this machine's clock (NTP), then try again")
_FULL = Fault("store_full", "none", "free space there or raise the quota, then try again")
_SIZE = Fault("store_size", "none", "the object is too large for that service")
_UNSUPPORTED = Fault(
    "store_unsupported",
    "none",
    "the service cannot do what the store needs (`orchestrate doctor` says what): use another",
)
_UPLOAD = Fault(UPLOAD, "none", "the upload was aborted by somebody else or lost there: try again")
_NAME = Fault("store_name", "none", "use a shorter prefix or shorter names")
_REFUSED = Fault("store_refused", "none", "see what it says and correct the store's URL or the service")
_CLIENT = Fault("store_client", "none", "correct the AWS configuration of this process or the store's URL")


class NotS3Error(Exception):
    """An answer said "done" and lacks what every answer of S3 has: a web page, most likely."""


CODES: dict[str, Fault] = {
    **dict.fromkeys(("NoSuchKey", "NoSuchVersion"), Fault(MISSING, "none", "")),
    "PreconditionFailed": Fault(PRECONDITION, "none", "the object was changed by something else: use a new store"),
    "InvalidRange": Fault(RANGE, "none", "the object was changed by something else: use a new store"),
    **dict.fromkeys(("ConditionalRequestConflict", "OperationAborted"), _CONFLICT),
    **dict.fromkeys(
        (
            "SlowDown", "SlowDownRead", "SlowDownWrite", "ServiceUnavailable", "Busy", "Throttling", "ThrottlingException",
            "ThrottledException", "RequestThrottled", "RequestThrottledException", "RequestLimitExceeded",
            "BandwidthLimitExceeded", "LimitExceededException", "TooManyRequests", "TooManyRequestsException",
        ),
        _BUSY,
    ),
    **dict.fromkeys(("InternalError", "InternalFailure", "RequestTimeout", "RequestTimeoutException"), _DOWN),
    **dict.fromkeys(("BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody", "InvalidDigest"), _CORRUPT),
    **dict.fromkeys(
        ("AccessDenied", "AccessDeniedException", "AllAccessDisabled", "AccountProblem", "UnauthorizedAccess", "InvalidPayer"),
        _DENIED,
    ),
    **dict.fromkeys(("NoSuchBucket", "InvalidBucketName", "InvalidBucketState", "NoSuchAccessPoint"), _BUCKET),
    **dict.fromkeys(
        (
            "PermanentRedirect", "TemporaryRedirect", "Redirect", "AuthorizationHeaderMalformed", "IncorrectEndpoint",
            "IllegalLocationConstraintException", "InvalidLocationConstraint",
        ),
        _REGION,
    ),
    **dict.fromkeys(
        (
            "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken", "InvalidAccessKeyId",
            "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "InvalidSecurity",
            "MissingSecurityHeader", "NotSignedUp", "CredentialsNotSupported", "AuthFailure",
        ),
        _KEYS,
    ),
    **dict.fromkeys(("RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture"), _CLOCK),
    **dict.fromkeys(("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"), _FULL),
    **dict.fromkeys(("EntityTooLarge", "MaxMessageLengthExceeded", "MetadataTooLarge"), _SIZE),
    **dict.fromkeys(("NotImplemented", "MethodNotAllowed", "UnsupportedArgument", "UnsupportedOperation"), _UNSUPPORTED),
    **dict.fromkeys(("NoSuchUpload", "InvalidPart", "InvalidPartOrder", "EntityTooSmall"), _UPLOAD),
    **dict.fromkeys(("KeyTooLongError", "InvalidURI", "InvalidObjectName"), _NAME),
}  # fmt: skip
"""Meaning of an answer's error code."""

STATUSES: dict[int, Fault] = {
    **dict.fromkeys((301, 302, 307, 308), _REGION),
    **dict.fromkeys((401, 403), _DENIED),
    **dict.fromkeys((404, 410), _BUCKET),
    408: _DOWN,
    409: _CONFLICT,
    412: CODES["PreconditionFailed"],
    413: _SIZE,
    416: CODES["InvalidRange"],
    429: _BUSY,
    499: _DOWN,
    501: _UNSUPPORTED,
    503: _BUSY,
    507: _FULL,
}
"""Meaning of an answer's HTTP status, where its code says nothing. Others of 500 and more mean a service in trouble."""

CLASSES: dict[str, Fault] = {
    # botocore: the network
    "HTTPClientError": _DOWN,
    "ConnectionError": _DOWN,
    "SSLError": Fault(
        "store_tls", "none", "its certificate is not trusted here: set AWS_CA_BUNDLE or correct the endpoint"
    ),
    "InvalidProxiesConfigError": _CLIENT,
    "ProxyConnectionError": _DOWN,
    "IncompleteReadError": _DOWN,
    "ResponseStreamingError": _DOWN,
    "ReadTimeoutError": _DOWN,
    "MetadataRetrievalError": _KEYS,
    "ResponseParserError": _GARBLED,
    "NotS3Error": _GARBLED,
    "ChecksumError": _CORRUPT,
    # All bytes are there and wrong, so that reading on cannot help.
    "FlexibleChecksumError": Fault(
        "store_corrupt", "none", "its bytes are not those that were written: use a new store"
    ),
    # botocore: credentials
    "NoCredentialsError": _KEYS,
    "NoAuthTokenError": _KEYS,
    "PartialCredentialsError": _KEYS,
    "CredentialRetrievalError": _KEYS,
    "UnknownCredentialError": _KEYS,
    "TokenRetrievalError": _KEYS,
    "RefreshWithMFAUnsupportedError": _KEYS,
    "SSOError": _KEYS,
    "LoginError": _KEYS,
    "InvalidConfigError": _KEYS,
    "ConfigNotFound": _KEYS,
    "ConfigParseError": _KEYS,
    "ProfileNotFound": _KEYS,
    "InfiniteLoopConfigError": _KEYS,
    # botocore: region and endpoint
    "NoRegionError": _REGION,
    "InvalidRegionError": _REGION,
    "UnknownRegionError": _REGION,
    "UnknownEndpointError": _REGION,
    "EndpointVariantError": _REGION,
    "EndpointResolutionError": _REGION,
    # Whatever else boto3 finds wrong before it sends anything
    "BotoCoreError": _CLIENT,
    "Boto3Error": _CLIENT,
    "ValueError": _CLIENT,
    # below boto3
    "HTTPError": _DOWN,
    "HTTPException": _DOWN,
    "OSError": _DOWN,
}
"""Meaning of an exception by the name of its class or of the nearest class above it. Names, since boto3 is loaded late."""


def foreign() -> tuple[type[Exception], ...]:
    """Return what may come out of a call to boto3. Making a client may raise ValueError beside these."""
    from http.client import HTTPException

    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError
    from urllib3.exceptions import HTTPError

    return (BotoCoreError, ClientError, ResponseParserError, Boto3Error, HTTPError, HTTPException, OSError, NotS3Error)


def checked(answer: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return an answer that has these fields. Raises NotS3Error for one that has not."""
    for name in names:
        if name not in answer:
            msg = f"the answer has no {name}"
            raise NotS3Error(msg)
    return answer


def answered(error: Exception) -> bool:
    """Return whether S3 itself said this."""
    return _answer(error) is not None


def classify(error: Exception) -> Fault:
    """Return what an error of boto3 means."""
    answer = _answer(error)
    if answer is None:
        for each in type(error).__mro__:
            if (found := CLASSES.get(each.__name__)) is not None:
                return found
        return _CLIENT
    code, status, _ = answer
    if (found := CODES.get(code)) is not None:
        return found
    return STATUSES.get(status) or (_DOWN if status >= 500 else _REFUSED)


def translate(error: Exception, doing: Doing, place: S3Place, identity: str, seconds: float = 0) -> StoreError:
    """Return the StoreError to raise. ``identity`` says who asked, in words; ``seconds`` is how long it was tried."""
    fault = classify(error)
    if fault.cause == MISSING:
        return NotFoundError(doing.key)
    what = f"{doing.verb} {doing.key!r} in {place}"
    if fault is _DENIED:
        needs = f"{doing.action} on {_scope(doing, place)}"
        msg = f"{identity} may not {what} ({_said(error)}); it needs {needs}: {fault.advice}"
    else:
        tried = f", tried for {seconds:.0f} s" if seconds >= 1 else ""
        who = f" ({identity})" if fault is _KEYS else ""
        msg = f"the store could not {what}{who}: {_said(error)}{_skew(error, fault)}{tried}; {fault.advice}"
    return StoreError(msg, cause=fault.cause)


def _answer(error: Exception) -> tuple[str, int, str] | None:
    """Return code, HTTP status and text of S3's answer, or None when there was none."""
    response: Any = getattr(error, "response", None)
    if not isinstance(response, dict) or "Error" not in response:
        return None
    said, meta = response["Error"], response.get("ResponseMetadata", {})
    code = str(said.get("Code") or "")
    status = int(meta.get("HTTPStatusCode") or (code if code.isdigit() else 0))
    return code, status, str(said.get("Message") or "")


def _said(error: Exception) -> str:
    answer = _answer(error)
    if answer is None:
        return " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
    code, status, text = answer
    return f"HTTP {status} {code}: {' '.join(text.split())[:200]}".rstrip(".: ")


def _skew(error: Exception, fault: Fault) -> str:
    """Say how far this machine's clock is from the service's."""
    if fault is not _CLOCK:
        return ""
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    response: Any = getattr(error, "response", {})
    date = response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
    try:
        ahead = (datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds()
    except (TypeError, ValueError):
        return ""
    return f" (this machine's clock is {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'})"


def _scope(doing: Doing, place: S3Place) -> str:
    prefix = next((each for each in PREFIXES if doing.key.startswith(each)), doing.key)
    if doing.action == "s3:ListBucket":
        return f"bucket {place.bucket} for the prefix {place.root}{prefix}*"
    return f"arn:aws:s3:::{place.bucket}/{place.root}{prefix}" + ("*" if prefix.endswith("/") else "")
