"""A small client of the Kubernetes API for many requests at once: raw JSON over aiohttp and orjson, no models.

One method is one request. What failed is an ``ApiError`` whose ``fault`` says what helps; trying again is up to the caller, except that a
refused token (401) is replaced once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import orjson

from orchestrator.sandbox.kubernetes.connect import Connection
from orchestrator.sandbox.kubernetes.errors import ApiError, Doing, failed, refused
from orchestrator.sandbox.kubernetes.resources import ACCESS_REVIEWS, PODS, Resource
from orchestrator.sandbox.kubernetes.transport import ANSWER_SECONDS, Answer, Call, Transport

if TYPE_CHECKING:
    import aiohttp

_SILENCE_SECONDS = 90.0
"""A watch that is this quiet is taken for dead: bookmarks come every minute."""
PAGE = 500
_BEGINS = b'{"type":"'
_TURN = 50
"""So many events of a flood, and everything else has its turn."""


@dataclass(frozen=True)
class Page:
    """A part of a list. All parts show the same moment."""

    items: list[dict[str, Any]]
    version: str
    """resourceVersion of that moment, from which a watch can go on."""


class WatchEvent:
    """One line of a watch. The object is decoded when it is asked for."""

    __slots__ = ("_line", "_object", "type")

    def __init__(self, line: bytes) -> None:
        """Raises ValueError: not JSON, or no event."""
        self._line = line
        self._object: dict[str, Any] | None = None
        self.type: str
        """``ADDED``, ``MODIFIED``, ``DELETED``, ``BOOKMARK`` or ``ERROR``."""
        if line.startswith(_BEGINS):  # as API servers write it
            self.type = line[len(_BEGINS) : line.index(b'"', len(_BEGINS))].decode()
        else:
            self.type = str(self._decoded().get("type"))

    @property
    def object(self) -> dict[str, Any]:
        """The object; of an ERROR the Status. Raises ValueError as above."""
        if self._object is None:
            self._object = self._decoded()["object"]
        return self._object

    def _decoded(self) -> dict[str, Any]:
        event = orjson.loads(self._line)
        if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
            msg = f"a watch sent what is no event: {self._line[:80]!r}"
            raise ValueError(msg)
        return event


@dataclass(frozen=True)
class Access:
    """Whether something may be done, and why."""

    allowed: bool
    reason: str


@dataclass(frozen=True)
class ServerVersion:
    """What the API server says of itself."""

    git: str
    """``v1.37.2``."""
    major: int
    minor: int
    date: datetime | None
    """Its clock, to the second."""


class Api:
    """Requests to one API server. Use as ``async with Api(connection) as api``."""

    def __init__(self, connection: Connection, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self.connection = connection
        self._transport = Transport(connection, answer_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    async def create(
        self, resource: Resource, namespace: str, body: Mapping[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Create an object and return it as the cluster has it. Raises ApiError.

        ``already_exists`` when there is one of its name; remedy LOOK when nobody knows whether it was made.
        """
        name = str((body.get("metadata") or {}).get("name", ""))
        doing = Doing("create", resource, namespace, name)
        params = {"dryRun": "All"} if dry_run else None
        return await self._json(doing, Call("POST", resource.path(namespace), body, params))

    async def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        """Return an object. Raises ApiError, ``not_found`` when there is none."""
        doing = Doing("get", resource, namespace, name)
        return await self._json(doing, Call("GET", resource.path(namespace, name)))

    async def find(self, resource: Resource, namespace: str, name: str) -> dict[str, Any] | None:
        """Return an object, or None when there is none. Raises ApiError."""
        try:
            return await self.get(resource, namespace, name)
        except ApiError as error:
            if error.cause == "not_found":
                return None
            raise

    async def update(self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object. Raises ApiError, ``conflict`` when it has changed since the body's resourceVersion."""
        doing = Doing("update", resource, namespace, name)
        return await self._json(doing, Call("PUT", resource.path(namespace, name), body))

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        version: str | None = None,
        grace_seconds: int | None = None,
        propagation: str | None = None,
    ) -> bool:
        """Ask for an object to be deleted; only the one with this ``uid``, and as it was at this resourceVersion. ``grace_seconds`` None:
        the object's own.

        Returns False when it is not there, has changed, or another has its name. Raises ApiError.
        """
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if wanted := {key: each for key, each in (("uid", uid), ("resourceVersion", version)) if each is not None}:
            options["preconditions"] = wanted
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation is not None:
            options["propagationPolicy"] = propagation
        doing = Doing("delete", resource, namespace, name)
        try:
            await self._json(doing, Call("DELETE", resource.path(namespace, name), options))
        except ApiError as error:
            if error.cause in ("not_found", "conflict"):
                return False
            raise
        return True

    async def pages(
        self, resource: Resource, namespace: str, *, labels: str = "", fields: str = "", limit: int = PAGE
    ) -> AsyncGenerator[Page, None]:
        """List objects of one moment, ``limit`` at a time. Raises ApiError, ``gone`` when it takes too long between pages."""
        doing = Doing("list", resource, namespace)
        params = _selected(labels, fields) | {"limit": str(limit)}
        while True:
            answer = await self._json(doing, Call("GET", resource.path(namespace), params=params))
            about = answer.get("metadata") or {}
            yield Page(answer.get("items") or [], str(about.get("resourceVersion") or ""))
            if not about.get("continue"):
                return
            params["continue"] = str(about["continue"])

    async def list(
        self, resource: Resource, namespace: str, *, labels: str = "", fields: str = ""
    ) -> list[dict[str, Any]]:
        """Return all objects of one moment. Raises ApiError."""
        pages = self.pages(resource, namespace, labels=labels, fields=fields)
        return [item async for page in pages for item in page.items]

    async def watch(
        self,
        resource: Resource,
        namespace: str,
        *,
        version: str,
        labels: str = "",
        fields: str = "",
        seconds: float = 300,
        silence_seconds: float = _SILENCE_SECONDS,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield what happens after ``version``, until the server ends the watch: by its clock, by chance, or because we read too slowly.

        ``seconds`` is how long the server is asked to watch. Raises ApiError: ``gone`` when it has forgotten ``version`` (as an answer or
        as an ERROR event), ``api_timeout`` after ``silence_seconds`` without a byte.
        """
        doing = Doing("watch", resource, namespace)
        params = _selected(labels, fields) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(int(seconds)),
        }
        call = Call("GET", resource.path(namespace), params=params, silence_seconds=silence_seconds)
        async with self._transport.streamed(doing, call) as stream:
            async for lines in _lines(stream):
                for line in lines:
                    event = WatchEvent(line)
                    if event.type == "ERROR":
                        raise _ended(doing, event)
                    yield event

    async def allowed(
        self, verb: str, resource: Resource, namespace: str, *, subresource: str = "", name: str = ""
    ) -> Access:
        """Ask whether this identity may do something. Raises ApiError."""
        asked = {"verb": verb, "group": resource.group, "resource": resource.plural}
        asked |= {"namespace": namespace} if namespace else {}
        asked |= {"subresource": subresource} if subresource else {}
        asked |= {"name": name} if name else {}
        body = {
            "apiVersion": ACCESS_REVIEWS.api_version,
            "kind": ACCESS_REVIEWS.kind,
            "spec": {"resourceAttributes": asked},
        }
        status = (await self.create(ACCESS_REVIEWS, "", body)).get("status") or {}
        return Access(bool(status.get("allowed")), str(status.get("reason") or ""))

    async def log(self, namespace: str, pod: str, *, container: str, tail: int | None = None) -> bytes:
        """Return what a container wrote so far, or its last ``tail`` lines. Raises ApiError."""
        return b"".join([part async for part in self._log(namespace, pod, container, tail, follow=False)])

    def follow_log(self, namespace: str, pod: str, *, container: str, tail: int | None = None) -> AsyncIterator[bytes]:
        """Yield what a container writes, until it ends. Raises ApiError."""
        return self._log(namespace, pod, container, tail, follow=True)

    async def version(self) -> ServerVersion:
        """Ask the server for its version and the time. Raises ApiError."""
        doing = Doing("get", "its version")
        answer = await self._transport.answered(doing, Call("GET", "/version"))
        said = _object(doing, answer)
        return ServerVersion(
            git=str(said.get("gitVersion", "")),
            major=_number(said.get("major")),
            minor=_number(said.get("minor")),
            date=_date(answer.headers.get("Date")),
        )

    async def _log(
        self, namespace: str, pod: str, container: str, tail: int | None, *, follow: bool
    ) -> AsyncIterator[bytes]:
        doing = Doing("read the log of", PODS, namespace, pod)
        params = {"container": container} | ({"tailLines": str(tail)} if tail is not None else {})
        params |= {"follow": "true"} if follow else {}
        path = f"{PODS.path(namespace, pod)}/log"
        call = Call("GET", path, params=params, silence_seconds=inf if follow else _SILENCE_SECONDS)
        async with self._transport.streamed(doing, call) as stream:
            async for part in stream.iter_any():
                yield part

    async def _json(self, doing: Doing, call: Call) -> dict[str, Any]:
        return _object(doing, await self._transport.answered(doing, call))


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[Sequence[bytes]]:
    """Yield whole lines of any length, some at a time. A last one without its end was cut off by a lost connection and is dropped."""
    rest: list[bytes] = []
    async for part in stream.iter_any():
        first, *others = part.split(b"\n")
        rest.append(first)
        if not others:
            continue
        lines = [b"".join(rest), *others[:-1]]
        rest = [others[-1]]
        for start in range(0, len(lines), _TURN):
            yield lines[start : start + _TURN]
            await asyncio.sleep(0)


def _ended(doing: Doing, event: WatchEvent) -> Exception:
    return refused(doing, 200, orjson.dumps(event.object))


def _object(doing: Doing, answer: Answer) -> dict[str, Any]:
    if answer.status >= 300:
        raise refused(doing, answer.status, answer.body, answer.headers.get("Retry-After"))
    try:
        read = orjson.loads(answer.body)
    except ValueError as error:
        raise failed(doing, error) from error
    if not isinstance(read, dict):
        raise failed(doing, ValueError(f"the answer is no object: {answer.body[:80]!r}"))
    return read


def _selected(labels: str, fields: str) -> dict[str, str]:
    return ({"labelSelector": labels} if labels else {}) | ({"fieldSelector": fields} if fields else {})


def _number(text: Any) -> int:
    """Read ``37``, which some providers write ``37+``."""
    digits = str(text or "").rstrip("+")
    return int(digits) if digits.isdigit() else 0


def _date(text: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(text) if text else None
    except ValueError:
        return None
