"""Requests and answers of the API, as the fault server reads and writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web
from fault_objects import selector

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(frozen=True)
class Asked:
    """A request, understood."""

    verb: str
    """create, get, list, watch, update, delete, log, evict, review, version."""
    resource: str
    namespace: str = ""
    name: str = ""


@dataclass
class Injection:
    """A fault that waits for the requests that it fits."""

    fault: str
    times: float
    verbs: tuple[str, ...]
    resource: str | None
    namespace: str | None
    options: dict[str, Any]
    after: int = 0
    """So many fitting requests are spared first."""
    done: int = 0

    def fits(self, asked: Asked) -> bool:
        if asked.verb not in self.verbs or self.resource not in (None, asked.resource):
            return False
        if self.namespace not in (None, asked.namespace):
            return False
        if self.after:
            self.after -= 1
            return False
        return self.done < self.times


def status(code: int, message: str, *, reason: str | None = None, retry_after: float | None = None) -> web.Response:
    """Return a Status as API servers answer it."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason if reason is not None else _REASONS.get(code, ""),
        "code": code,
    }
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return web.Response(status=code, body=orjson.dumps(body), content_type="application/json", headers=headers)


def understood(request: web.Request) -> Asked:
    parts = request.path.strip("/").split("/")
    if parts == ["version"]:
        return Asked("version", "version")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    resource, name = parts[0] if parts else "", parts[1] if len(parts) > 1 else ""
    if resource == "selfsubjectaccessreviews":
        return Asked("review", resource)
    if parts[2:]:
        return Asked({"log": "log", "eviction": "evict"}.get(parts[2], parts[2]), resource, namespace, name)
    verb = {"POST": "create", "PUT": "update", "DELETE": "delete"}.get(request.method, "get" if name else "list")
    if verb == "list" and request.query.get("watch"):
        verb = "watch"
    return Asked(verb, resource, namespace, name)


def chosen(request: web.Request) -> Callable[[dict], bool]:
    return selector(request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""))


def json(body: dict, code: int = 200) -> web.Response:
    return web.Response(status=code, body=orjson.dumps(body), content_type="application/json")


def unended(pod: dict) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


async def begun(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    return response


async def gone(request: web.Request) -> web.StreamResponse:
    """Answer as servers do: 200, and one ERROR event."""
    return await one_event(request, 410, "Expired", "too old resource version")


async def one_event(request: web.Request, code: int, reason: str, message: str) -> web.StreamResponse:
    response = await begun(request)
    said = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    await response.write(orjson.dumps({"type": "ERROR", "object": said}) + b"\n")
    return response
