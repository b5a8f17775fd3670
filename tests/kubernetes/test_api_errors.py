"""Every status, reason and network failure has a meaning, and all of them stand in one table."""

from __future__ import annotations

import http
from math import inf

import aiohttp
import orjson
import pytest

from orchestrator.sandbox.kubernetes.errors import CLASSES, REASONS, STATUSES, WORDS, Doing, Remedy, failed, refused

CREATE = Doing("create", "pods t-1 in a")
GET = Doing("get", "pods t-1 in a")

STATUS_REASONS = {  # of apimachinery's metav1.StatusReason
    "Unauthorized": Remedy.REFRESH,
    "Forbidden": Remedy.RETRY,
    "NotFound": Remedy.RESULT,
    "AlreadyExists": Remedy.RESULT,
    "Conflict": Remedy.RESULT,
    "Gone": Remedy.RELIST,
    "Expired": Remedy.RELIST,
    "Invalid": Remedy.FATAL,
    "BadRequest": Remedy.FATAL,
    "ServerTimeout": Remedy.BACK_OFF,
    "Timeout": Remedy.BACK_OFF,
    "TooManyRequests": Remedy.BACK_OFF,
    "InternalError": Remedy.BACK_OFF,
    "ServiceUnavailable": Remedy.BACK_OFF,
    "StorageReadError": Remedy.BACK_OFF,
    "RequestEntityTooLarge": Remedy.FATAL,
    "MethodNotAllowed": Remedy.FATAL,
    "NotAcceptable": Remedy.FATAL,
    "UnsupportedMediaType": Remedy.FATAL,
}


def answer(message: str = "", reason: str = "", **more: object) -> bytes:
    return orjson.dumps({"kind": "Status", "message": message, "reason": reason, **more})


@pytest.mark.parametrize(("reason", "remedy"), STATUS_REASONS.items())
def test_every_reason(reason: str, remedy: Remedy) -> None:
    assert refused(GET, 418, answer("words", reason)).fault.remedy is remedy
    assert REASONS.keys() == STATUS_REASONS.keys()


@pytest.mark.parametrize("status", sorted(s for s in http.HTTPStatus if s >= 300))
def test_every_status_without_a_reason(status: int) -> None:
    error = refused(GET, status, b"<html>")
    expected = {
        401: Remedy.REFRESH,
        403: Remedy.RETRY,
        404: Remedy.RESULT,
        409: Remedy.RESULT,
        410: Remedy.RELIST,
        412: Remedy.RESULT,
        408: Remedy.BACK_OFF,
        429: Remedy.BACK_OFF,
    }
    fatal = {400, 405, 406, 407, 413, 415, 422, 431, 501}
    usual = Remedy.BACK_OFF if status >= 500 else Remedy.RETRY
    assert error.fault.remedy is (Remedy.FATAL if status in fatal else expected.get(status, usual))
    assert error.status == status
    assert set(STATUSES) - {499} <= set(http.HTTPStatus)


def of(kind: type) -> set[type]:
    return {kind}.union(*(of(each) for each in kind.__subclasses__()))


@pytest.mark.parametrize("kind", sorted(of(aiohttp.ClientError), key=lambda each: each.__name__))
def test_every_network_failure_of_aiohttp_is_named(kind: type) -> None:
    assert kind.__name__ in CLASSES, "a new class of aiohttp: say what it means"


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ConnectionRefusedError("refused"), "api_lost"),
        (TimeoutError(), "api_timeout"),
        (aiohttp.ServerTimeoutError("late"), "api_timeout"),
        (aiohttp.ServerDisconnectedError(), "api_lost"),
        (aiohttp.ClientPayloadError("cut"), "api_lost"),
        (aiohttp.InvalidURL("x"), "api_client"),
        (ValueError("not JSON"), "api_garbled"),
        (OSError("network is down"), "api_lost"),
    ],
)
def test_network_failures(error: Exception, cause: str) -> None:
    assert failed(GET, error).cause == cause
    assert failed(GET, error).status == 0


