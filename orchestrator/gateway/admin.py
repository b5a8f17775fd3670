"""The driver's side: it registers, waits, stops and seals. On one machine freezers come this way too, by the same unix socket; on a cluster
relays and the reaper do, with tokens of their own.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, TypeVar

from aiohttp import web
from pydantic import BaseModel, SecretStr

import orchestrator
from orchestrator.errors import StoreError
from orchestrator.gateway.delivery import LaunchDesk, delivery
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.past import delivered_name, stored_seal
from orchestrator.gateway.pods import LONG_POLL_SECONDS, first_of, parse
from orchestrator.gateway.probe import probe
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.registry import Registry
from orchestrator.gateway.relay import PARTS, Relay
from orchestrator.gateway.sealing import seal
from orchestrator.gateway.tokens import bearer
from orchestrator.gateway.wire import (
    AdmitBody,
    Delivered,
    Instance,
    LaunchBody,
    LaunchName,
    News,
    PartBody,
    Parts,
    ProbeBody,
    StopAnswer,
)
from orchestrator.interfaces import ObjectStore
from orchestrator.records.outcome import Seal

log = logging.getLogger(__name__)

_WRONG = "not_authorised"
"""The asker's own token is wrong, not one that is asked about."""
AdminRole = Literal["driver", "relay", "reaper"]
_MOST_BYTES = 4 << 20
_NEWS = 1000
"""Launches in one answer."""
_UPLOADS = 256
"""Parts of states that are taken at one time, on one machine, which has no more trials at one time."""

Name = TypeVar("Name", bound=LaunchName)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AdminSide:
    """Handlers of those who run launches. ``tokens`` says who may come: each role has its own endpoints."""

    def __init__(self, registry: Registry, store: ObjectStore, tokens: Mapping[AdminRole, SecretStr]) -> None:
        self._registry = registry
        self._store = store
        self._tokens = tokens
        self._desk = LaunchDesk(registry)

    def application(self) -> web.Application:
        """Return the application to serve."""
        app = _application()
        app.add_routes(
            [
                web.get("/admin/instance", self._only("driver", self._instance)),
                web.post("/admin/launches", self._only("driver", self._register)),
                web.get("/admin/runs/{run}", self._only("driver", self._spending)),
                web.get("/admin/runs/{run}/news", self._only("driver", self._news)),
                web.get("/admin/launches/{launch}/stop", self._only("driver", self._stop)),
                web.post("/admin/launches/{launch}/stop", self._only("driver", self._halt)),
                web.post("/admin/launches/{launch}/seal", self._only("driver", self._seal)),
                web.get("/admin/launches/{launch}/delivered", self._only("driver", self._delivered)),
                web.post("/admin/probe", self._only("driver", self._probe)),
            ]
        )
        if "relay" in self._tokens:
            app.add_routes(
                [
                    web.post("/relay/admit", self._only("relay", self._admit)),
                    web.post("/relay/parts", self._only("relay", self._parts)),
                ]
            )
        if "reaper" in self._tokens:
            app.add_routes([web.post("/reaper/launches/{launch}/seal", self._only("reaper", self._reap))])
        return app

    def _only(self, role: AdminRole, handler: _Handler) -> _Handler:
        """Return the handler for those alone who show the token of the role."""
        wanted = self._tokens[role].get_secret_value().encode()

        async def checked(request: web.Request) -> web.StreamResponse:
            shown = bearer(request.headers.get("Authorization")).encode("utf-8", "surrogateescape")
            if not hmac.compare_digest(shown, wanted):
                raise Refusal(401, _WRONG, f"the {role}'s token is missing or wrong", close=True)
            return await handler(request)

        return checked

    async def _instance(self, _request: web.Request) -> web.Response:
        return _json(Instance(instance=self._registry.instance, version=orchestrator.__version__))

    async def _register(self, request: web.Request) -> web.Response:
        return _json(await self._registry.register(await _named(LaunchBody, request)))

    async def _spending(self, request: web.Request) -> web.Response:
        return _json(self._registry.spending(request.match_info["run"]))

    async def _news(self, request: web.Request) -> web.Response:
        run, registry = request.match_info["run"], self._registry
        try:
            epoch, instance, after = (request.query[name] for name in ("epoch", "instance", "after"))
            number, place = int(epoch), int(after)
        except (KeyError, ValueError):
            msg = "a question for news has the run's epoch, and instance and last of the answer before as instance and after"
            raise Refusal(400, "invalid_request", msg) from None
        registry.check_epoch(run, number)
        news = registry.news(run)
        goes_on = instance == registry.process and news.is_whole_since(place)
        if goes_on and not news.since(place, 1):
            await news.more(LONG_POLL_SECONDS)
            registry.check_epoch(run, number)  # another driver may have come meanwhile
            goes_on = news.is_whole_since(place)
        since = place if goes_on else 0
        told = news.since(since, _NEWS)
        return _json(
            News(
                instance=registry.process,
                last=told[-1][1] if told else news.last,
                anew=not goes_on,
                whole=news.is_whole_since(since),
                launches=tuple(registry.find(launch).news() for launch, _ in told),
            )
        )

    async def _stop(self, request: web.Request) -> web.Response:
        name = self._held(_name_of(request), request)
        try:
            launch = self._find(name)
        except Refusal:
            # After a restart: what was sealed and delivered before is a result, and nothing is left to be stopped.
            if await delivered_name(name, self._store) is None:
                raise
            return _json(StopAnswer(sealed=True))
        await first_of(launch.stop, launch.sealed, seconds=LONG_POLL_SECONDS)
        return _json(
            StopAnswer(stopped=launch.stopped if launch.stop.is_set() else None, sealed=launch.sealed.is_set())
        )

    async def _halt(self, request: web.Request) -> web.Response:
        launch = self._find(self._held(await _named(LaunchName, request), request))
        if not launch.stop.is_set():  # a limit that was reached first is the reason
            launch.pod.halted.set()
            launch.keep()
        return _json(
            StopAnswer(stopped=launch.stopped if launch.stop.is_set() else None, sealed=launch.sealed.is_set())
        )

    async def _probe(self, request: web.Request) -> web.Response:
        body = parse(ProbeBody, await request.read())
        return _json(await probe(self._registry.models.configured(body.model)))

    async def _seal(self, request: web.Request) -> web.Response:
        name = self._held(await _named(LaunchName, request), request)
        try:
            launch = self._find(name)
        except Refusal:
            # After a restart: a launch that was sealed before keeps its seal.
            found = await stored_seal(name, self._store, any_epoch=self._registry.serves_pods)
            if found is None:
                raise
            return _json(found)
        return _json(await self._sealed(launch))

    async def _reap(self, request: web.Request) -> web.Response:
        launch = self._registry.find(request.match_info["launch"])
        if launch.seal is None:
            log.info("launch %s: sealed by the reaper", launch.id)
        return _json(await self._sealed(launch))

    async def _sealed(self, launch: Launch) -> Seal:
        # A caller that hangs up must not leave a launch half sealed.
        return await asyncio.shield(asyncio.create_task(seal(launch, self._store)))

    async def _delivered(self, request: web.Request) -> web.Response:
        asked = self._held(_name_of(request), request)
        name: LaunchName | None
        try:
            launch = self._find(asked)
        except Refusal:
            # After a restart: what was delivered before is in the store.
            name = await delivered_name(asked, self._store)
            if name is None:
                raise
        else:
            await first_of(launch.pod.delivered, seconds=LONG_POLL_SECONDS)
            name = launch.body if launch.pod.delivered.is_set() else None
        found = None if name is None else await delivery(name, self._store)
        return _json(found or Delivered())

    async def _admit(self, request: web.Request) -> web.Response:
        body = parse(AdmitBody, await request.read())
        return _json(await self._desk.admit(body.token, body.peer))

    async def _parts(self, request: web.Request) -> web.Response:
        body = parse(PartBody, await request.read())
        return _json(Parts(done=dict(await self._desk.commit(body.launch, body.part, body.blob))))

    def _held(self, name: LaunchName, request: web.Request) -> LaunchName:
        """Return the launch that a request of a driver is about. Raises Refusal for a driver whose run another one has taken."""
        if name.id != request.match_info["launch"]:
            raise Refusal(400, "launch_differs", "the launch in the path is not the one that is named")
        self._registry.check_epoch(name.run, name.epoch)
        return name

    def _find(self, name: LaunchName) -> Launch:
        return self._registry.find(name.id)


