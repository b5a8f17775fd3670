"""The relay as a service of its own, in any number of replicas: it asks the launch's gateway who comes, and keeps nothing itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from aiohttp import web
from pydantic import BaseModel, SecretStr

from orchestrator.errors import GatewayError, StoreError
from orchestrator.gateway.config import CheckedConfig
from orchestrator.gateway.findings import printable
from orchestrator.gateway.front import Front, FrontLimits, listen, most_connections
from orchestrator.gateway.lanes import Rate
from orchestrator.gateway.line import Line, error_of
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.relay import PARTS, Relay
from orchestrator.gateway.serving import until_terminated
from orchestrator.gateway.tokens import bearer, claimed_role
from orchestrator.gateway.wire import Admission, AdmitBody, Part, PartBody, Parts
from orchestrator.interfaces import ObjectStore
from orchestrator.records import headers
from orchestrator.records.base import BlobRef

log = logging.getLogger(__name__)

"""Which of the configured gateways knows the launch, from 0."""
_STATE = "/launch/state/"
_PATIENCE_SECONDS = 10.0
"""How long a gateway may be away; then the freezer is told, and comes again."""
_QUESTIONS = 64
"""Questions to gateways at one time, of all pods."""
_PEER = 16
"""Connections from one pod: its freezer needs one."""
_RATE = Rate(per_second=2, burst=20)
"""New ones: a freezer needs three. What a hostile agent asks here, the relay would ask a gateway."""
Answer = TypeVar("Answer", bound=BaseModel)


class RelayConfig(CheckedConfig):
    """The whole configuration of a relay."""

    listen: str
    """``HOST:PORT`` that pods reach."""
    gateways: tuple[str, ...]
    """Admin addresses of the gateways, in the order that drivers have them in."""
    token: SecretStr
    """What the relay shows at gateways."""
    uploads: int = 16
    """Parts of states that are taken at one time: each may take 24 MiB of memory."""
    pod_addresses: bool = True
    """Whether connections come from the pods' own addresses."""


class GatewayDesk:
    """``relay.Desk`` at a gateway."""

    def __init__(self, line: Line, questions: asyncio.Semaphore) -> None:
        self._line = line
        self._questions = questions

    async def admit(self, token: str, peer: str | None) -> Admission:
        """Return the launch whose freezer shows this token. Raises Refusal."""
        return await self._ask("/relay/admit", AdmitBody(token=token, peer=peer), Admission)

    async def commit(self, launch: str, part: Part, blob: BlobRef) -> Mapping[Part, BlobRef]:
        """Note a part, unless there is one. Raises Refusal."""
        return (await self._ask("/relay/parts", PartBody(launch=launch, part=part, blob=blob), Parts)).done

    async def _ask(self, path: str, body: BaseModel, answer: type[Answer]) -> Answer:
        """Ask, and pass a refusal on as the gateway gave it; a gateway that fails is a passing failure, 503."""
        try:
            async with self._questions:
                status, data = await self._line.send("POST", path, body)
            if status == 200:
                return answer.model_validate_json(data)
        except GatewayError as error:
            raise Refusal(503, error.cause, str(error), close=True) from None
        except ValueError:
            status, data = 502, b""
        kind, message = error_of(data) or ("gateway_garbled", f"the gateway answered {path} with status {status}")
        if status < 500 and kind != "not_authorised":  # that is about us, not about whoever came
            raise Refusal(status, kind, message, close=True)
        log.error("the gateway at %s: %s", self._line.place, message)
        raise Refusal(503, kind, message, close=True)


class RelaySide:
    """Answers the freezers of all pods."""

    def __init__(self, store: ObjectStore, lines: Sequence[Line], uploads: int) -> None:
        questions = asyncio.Semaphore(_QUESTIONS)
        self._relay = Relay(store, uploads)
        self._desks = [GatewayDesk(line, questions) for line in lines]

    async def answer(self, request: web.BaseRequest, peer: str | None) -> web.StreamResponse:
        """Answer one request that came from an address. Nothing is raised."""
        if (request.method, request.path) == ("GET", "/healthz"):
            return web.json_response({"ok": True})
        try:
            return await self._answer(request, peer)
        except Refusal as refusal:
            return refusal.response()
        except StoreError as error:
            log.error("%s %s: %s", request.method, printable(request.path, 200), error)
            return Refusal(503, error.cause, str(error), close=True).response()
        except ConnectionError:  # the freezer hung up; it comes again, or is gone
            return Refusal(400, "broken_request", "the request broke off", close=True).response()
        except Exception:  # a fault of ours; the freezer tries again
            log.exception("fault while answering %s", printable(request.path, 200))
            return Refusal(500, "relay_fault", "the relay failed", close=True).response()

    async def _answer(self, request: web.BaseRequest, peer: str | None) -> web.StreamResponse:
        part = PARTS.get(request.path.removeprefix(_STATE)) if request.path.startswith(_STATE) else None
        if request.method != "PUT" or part is None:
            msg = f"there is only PUT {_STATE}{'|'.join(PARTS)} here"
            raise Refusal(404, "not_found", msg, close=True)
        role = claimed_role(bearer(request.headers.get("Authorization")))
        if role is None:
            raise Refusal(401, "bad_token", "the freezer's token is missing or is none of a gateway's", close=True)
        if role != "freezer":
            raise Refusal(403, "wrong_token", "a freezer's token is needed", close=True)
        return await self._relay.put(self._desk(request.headers.get(headers.GATEWAY, "")), part, request, peer)

    def _desk(self, index: str) -> GatewayDesk:
        if not index.isascii() or not index.isdigit() or len(index) > 4 or int(index) >= len(self._desks):
            msg = f"the header {headers.GATEWAY} must be a number below {len(self._desks)}"
            raise Refusal(400, "invalid_request", msg, close=True)
        return self._desks[int(index)]


async def serve_relay(config: RelayConfig, store: ObjectStore) -> None:
    """Serve until SIGTERM. Raises GatewayError when the port cannot be had."""
    over = asyncio.Event()
    until_terminated(over)
    async with running_relay(config, store):
        log.info("relay serves pods at %s, for %d gateways", config.listen, len(config.gateways))
        await over.wait()
        log.info("relay ends")


@asynccontextmanager
async def running_relay(config: RelayConfig, store: ObjectStore) -> AsyncIterator[int]:
    """Serve while the context is open; gives the port. Raises GatewayError when it cannot be had."""
    async with AsyncExitStack() as stack:
        token = config.token.get_secret_value()
        lines = [Line(url, token, patience_s=_PATIENCE_SECONDS) for url in config.gateways]
        for line in lines:
            stack.push_async_callback(line.close)
        limits = FrontLimits(peer=_PEER, total=most_connections(), rate=_RATE, by_address=config.pod_addresses)
        front = Front(listen(config.listen), RelaySide(store, lines, config.uploads).answer, limits)
        stack.push_async_callback(front.close)
        yield front.port