def test_a_create_that_may_have_been_done_is_looked_for() -> None:
    for error in (ValueError("cut"), TimeoutError(), aiohttp.ServerDisconnectedError()):
        assert failed(CREATE, error).fault.remedy is Remedy.LOOK
        assert failed(GET, error).fault.remedy in (Remedy.RETRY, Remedy.BACK_OFF)
    for status in (500, 502, 503, 504):
        assert refused(CREATE, status, answer("no")).fault.remedy is Remedy.LOOK
        assert refused(GET, status, answer("no")).fault.remedy is Remedy.BACK_OFF
    assert refused(CREATE, 429, answer("no")).fault.remedy is Remedy.BACK_OFF
    assert failed(CREATE, aiohttp.ConnectionTimeoutError("never sent")).fault.remedy is Remedy.RETRY


@pytest.mark.parametrize(
    ("status", "message", "cause", "remedy", "patience"),
    [
        (
            403,
            'pods "t" is forbidden: exceeded quota: q, requested: pods=1, used: pods=3',
            "quota",
            Remedy.BACK_OFF,
            inf,
        ),
        (403, "forbidden: failed quota: q: must specify limits.cpu for: agent", "quota_shape", Remedy.FATAL, 0),
        (409, 'Operation cannot be fulfilled on resourcequotas "q": modified', "quota_busy", Remedy.BACK_OFF, 600),
        (403, 'pods "t" is forbidden: violates PodSecurity "restricted:latest": x', "pod_security", Remedy.FATAL, 0),
        (422, "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: x", "admission_denied", Remedy.FATAL, 0),
        (403, "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: x", "admission_denied", Remedy.FATAL, 0),
        (403, 'admission webhook "w" denied the request: x', "admission_denied", Remedy.FATAL, 0),
        (400, 'admission webhook "w" denied the request: x', "admission_denied", Remedy.FATAL, 0),
        (500, 'Internal error occurred: failed calling webhook "w": x', "admission_webhook", Remedy.LOOK, 600),
        (403, "maximum cpu usage per Container is 2, but limit is 4", "limit_range", Remedy.FATAL, 0),
        (
            403,
            "unable to create new content in namespace a because it is being terminated",
            "namespace_terminating",
            Remedy.FATAL,
            0,
        ),
        (404, 'namespaces "a" not found', "namespace_missing", Remedy.RETRY, 30),
        (403, "no PriorityClass with name trial was found", "priority_class_missing", Remedy.RETRY, 30),
        (403, 'pods is forbidden: User "u" cannot create resource "pods"', "api_forbidden", Remedy.RETRY, 30),
    ],
)
def test_the_clusters_own_words(status: int, message: str, cause: str, remedy: Remedy, patience: float) -> None:
    reason = {403: "Forbidden", 409: "Conflict", 422: "Invalid", 404: "NotFound", 500: "InternalError"}.get(status, "")
    error = refused(CREATE, status, answer(message, reason))
    assert (error.cause, error.fault.remedy, error.fault.patience_seconds) == (cause, remedy, patience)
    assert message in str(error)
    assert str(error).startswith("the cluster could not create pods t-1 in a: HTTP")


def test_every_entry_that_a_person_sees_says_what_to_do() -> None:
    faults = [*STATUSES.values(), *REASONS.values(), *CLASSES.values(), *(fault for _, fault in WORDS)]
    assert not [each.cause for each in faults if not each.advice and each.remedy not in (Remedy.RESULT, Remedy.RELIST)]


def test_gone_has_three_forms() -> None:
    said = answer("too old resource version", "Expired", code=410)
    assert refused(Doing("watch", "pods"), 410, said).fault.remedy is Remedy.RELIST
    assert refused(Doing("watch", "pods"), 200, said).status == 410
    assert refused(Doing("watch", "pods"), 200, said).fault.remedy is Remedy.RELIST
    assert refused(Doing("list", "pods"), 410, answer("continue", "Gone")).fault.remedy is Remedy.RELIST


@pytest.mark.parametrize(
    ("header", "details", "seconds"),
    [
        ("5", None, 5),
        (None, 7, 7),
        ("3", 7, 3),
        ("soon", None, None),
        ("-1", None, None),
        ("1e9", None, 600),
        ("nan", None, None),
    ],
)
def test_retry_after(header: str | None, details: int | None, seconds: float | None) -> None:
    body = answer("busy", "TooManyRequests", details={"retryAfterSeconds": details} if details else None)
    assert refused(GET, 429, body, header).retry_after == seconds
