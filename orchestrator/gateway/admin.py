"""The unix socket's side: the driver registers, waits and seals; the freezer waits and delivers."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar, get_args

from aiohttp import web
from pydantic import BaseModel, ValidationError

from orchestrator.errors import StoreError
from orchestrator.gateway.launch import Launch, Part
from orchestrator.gateway.probe import probe
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.registry import Registry
from orchestrator.gateway.relay import put_state
from orchestrator.gateway.sealing import seal, stored_seal
from orchestrator.gateway.tokens import bearer
from orchestrator.gateway.wire import LaunchBody, LaunchName, ProbeBody, StopAnswer
from orchestrator.interfaces import ObjectStore

log = logging.getLogger(__name__)

LONG_POLL_SECONDS = 25.0
"""How long a request for ``stop`` is held."""

Model = TypeVar("Model", bound=BaseModel)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_PARTS: dict[str, Part] = {part: part for part in get_args(Part)}


class AdminSide:
    """Handlers of the unix socket."""

    def __init__(self, registry: Registry, store: ObjectStore, admin_token: str) -> None:
        self._registry = registry
        self._store = store
        self._admin_token = admin_token

    def application(self) -> web.Application:
        """Return the application to serve."""
        app = web.Application(middlewares=[_typed_errors], client_max_size=4 << 20)
        app.add_routes(
            [
                web.get("/healthz", _healthz),
                web.post("/admin/launches", self._register),
                web.get("/admin/runs/{run}", self._spending),
                web.get("/admin/launches/{launch}/stop", self._stop),
                web.post("/admin/launches/{launch}/seal", self._seal),
                web.post("/admin/probe", self._probe),
                web.get("/launch/stop", self._freezer_stop),
                web.put(f"/launch/state/{{part:{'|'.join(_PARTS)}}}", self._state),
            ]
        )
        return app

    async def _register(self, request: web.Request) -> web.Response:
        self._authorise(request)
        body = await _parse(LaunchBody, request)
        return _json(await self._registry.register(body))

    async def _spending(self, request: web.Request) -> web.Response:
        self._authorise(request)
        return _json(self._registry.spending(request.match_info["run"]))

    async def _stop(self, request: web.Request) -> web.Response:
        self._authorise(request)
        return _json(await _wait_for_stop(self._registry.find(request.match_info["launch"])))

    async def _probe(self, request: web.Request) -> web.Response:
        self._authorise(request)
        body = await _parse(ProbeBody, request)
        return _json(await probe(self._registry.configured(body.model)))

    async def _freezer_stop(self, request: web.Request) -> web.Response:
        return _json(await _wait_for_stop(self._freezer(request)))

    async def _seal(self, request: web.Request) -> web.Response:
        self._authorise(request)
        name = await _parse(LaunchName, request)
        if name.id != request.match_info["launch"]:
            raise Refusal(400, "launch_differs", "the launch in the path is not the one in the body")
        self._registry.check_epoch(name.run, name.epoch)
        try:
            launch = self._registry.find(name.id)
        except Refusal:
            # After a restart: a launch that was sealed before keeps its seal.
            found = await stored_seal(name, self._store)
            if found is None:
                raise
            return _json(found)
        # A caller that hangs up must not leave a launch half sealed.
        return _json(await asyncio.shield(asyncio.create_task(seal(launch, self._store))))

    async def _state(self, request: web.Request) -> web.Response:
        part = _PARTS[request.match_info["part"]]
        return await put_state(self._freezer(request), part, request, self._store)

    def _freezer(self, request: web.Request) -> Launch:
        return self._registry.freezer(bearer(request.headers.get("Authorization")))

    def _authorise(self, request: web.Request) -> None:
        shown = bearer(request.headers.get("Authorization")).encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(shown, self._admin_token.encode()):
            raise Refusal(401, "bad_token", "the admin token is missing or wrong", close=True)


@web.middleware
async def _typed_errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refusal as refusal:
        return refusal.response()
    except StoreError as error:
        log.error("%s %s: %s", request.method, request.path, error)
        return Refusal(503, error.cause, str(error), close=True).response()


async def _healthz(_request: web.Request) -> web.Response:
    return web.json_response({"ok": True})


async def _wait_for_stop(launch: Launch) -> StopAnswer:
    waits = [asyncio.create_task(launch.stop.wait()), asyncio.create_task(launch.sealed.wait())]
    try:
        await asyncio.wait(waits, timeout=LONG_POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return StopAnswer(stopped=launch.stopped if launch.stop.is_set() else None, sealed=launch.sealed.is_set())


async def _parse(model: type[Model], request: web.Request) -> Model:
    try:
        found = model.model_validate_json(await request.read())
        if isinstance(found, LaunchName):
            _ = found.trial_id
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        msg = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise Refusal(400, "invalid_request", msg) from None
    except ValueError as error:
        raise Refusal(400, "invalid_request", str(error)) from None
    return found


def _json(record: BaseModel) -> web.Response:
    return web.json_response(text=record.model_dump_json())
