"""A Kubernetes API server in this process, which does to its clients what real ones do.

::

    async with FaultServer() as server, Api(server.connection) as api:
        server.inject("post_commits_then_500")
        server.kubelet.play("t-*", PLAYS["agent_out_of_memory"])

Objects have versions, watches have bookmarks and a history of limited length, lists have pages, namespaces have quotas. Pods live as their
scripts say (``fault_kubelet.py``). Every failure has a name (``FAULTS``); ``inject`` lets it happen to the next requests that it fits.
"""

from __future__ import annotations

import asyncio
import base64
import re
import weakref
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import TracebackType
from typing import Any, Self

import orjson
from aiohttp import web
from fault_injections import FAULTS
from fault_kubelet import Kubelet
from fault_objects import Key, Objects, Watcher, seen
from fault_wire import Asked, Injection, begun, chosen, gone, json, status, understood, unended

from orchestrator.sandbox.kubernetes.connect import Connection, plain

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_KINDS = {
    "pods": ("v1", "Pod"),
    "events": ("v1", "Event"),
    "configmaps": ("v1", "ConfigMap"),
    "namespaces": ("v1", "Namespace"),
    "leases": ("coordination.k8s.io/v1", "Lease"),
    "jobs": ("batch/v1", "Job"),
}


@dataclass
class Room:
    """What a namespace allows."""

    pods: int
    """Quota of pods that have not ended."""


