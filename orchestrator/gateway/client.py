"""The driver's side of the gateway, over its unix socket."""

from __future__ import annotations

import base64
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from orchestrator.errors import GatewayError, StoreError
from orchestrator.gateway.wire import (
    Delivered,
    FreezeReport,
    LaunchBody,
    LaunchName,
    ProbeBody,
    Registered,
    StopAnswer,
    StopWord,
)
from orchestrator.interfaces import (
    Delivery,
    Door,
    Frozen,
    LaunchRequest,
    ProbeResult,
    Registration,
    RelaySink,
    Spending,
)
from orchestrator.records.ids import TrialId
from orchestrator.records.outcome import Seal

if TYPE_CHECKING:
    import aiohttp

_CONNECT_SECONDS = 10
_ANSWER_SECONDS = 120
Answer = TypeVar("Answer", bound=BaseModel)
_RESTARTED = {"unknown_launch": "gateway_restarted"}


class GatewayClient:
    """``interfaces.Gateway``. Every failure is a GatewayError whose ``cause`` is one of

    ``gateway_unreachable``, ``gateway_lost`` (the connection broke), ``gateway_timeout``, ``gateway_garbled``, ``gateway_restarted``
    (it does not know the launch any more), ``launch_sealed``, or the type that the gateway gave, such as ``stale_epoch``,
    ``unknown_provider``, ``unpriced_model``, ``script_missing``, ``already_sealed``. A store that fails behind the gateway is a StoreError
    with the store's own cause.
    """

    def __init__(self, socket: str, door: str, admin_token: str) -> None:
        self._socket = socket
        self._door = door
        self._token = admin_token
        self._session: aiohttp.ClientSession | None = None
        self._names: dict[str, LaunchName] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def register(self, request: LaunchRequest) -> Registration:
        """Make a launch known. Raises GatewayError, StoreError."""
        body = LaunchBody.of(request)
        made = await self._ask("POST", "/admin/launches", Registered, body)
        self._names[made.launch] = LaunchName(run=body.run, trial=body.trial, launch=body.launch, epoch=body.epoch)
        return Registration(
            launch=made.launch,
            agent_token=made.agent_token,
            door=Door(socket=self._door, token=made.freezer_token),
            sink=RelaySink(socket=self._socket, token=made.freezer_token),
        )

    async def stop_reason(self, launch: str) -> StopWord:
        """Wait until the gateway wants the launch stopped. Raises GatewayError, ``launch_sealed`` when it was sealed instead."""
        while True:
            answer = await self._ask("GET", f"/admin/launches/{launch}/stop", StopAnswer)
            if answer.stopped is not None:
                return answer.stopped
            if answer.sealed:
                msg = f"launch {launch} was sealed while its stop was waited for"
                raise GatewayError(msg, cause="launch_sealed")

    async def seal(self, launch: str) -> Seal:
        """Seal a launch that this client registered. Raises GatewayError, StoreError."""
        name = self._names.get(launch)
        if name is None:
            msg = f"launch {launch} was not registered by this driver"
            raise GatewayError(msg, cause="gateway_unknown_launch")
        return await self._ask("POST", f"/admin/launches/{launch}/seal", Seal, name)

    async def stop(self, launch: str) -> None:
        """Have the launch stopped by its pod's freezer. Raises GatewayError."""
        await self._ask("POST", f"/admin/launches/{launch}/stop", StopAnswer)

    async def delivered(self, launch: str) -> Delivery:
        """Wait until a pod's freezer has delivered. Raises GatewayError, StoreError."""
        while True:
            answer = await self._ask("GET", f"/admin/launches/{launch}/delivered", Delivered)
            if answer.report is not None:
                return _delivery(answer, answer.report)

    async def probe(self, model: str) -> ProbeResult:
        """Make one tiny call to a model. Raises GatewayError."""
        return await self._ask("POST", "/admin/probe", ProbeResult, ProbeBody(model=model))

    async def spending(self, run: str) -> Spending:
        """Return what the launches of a run have used here so far. Raises GatewayError."""
        return await self._ask("GET", f"/admin/runs/{quote(run, safe='')}", Spending)

    async def seal_lost(self, run: str, trial: TrialId, launch: int, epoch: int) -> Seal | None:
        """Seal a launch that another client registered; None when the gateway does not know it. Raises GatewayError."""
        name = LaunchName(run=run, trial=str(trial), launch=launch, epoch=epoch)
        try:
            return await self._ask("POST", f"/admin/launches/{name.id}/seal", Seal, name)
        except GatewayError as error:
            if error.cause == _RESTARTED["unknown_launch"]:
                return None
            raise

    async def _ask(self, method: str, path: str, answer: type[Answer], body: BaseModel | None = None) -> Answer:
        status, data = await self._send(method, path, body)
        if status != 200:
            raise _refused(status, data, f"{method} {path}")
        try:
            return answer.model_validate_json(data)
        except (ValidationError, StoreError) as error:
            msg = f"the gateway's answer to {method} {path} is not a {answer.__name__}"
            raise GatewayError(msg, cause="gateway_garbled") from error

    async def _send(self, method: str, path: str, body: BaseModel | None) -> tuple[int, bytes]:
        import aiohttp

        session = self._connected()
        data = body.model_dump_json().encode() if body is not None else None
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            async with session.request(method, f"http://gateway{path}", data=data, headers=headers) as response:
                return response.status, await response.read()
        except aiohttp.ClientConnectorError as error:
            msg = f"the gateway at {self._socket} cannot be reached: {error.os_error.strerror}"
            raise GatewayError(msg, cause="gateway_unreachable") from None
        except TimeoutError:
            msg = f"the gateway did not answer {method} {path} within {_ANSWER_SECONDS} s"
            raise GatewayError(msg, cause="gateway_timeout") from None
        except (aiohttp.ClientError, OSError) as error:
            msg = f"the connection to the gateway broke at {method} {path}: {type(error).__name__}"
            raise GatewayError(msg, cause="gateway_lost") from None

    def _connected(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(self._socket, limit=0),
                timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS, sock_connect=_CONNECT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def _delivery(answer: Delivered, report: FreezeReport) -> Delivery:
    frozen = Frozen(
        state=answer.state,
        output=base64.b64decode(report.output_b64),
        output_blob=answer.output,
        final=None if report.final_b64 is None else base64.b64decode(report.final_b64),
        findings=report.findings,
    )
    return Delivery(
        frozen=frozen,
        exit=report.exit,
        started=report.started,
        ended=report.ended,
        disk_bytes=report.disk_bytes,
    )


def _refused(status: int, data: bytes, what: str) -> GatewayError | StoreError:
    import json

    try:
        error = json.loads(data)["error"]
        kind, message = str(error["type"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        return GatewayError(f"the gateway answered {what} with status {status}", cause="gateway_garbled")
    if status == 503:  # nothing else of the gateway's is answered so
        return StoreError(f"the gateway could not {what}: {message}", cause=kind)
    return GatewayError(f"the gateway refused {what}: {message}", cause=_RESTARTED.get(kind, kind))
