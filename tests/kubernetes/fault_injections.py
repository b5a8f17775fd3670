"""Every fault of the API and of watches, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aiohttp import web
from fault_objects import seen
from fault_wire import Asked, Injection, begun, chosen, gone, one_event, status

if TYPE_CHECKING:
    from fault_server import FaultServer

Fault = Callable[["FaultServer", web.Request, Asked, Injection], Awaitable[web.StreamResponse]]


def _answers(code: int, message: str, *, reason: str | None = None, retry_after: float | None = None) -> Fault:
    async def fault(
        server: FaultServer, request: web.Request, asked: Asked, injection: Injection
    ) -> web.StreamResponse:
        await request.read()
        wait = injection.options.get("retry_after", retry_after)
        return status(code, message.replace("NAME", asked.name), reason=reason, retry_after=wait)

    return fault


def _commits_then(code: int, message: str) -> Fault:
    async def fault(
        server: FaultServer, request: web.Request, asked: Asked, injection: Injection
    ) -> web.StreamResponse:
        await server.serve(request, asked)
        return status(code, message)

    return fault


def _aborted(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def _commits_then_hangs(
    server: FaultServer, request: web.Request, asked: Asked, injection: Injection
) -> web.StreamResponse:
    await server.serve(request, asked)
    await server.down.wait()
    return _aborted(request)


async def _commits_then_resets(
    server: FaultServer, request: web.Request, asked: Asked, injection: Injection
) -> web.StreamResponse:
    await server.serve(request, asked)
    return _aborted(request)


async def _resets(server: FaultServer, request: web.Request, asked: Asked, injection: Injection) -> web.StreamResponse:
    await request.read()
    return _aborted(request)


async def _resets_then_commits(
    server: FaultServer, request: web.Request, asked: Asked, injection: Injection
) -> web.StreamResponse:
    """The connection is lost, and the request is done a moment later."""
    await request.read()

    async def later() -> None:
        await asyncio.sleep(injection.options.get("seconds", 0.05))
        await server.serve(request, asked)

    injection.options["task"] = asyncio.ensure_future(later())
    return _aborted(request)


async def _hangs(server: FaultServer, request: web.Request, asked: Asked, injection: Injection) -> web.StreamResponse:
    await request.read()
    await server.down.wait()
    return _aborted(request)


async def _slow(server: FaultServer, request: web.Request, asked: Asked, injection: Injection) -> web.StreamResponse:
    await asyncio.sleep(injection.options.get("seconds", 0.2))
    return await server.serve(request, asked)


async def _truncates(
    server: FaultServer, request: web.Request, asked: Asked, injection: Injection
) -> web.StreamResponse:
    answer = await server.serve(request, asked)
    body = bytes(answer.body)  # type: ignore[attr-defined]
    return web.Response(status=answer.status, body=body[: len(body) // 2], content_type="application/json")


async def _cuts(server: FaultServer, request: web.Request, asked: Asked, injection: Injection) -> web.StreamResponse:
    answer = await server.serve(request, asked)
    body = bytes(answer.body)  # type: ignore[attr-defined]
    response = await begun(request)
    await response.write(body[: len(body) // 2])
    return _aborted(request)


async def _page_of_a_proxy(
    server: FaultServer, request: web.Request, asked: Asked, injection: Injection
) -> web.StreamResponse:
    await request.read()
    code = injection.options.get("code", 502)
    return web.Response(status=code, text="<html><h1>Bad Gateway</h1></html>", content_type="text/html")


async def _restarts(
    server: FaultServer, request: web.Request, asked: Asked, injection: Injection
) -> web.StreamResponse:
    task = asyncio.ensure_future(server.restart(injection.options.get("seconds", 0.1)))
    injection.options["task"] = task
    return _aborted(request)


async def _behind(server: FaultServer, request: web.Request, asked: Asked, injection: Injection) -> web.StreamResponse:
    """Another API server answers, which has not heard the newest yet."""
    items, version = server.past or ([], 1)
    return server.page(asked, items, version, int(request.query.get("limit", 0)))


async def _continue_gone(
    server: FaultServer, request: web.Request, asked: Asked, injection: Injection
) -> web.StreamResponse:
    """Only further pages can be too late."""
    if request.query.get("continue"):
        return status(410, "The provided continue parameter is too old to display a consistent list result.")
    injection.done -= 1
    return await server.serve(request, asked)


async def _watch_gone(
    server: FaultServer, request: web.Request, asked: Asked, injection: Injection
) -> web.StreamResponse:
    return status(410, "too old resource version", reason="Expired")


async def _watch_gone_event(
    server: FaultServer, request: web.Request, asked: Asked, injection: Injection
) -> web.StreamResponse:
    return await gone(request)


async def _watch_error_event(
    server: FaultServer, request: web.Request, asked: Asked, injection: Injection
) -> web.StreamResponse:
    return await one_event(request, 500, "InternalError", "etcdserver: request timed out")


async def _watch_closes(
    server: FaultServer, request: web.Request, asked: Asked, injection: Injection
) -> web.StreamResponse:
    """All that is known is sent, then it ends in order."""
    response = await begun(request)
    await asyncio.sleep(injection.options.get("seconds", 0.0))
    watcher = server.watcher(request, asked, int(request.query["resourceVersion"]))
    server.objects.watchers.discard(watcher)
    await response.write(b"".join(watcher.lines))
    return response


async def _watch_hangs(
    server: FaultServer, request: web.Request, asked: Asked, injection: Injection
) -> web.StreamResponse:
    """Half open: neither a byte nor an end."""
    response = await begun(request)
    await server.down.wait()
    return response


async def _watch_cut(
    server: FaultServer, request: web.Request, asked: Asked, injection: Injection
) -> web.StreamResponse:
    """The connection breaks in the middle of a line."""
    response = await begun(request)
    watcher = server.watcher(request, asked, int(request.query["resourceVersion"]))
    server.objects.watchers.discard(watcher)
    lines = b"".join(watcher.lines) or server.bookmark(watcher)
    await response.write(lines[: max(1, len(lines) - 20)])
    return _aborted(request)


async def _watch_garbles(
    server: FaultServer, request: web.Request, asked: Asked, injection: Injection
) -> web.StreamResponse:
    response = await begun(request)
    await response.write(b'{"type": "ADDED", "object": \n')
    return response


async def _watch_repeats(
    server: FaultServer, request: web.Request, asked: Asked, injection: Injection
) -> web.StreamResponse:
    """Everything of the history once more, old versions too."""
    response = await begun(request)
    wanted = chosen(request)
    for change in list(server.objects.since(0, asked.resource, asked.namespace)):
        if (line := seen(change, wanted)) is not None:
            await response.write(line)
    return response


async def _watch_misses_deletions(
    server: FaultServer, request: web.Request, asked: Asked, injection: Injection
) -> web.StreamResponse:
    """Deletions are not told, then the history is forgotten."""
    response = await begun(request)
    watcher = server.watcher(request, asked, int(request.query["resourceVersion"]))
    try:
        for _ in range(int(injection.options.get("events", 1))):
            while not watcher.lines:
                watcher.news.clear()
                await watcher.news.wait()
            line = watcher.lines.popleft()
            if not line.startswith(b'{"type":"DELETED"'):
                await response.write(line)
    finally:
        server.objects.watchers.discard(watcher)
    server.objects.forget_history()
    return response


async def _watch_bookmarks_only(
    server: FaultServer, request: web.Request, asked: Asked, injection: Injection
) -> web.StreamResponse:
    return await server.watch(request, asked, bookmarks_only=True)


async def _watch_floods(
    server: FaultServer, request: web.Request, asked: Asked, injection: Injection
) -> web.StreamResponse:
    """So many events of one pod that is planted for it, as fast as they are read."""
    response = await begun(request)
    key = ("pods", asked.namespace, "flood")
    pod = server.objects.get(key) or server.plant("pods", asked.namespace, {**injection.options["pod"], "status": {}})
    lines = []
    for _ in range(int(injection.options.get("events", 1000))):
        pod = server.objects.put("MODIFIED", key, pod)
        lines.append(server.objects._history[-1].line)
    await response.write(b"".join(lines))
    return response


async def _etcd_restored(
    server: FaultServer, request: web.Request, asked: Asked, injection: Injection
) -> web.StreamResponse:
    """The cluster is set back to its backup. ``silent``: a watch from what is to come is not refused, and tells nothing."""
    server.restore()
    if injection.options.get("silent"):
        server.inject("watch_hangs", times=1)
    return _aborted(request)


_WRITES = ("create", "update", "delete")
_ALL = ("create", "get", "list", "watch", "update", "delete")
_QUOTA = 'Operation cannot be fulfilled on resourcequotas "pods": the object has been modified'

FAULTS: dict[str, tuple[tuple[str, ...], Fault]] = {
    "throttled": (_ALL, _answers(429, "Too many requests, please try again later.")),
    "throttled_retry_after": (_ALL, _answers(429, "Too many requests, please try again later.", retry_after=1)),
    "error_before_commit": (_ALL, _answers(500, "Internal error occurred: etcdserver: leader changed")),
    "unavailable_before_commit": (_ALL, _answers(503, "apiserver is shutting down", retry_after=1)),
    "post_commits_then_500": (
        ("create",),
        _commits_then(500, "Internal error occurred: etcdserver: request timed out"),
    ),
    "post_commits_then_503": (("create",), _commits_then(503, "service unavailable")),
    "post_commits_then_504": (("create",), _commits_then(504, "request did not complete within the allowed timeout")),
    "post_commits_then_timeout": (("create",), _commits_then_hangs),
    "post_commits_then_reset": (("create",), _commits_then_resets),
    "reset_then_done": (("create",), _resets_then_commits),
    "delete_commits_then_500": (("delete",), _commits_then(500, "Internal error occurred")),
    "update_commits_then_500": (("update",), _commits_then(500, "Internal error occurred")),
    "reset": (_ALL, _resets),
    "hangs": (_ALL, _hangs),
    "slow": (_ALL, _slow),
    "slow_list": (("list",), _slow),
    "truncated_json": (("create", "get", "list"), _truncates),
    "reset_mid_chunk": (("create", "get", "list"), _cuts),
    "page_of_a_proxy": (_ALL, _page_of_a_proxy),
    "api_server_restarts": (_ALL, _restarts),
    "token_refused": (_ALL, _answers(401, "Unauthorized")),
    "forbidden_once": (
        _ALL,
        _answers(403, 'pods is forbidden: User "test" cannot create resource "pods" in API group ""'),
    ),
    "quota_conflict": (("create",), _answers(409, _QUOTA, reason="Conflict")),
    "quota": (
        ("create",),
        _answers(
            403, 'pods "NAME" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=3, limited: pods=3'
        ),
    ),
    "pod_security": (
        ("create",),
        _answers(403, 'pods "NAME" is forbidden: violates PodSecurity "restricted:latest": privileged'),
    ),
    "policy_denies": (
        ("create",),
        _answers(
            422,
            "pods \"NAME\" is forbidden: ValidatingAdmissionPolicy 'orchestrate' with binding 'b' denied request: no class",
        ),
    ),
    "webhook_denies": (("create",), _answers(403, 'admission webhook "w.example.com" denied the request: not here')),
    "webhook_timeout": (
        ("create",),
        _answers(500, 'Internal error occurred: failed calling webhook "w": context deadline exceeded'),
    ),
    "webhook_timeout_after_commit": (
        ("create",),
        _commits_then(500, 'failed calling webhook "w": context deadline exceeded'),
    ),
    "behind": (("list",), _behind),
    "continue_gone": (("list",), _continue_gone),
    "watch_closes": (("watch",), _watch_closes),
    "watch_hangs": (("watch",), _watch_hangs),
    "watch_cut": (("watch",), _watch_cut),
    "watch_garbles": (("watch",), _watch_garbles),
    "watch_gone": (("watch",), _watch_gone),
    "watch_gone_event": (("watch",), _watch_gone_event),
    "watch_error_event": (("watch",), _watch_error_event),
    "watch_version_too_large": (
        ("watch",),
        _answers(504, "Too large resource version: 1000, current: 900", reason="Timeout"),
    ),
    "watch_repeats": (("watch",), _watch_repeats),
    "watch_misses_deletions": (("watch",), _watch_misses_deletions),
    "watch_bookmarks_only": (("watch",), _watch_bookmarks_only),
    "watch_floods": (("watch",), _watch_floods),
    "etcd_restored": (("watch",), _etcd_restored),
}
"""Every fault of the API and of watches: the verbs that it fits, and what it does."""