class FreezerSide:
    """The relay on one machine: freezers come by the driver's unix socket, with the freezer's token."""

    def __init__(self, registry: Registry, store: ObjectStore) -> None:
        self._desk = LaunchDesk(registry)
        self._registry = registry
        self._relay = Relay(store, _UPLOADS)

    def add_to(self, app: web.Application) -> None:
        """Add the handlers."""
        app.add_routes(
            [
                web.get("/launch/stop", self._stop),
                web.put(f"/launch/state/{{part:{'|'.join(PARTS)}}}", self._state),
            ]
        )

    async def _stop(self, request: web.Request) -> web.Response:
        launch = self._registry.bearer_of(bearer(request.headers.get("Authorization")), "freezer")
        await first_of(launch.stop, launch.pod.halted, launch.sealed, seconds=LONG_POLL_SECONDS)
        return _json(launch.orders())

    async def _state(self, request: web.Request) -> web.Response:
        return await self._relay.put(self._desk, PARTS[request.match_info["part"]], request)


def _application() -> web.Application:
    app = web.Application(middlewares=[_typed_errors], client_max_size=_MOST_BYTES)
    app.router.add_get("/healthz", _healthz)
    return app


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
    return web.json_response({"ok": True, "version": orchestrator.__version__})


async def _named(model: type[Name], request: web.Request) -> Name:
    return _checked(parse(model, await request.read()))


def _name_of(request: web.Request) -> LaunchName:
    """Return the launch that the query names in full. Raises Refusal."""
    query = request.query
    try:
        return _checked(
            LaunchName(run=query["run"], trial=query["trial"], launch=int(query["launch"]), epoch=int(query["epoch"]))
        )
    except (KeyError, ValueError):
        msg = "the query names no launch: run, trial, launch and epoch are needed"
        raise Refusal(400, "invalid_request", msg) from None


def _checked(name: Name) -> Name:
    try:
        _ = name.trial_id
    except ValueError as error:
        raise Refusal(400, "invalid_request", str(error)) from None
    return name


def _json(record: BaseModel) -> web.Response:
    return web.json_response(text=record.model_dump_json())
