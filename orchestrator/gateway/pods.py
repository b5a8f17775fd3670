"""What pods ask of the gateway, on the one port that they reach: agents by the agent's token, our own programs beside them by theirs.

``prepare`` asks for canaries and bundles and says when it has begun; from then on the launch's tokens are good from that pod alone.
``freezer`` waits for orders, says that the agent is dead where nobody else can (``dead``), and reports what it has delivered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from orchestrator.errors import StoreError
from orchestrator.gateway.agent import shown_token
from orchestrator.gateway.body import read_body
from orchestrator.gateway.canaries import CanaryWatch
from orchestrator.gateway.delivery import take_report
from orchestrator.gateway.findings import printable
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.pod import Begun
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.registry import Registry
from orchestrator.gateway.sealing import seal
from orchestrator.gateway.tokens import Role
from orchestrator.gateway.wire import Canaries, FreezeReport, Orders, Prepared
from orchestrator.interfaces import ObjectStore
from orchestrator.records import headers, keys

log = logging.getLogger(__name__)

LONG_POLL_SECONDS = 25.0
"""How long a question for orders is held."""
_SHORT_POLL_SECONDS = 1.0
"""The same for a freezer that has not seen the agent start."""
_REPORT_BYTES = 8 << 20
_BODY_SECONDS = 60.0

Model = TypeVar("Model", bound=BaseModel)
_Answer = Callable[[Launch, web.BaseRequest, str | None], Awaitable[web.StreamResponse]]
_BUNDLES = "/launch/bundle/"


class PodSide:
    """Answers the requests of all pods."""

    def __init__(self, registry: Registry, store: ObjectStore, canaries: CanaryWatch) -> None:
        self._registry = registry
        self._store = store
        self._canaries = canaries
        self._routes: dict[tuple[str, str], tuple[Role, _Answer]] = {
            ("GET", "/launch/canaries"): ("prepare", self._alive),
            ("GET", _BUNDLES): ("prepare", self._bundle),
            ("POST", "/launch/prepared"): ("prepare", self._prepared),
            ("GET", "/launch/stop"): ("freezer", self._orders),
            ("POST", "/launch/dead"): ("freezer", self._dead),
            ("POST", "/launch/frozen"): ("freezer", self._frozen),
        }

    async def answer(self, request: web.BaseRequest, peer: str | None) -> web.StreamResponse:
        """Answer one request that came from an address. Nothing is raised."""
        if (request.method, request.path) == ("GET", "/healthz"):
            return web.json_response({"ok": True})
        try:
            return await self._answer(request, peer)
        except Refusal as refusal:
            self._blame(peer, refusal, request)
            return refusal.response()
        except StoreError as error:
            log.error("%s %s: %s", request.method, printable(request.path, 200), error)
            return Refusal(503, error.cause, str(error), close=True).response()
        except Exception:  # a fault of ours; whoever asked tries again
            log.exception("fault while answering %s", printable(request.path, 200))
            return Refusal(500, "gateway_fault", "the gateway failed", close=True).response()

    async def _answer(self, request: web.BaseRequest, peer: str | None) -> web.StreamResponse:
        token = shown_token(request)
        if not token:
            msg = "there is no token; send the value of ORCHESTRATE_TOKEN as `Authorization: Bearer …`"
            raise Refusal(401, "no_token", msg, finding=True, close=True)
        path = _BUNDLES if request.path.startswith(_BUNDLES) else request.path
        role, answer = self._routes.get((request.method, path), ("agent", self._agent))
        launch = self._registry.bearer_of(token, role, peer)
        return await answer(launch, request, peer)

    async def _agent(self, launch: Launch, request: web.BaseRequest, _peer: str | None) -> web.StreamResponse:
        async with launch.pod.requests.taken():
            await self._registry.parked()
            if not launch.sealing:
                launch.start_clock()
            return await self._registry.agents.answer(launch, request)

    async def _alive(self, _launch: Launch, _request: web.BaseRequest, _peer: str | None) -> web.StreamResponse:
        return _json(Canaries(canaries=self._canaries.alive()))

    async def _bundle(self, launch: Launch, request: web.BaseRequest, _peer: str | None) -> web.StreamResponse:
        audience, _, digest = request.path.removeprefix(_BUNDLES).partition("/")
        plain = digest.removeprefix("sha256:")
        for bundle in launch.body.bundles:
            if (audience, plain) == (bundle.audience, bundle.digest.removeprefix("sha256:")):
                return await self._stream(request, keys.bundle(bundle.audience, bundle.digest))
        msg = f"{printable(audience, 20)} bundle {printable(digest, 80)} is not one of this launch's"
        raise Refusal(404, "unknown_bundle", msg)

    async def _stream(self, request: web.BaseRequest, key: str) -> web.StreamResponse:
        pieces = self._store.stream(key)
        first = await anext(pieces, b"")  # what is not there is refused while that can still be said
        response = web.StreamResponse(headers={"Content-Type": "application/x-tar"})
        try:
            await response.prepare(request)
            await response.write(first)
            async for piece in pieces:
                await response.write(piece)
            await response.write_eof()
        except StoreError as error:
            log.error("bundle %s broke off: %s", key, error)
            if request.transport is not None:
                request.transport.abort()  # without the last chunk: whoever reads it knows that it is not whole
        except (
            ConnectionError
        ):  # whoever reads it stops at the end of the archive, which may come before that of the stream
            pass
        return response

    async def _prepared(self, launch: Launch, request: web.BaseRequest, peer: str | None) -> web.StreamResponse:
        uid = printable(request.headers.get(headers.POD, ""), 100)
        if not uid:
            raise Refusal(400, "invalid_request", f"the header {headers.POD} with the pod's uid is missing")
        if launch.sealing:
            raise Refusal(403, "sealed", "the launch is over; nothing may begin any more", close=True)
        self._registry.begin(launch, Begun(uid=uid, address=peer))
        log.info("launch %s: begun by pod %s at %s", launch.id, uid, peer or "a hidden address")
        return _json(Prepared(launch=launch.id))

    async def _orders(self, launch: Launch, request: web.BaseRequest, _peer: str | None) -> web.StreamResponse:
        started = request.query.get("started") != "0"
        if started and not launch.sealing:
            launch.start_clock()
        if (
            launch.pod.told
        ):  # what remains to be said is the seal; the rest is said again, since an answer may have been lost
            await first_of(launch.sealed, seconds=_SHORT_POLL_SECONDS)
        else:
            seconds = LONG_POLL_SECONDS if started else _SHORT_POLL_SECONDS
            await first_of(launch.stop, launch.pod.halted, launch.sealed, seconds=seconds)
        orders = launch.orders()
        launch.pod.told = launch.pod.told or orders.stopped is not None
        return _json(orders)

    async def _dead(self, launch: Launch, _request: web.BaseRequest, _peer: str | None) -> web.StreamResponse:
        log.info("launch %s: its freezer says that the agent is dead", launch.id)
        # A caller that hangs up must not leave a launch half sealed.
        await asyncio.shield(asyncio.create_task(seal(launch, self._store)))
        return _json(Orders(sealed=True))

    async def _frozen(self, launch: Launch, request: web.BaseRequest, _peer: str | None) -> web.StreamResponse:
        data = await read_body(request, _REPORT_BYTES, _BODY_SECONDS)
        report = parse(FreezeReport, data)
        await take_report(launch, report, self._store)
        lost = printable(report.lost or "")
        log.info("launch %s: %s", launch.id, f"lost its state: {lost}" if lost else "delivered")
        return _json(Orders(sealed=True))

    def _blame(self, peer: str | None, refusal: Refusal, request: web.BaseRequest) -> None:
        """Note what was tried on the launch whose pod has the address, whatever token it showed."""
        launch = self._registry.at(peer)
        if launch is not None:
            launch.refused(refusal, f"{printable(request.method, 20)} {printable(request.path, 100)}")


async def first_of(*events: asyncio.Event, seconds: float) -> None:
    """Wait until one of the events is set, at most so long."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def parse(model: type[Model], data: bytes) -> Model:
    """Return a body as a model. Raises Refusal 400."""
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        msg = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise Refusal(400, "invalid_request", msg) from None


def _json(record: BaseModel) -> web.Response:
    return web.json_response(text=record.model_dump_json())