class FaultServer:
    """The server. ``tokens`` None: anybody is let in."""

    def __init__(
        self,
        *,
        history: int = 10_000,
        bookmark_seconds: float = 60.0,
        tick: float = 0.005,
        grace_scale: float = 0.01,
        kubelet: bool = True,
    ) -> None:
        self.objects = Objects(history)
        self.kubelet = Kubelet(self.objects, tick=tick, grace_scale=grace_scale)
        self.tokens: set[str] | None = None
        self.denied: set[tuple[str, str]] = set()
        """Verb and resource (or ``resource/subresource``) that access reviews and requests are refused."""
        self.quotas: dict[str, Room] = {}
        self.logs: dict[tuple[str, str], bytes] = {}
        """By pod and container."""
        self.mounts_images = True
        """False: it is of an earlier version, which does not know image volumes and takes them for empty folders."""
        self.missing: set[str] = set()
        self.terminating: set[str] = set()
        """Namespaces that do not exist, or are being deleted."""
        self.counts: Counter[tuple[str, str]] = Counter()
        """Requests by verb and resource."""
        self.asked: list[Asked] = []
        self.git_version = "v1.37.2"
        self._plays = kubelet
        self._bookmark_seconds = bookmark_seconds
        self._injections: list[Injection] = []
        self._snapshots: dict[str, tuple[list[dict], int]] = {}
        self.past: tuple[list[dict], int] | None = None
        self.backup = self.objects.kept()
        """What fault ``etcd_restored`` goes back to."""
        self._runner: web.AppRunner | None = None
        self._port = 0
        self._open: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()
        self.down = asyncio.Event()

    # Life

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kubelet.close()
        await self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def connection(self) -> Connection:
        token = next(iter(sorted(self.tokens)), None) if self.tokens else None
        return plain(self.url, token=token)

    async def _listen(self) -> None:
        app = web.Application(client_max_size=4 << 20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self.down = asyncio.Event()
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, backlog=1024, reuse_address=True)
        await site.start()
        self._port = site._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop answering: connections are cut, new ones refused. Objects stay, pods go on."""
        self.down.set()
        for transport in list(self._open):
            transport.abort()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def start(self) -> None:
        """Go on where it stopped, on the same port."""
        await self._listen()

    async def restart(self, seconds: float = 0.1) -> None:
        """Be away for a while, as an API server that was killed."""
        await self.stop()
        await asyncio.sleep(seconds)
        await self.start()

    # What tests do

    def inject(
        self,
        fault: str,
        *,
        times: float = 1,
        verb: str | None = None,
        resource: str | None = None,
        namespace: str | None = None,
        after: int = 0,
        **options: Any,
    ) -> Injection:
        """Let a fault of ``FAULTS`` happen to the next ``times`` requests that it fits, after sparing ``after`` of them."""
        verbs = (verb,) if verb is not None else FAULTS[fault][0]
        made = Injection(fault, times, verbs, resource, namespace, options, after)
        self._injections.append(made)
        return made

    def heal(self) -> None:
        """No more faults."""
        self._injections.clear()

    def pods(self, namespace: str = "") -> list[dict]:
        return self.objects.of("pods", namespace)

    def plant(self, resource: str, namespace: str, body: dict) -> dict:
        """Put an object there, as somebody else would."""
        api_version, kind = _KINDS[resource]
        body = {"apiVersion": api_version, "kind": kind, **body}
        return self.objects.add((resource, namespace, body["metadata"]["name"]), body)

    def change(self, resource: str, namespace: str, name: str, **fields: Any) -> dict:
        """Change fields of an object, as somebody else would."""
        key = (resource, namespace, name)
        return self.objects.put("MODIFIED", key, {**(self.objects.get(key) or {}), **fields})

    def remove(self, resource: str, namespace: str, name: str) -> None:
        """Take an object away at once, as somebody else would."""
        key = (resource, namespace, name)
        play = self.kubelet.plays.get(key)
        if play is not None:
            play.remove()
        elif (found := self.objects.get(key)) is not None:
            self.objects.put("DELETED", key, found)

    def remember(self, namespace: str) -> None:
        """Keep this moment, for an API server that is behind (fault ``behind``)."""
        self.past = (self.objects.of("pods", namespace), self.objects.version)

    def back_up(self) -> None:
        """Keep all that is there, for an etcd that is restored from it."""
        self.backup = self.objects.kept()

    def restore(self) -> None:
        """Be as the backup was. Kubelets end what the cluster does not know any more."""
        self.objects.restore(self.backup)
        for key, play in list(self.kubelet.plays.items()):
            if self.objects.get(key) is None:
                self.kubelet.gone(play)

    def skew(self, seconds: float) -> None:
        """Let the cluster's clock be ahead of ours."""
        self.objects.skew = timedelta(seconds=seconds)

    # Answering

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            self._open.add(request.transport)
        asked = understood(request)
        self.counts[asked.verb, asked.resource] += 1
        self.asked.append(asked)
        if self.tokens is not None and not self._let_in(request):
            return status(401, "Unauthorized")
        if asked.verb in ("create", "get", "list", "watch", "update", "delete") and self._refuses(asked):
            who = f'{asked.resource} is forbidden: User "test" cannot {asked.verb} resource "{asked.resource}"'
            return status(403, f'{who} in API group "" in the namespace "{asked.namespace}"')
        injection = next((each for each in self._injections if each.fits(asked)), None)
        if injection is not None:
            injection.done += 1
            return await FAULTS[injection.fault][1](self, request, asked, injection)
        return await self.serve(request, asked)

    def _let_in(self, request: web.Request) -> bool:
        return request.headers.get("Authorization", "").removeprefix("Bearer ") in (self.tokens or ())

    def _refuses(self, asked: Asked) -> bool:
        return (asked.verb, asked.resource) in self.denied

    async def serve(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        """Answer as a server in good health."""
        return await getattr(self, asked.verb)(request, asked)

    async def create(self, request: web.Request, asked: Asked) -> web.Response:
        body = orjson.loads(await request.read())
        name = body.get("metadata", {}).get("name", "")
        if (refusal := self._refusal(asked, name)) is not None:
            return refusal
        key: Key = (asked.resource, asked.namespace, name)
        if self.objects.get(key) is not None:
            return status(409, f'{asked.resource} "{name}" already exists', reason="AlreadyExists")
        if asked.resource == "pods" and not self.mounts_images:
            volumes = [
                {"name": each["name"], "emptyDir": {}} if "image" in each else each for each in body["spec"]["volumes"]
            ]
            body = {**body, "spec": {**body["spec"], "volumes": volumes}}
        if request.query.get("dryRun"):
            return json(body, 201)
        if asked.resource == "pods":
            body = {**body, "status": {"phase": "Pending", "qosClass": "Burstable"}}
        made = self.objects.add(key, body)
        if asked.resource == "pods" and self._plays:
            self.kubelet.created(key, made)
        return json(made, 201)

    def _refusal(self, asked: Asked, name: str) -> web.Response | None:
        if asked.namespace in self.missing:
            return status(404, f'namespaces "{asked.namespace}" not found')
        if asked.namespace in self.terminating:
            words = f"unable to create new content in namespace {asked.namespace} because it is being terminated"
            return status(403, f'pods "{name}" is forbidden: {words}')
        if not _NAME.fullmatch(name) or len(name) > 253:
            kind = _KINDS.get(asked.resource, ("", asked.resource))[1]
            return status(
                422,
                f'{kind} "{name}" is invalid: metadata.name: Invalid value: "{name}": a lowercase RFC 1123 subdomain',
            )
        room = self.quotas.get(asked.namespace)
        if room is not None and asked.resource == "pods":
            used = sum(unended(pod) for pod in self.pods(asked.namespace))
            if used >= room.pods:
                words = f"exceeded quota: pods, requested: pods=1, used: pods={used}, limited: pods={room.pods}"
                return status(403, f'pods "{name}" is forbidden: {words}')
        return None

    async def get(self, request: web.Request, asked: Asked) -> web.Response:
        found = self.objects.get((asked.resource, asked.namespace, asked.name))
        if found is None:
            return status(404, f'{asked.resource} "{asked.name}" not found')
        return json(found)

    async def update(self, request: web.Request, asked: Asked) -> web.Response:
        key = (asked.resource, asked.namespace, asked.name)
        found, body = self.objects.get(key), orjson.loads(await request.read())
        if found is None:
            return status(404, f'{asked.resource} "{asked.name}" not found')
        about = body["metadata"]
        if about.get("resourceVersion", found["metadata"]["resourceVersion"]) != found["metadata"]["resourceVersion"]:
            words = f'Operation cannot be fulfilled on {asked.resource} "{asked.name}": the object has been modified'
            return status(409, words, reason="Conflict")
        kept = {name: found["metadata"][name] for name in ("uid", "creationTimestamp", "name", "namespace")}
        return json(self.objects.put("MODIFIED", key, {**body, "metadata": {**about, **kept}}))

    async def delete(self, request: web.Request, asked: Asked) -> web.Response:
        raw = await request.read()
        options = orjson.loads(raw) if raw else {}
        key = (asked.resource, asked.namespace, asked.name)
        found = self.objects.get(key)
        if found is None:
            return status(404, f'{asked.resource} "{asked.name}" not found')
        for field, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            is_, wanted = found["metadata"][field], (options.get("preconditions") or {}).get(field)
            if wanted not in (None, is_):
                words = f"Precondition failed: {word} in precondition: {wanted}, {word} in object meta: {is_}"
                return status(409, words, reason="Conflict")
        if asked.resource == "pods":
            await self.kubelet.delete(key, options.get("gracePeriodSeconds"))
        else:
            self.objects.put("DELETED", key, found)
        return json(self.objects.get(key) or {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    async def evict(self, request: web.Request, asked: Asked) -> web.Response:
        await self.kubelet.delete(("pods", asked.namespace, asked.name))
        return json({"kind": "Status", "apiVersion": "v1", "status": "Success"}, 201)

    async def list(self, request: web.Request, asked: Asked) -> web.Response:
        limit, token = int(request.query.get("limit", 0)), request.query.get("continue", "")
        if token:
            if token not in self._snapshots:
                return status(410, "The provided continue parameter is too old to display a consistent list result.")
            items, version = self._snapshots.pop(token)
        else:
            wanted = chosen(request)
            items = [item for item in self.objects.of(asked.resource, asked.namespace) if wanted(item)]
            version = self.objects.version
        return self.page(asked, items, version, limit)

    def page(self, asked: Asked, items: list[dict], version: int, limit: int) -> web.Response:
        about: dict[str, Any] = {"resourceVersion": str(version)}
        if limit and len(items) > limit:
            token = base64.urlsafe_b64encode(
                f"{version}:{len(items)}:{items[limit]['metadata']['name']}".encode()
            ).decode()
            self._snapshots[token] = (items[limit:], version)
            about |= {"continue": token, "remainingItemCount": len(items) - limit}
            items = items[:limit]
        api_version, kind = _KINDS.get(asked.resource, ("v1", "Thing"))
        return json({"kind": f"{kind}List", "apiVersion": api_version, "metadata": about, "items": items})

    async def watch(self, request: web.Request, asked: Asked, *, bookmarks_only: bool = False) -> web.StreamResponse:
        version = int(request.query.get("resourceVersion") or self.objects.version)
        if self.objects.forgotten(version):
            return await gone(request)
        if version > self.objects.version:
            return status(
                504, f"Too large resource version: {version}, current: {self.objects.version}", reason="Timeout"
            )
        response = await begun(request)
        watcher = self.watcher(request, asked, version)
        try:
            await self._feed(request, response, watcher, bookmarks_only)
        except ConnectionError:
            pass
        finally:
            self.objects.watchers.discard(watcher)
        return response

    def watcher(self, request: web.Request, asked: Asked, version: int) -> Watcher:
        wanted = chosen(request)
        watcher = Watcher(asked.resource, asked.namespace, wanted)
        for change in self.objects.since(version, asked.resource, asked.namespace):
            if (line := seen(change, wanted)) is not None:
                watcher.lines.append(line)
        self.objects.watchers.add(watcher)
        return watcher

    async def _feed(
        self, request: web.Request, response: web.StreamResponse, watcher: Watcher, bookmarks_only: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + float(request.query.get("timeoutSeconds") or 3600)
        marked = loop.time()
        while loop.time() < until and not watcher.cut and not self.down.is_set():
            if watcher.lines:
                lines = b"".join(watcher.lines)
                watcher.lines.clear()
                if not bookmarks_only:
                    await response.write(lines)
            watcher.news.clear()
            if loop.time() - marked >= self._bookmark_seconds:
                marked = loop.time()
                await response.write(self.bookmark(watcher))
            wait = min(until, marked + self._bookmark_seconds) - loop.time()
            with suppress(TimeoutError):
                await asyncio.wait_for(watcher.news.wait(), max(0.0, wait))

    def bookmark(self, watcher: Watcher) -> bytes:
        api_version, kind = _KINDS.get(watcher.plural, ("v1", "Thing"))
        item = {
            "kind": kind,
            "apiVersion": api_version,
            "metadata": {"resourceVersion": str(self.objects.version), "creationTimestamp": None},
        }
        return orjson.dumps({"type": "BOOKMARK", "object": item}) + b"\n"

    async def log(self, request: web.Request, asked: Asked) -> web.Response:
        container = request.query.get("container", "")
        return web.Response(body=self.logs.get((asked.name, container), b""), content_type="text/plain")

    async def review(self, request: web.Request, asked: Asked) -> web.Response:
        body = orjson.loads(await request.read())
        wants = body["spec"]["resourceAttributes"]
        what = wants["resource"] + (f"/{wants['subresource']}" if wants.get("subresource") else "")
        allowed = (wants["verb"], what) not in self.denied
        return json({**body, "status": {"allowed": allowed, "reason": "" if allowed else "no rule allows it"}}, 201)

    async def version(self, request: web.Request, asked: Asked) -> web.Response:
        major, minor, _ = self.git_version.removeprefix("v").split(".")
        answer = json({"gitVersion": self.git_version, "major": major, "minor": minor})
        answer.headers["Date"] = format_datetime(datetime.now(UTC) + self.objects.skew, usegmt=True)
        return answer
