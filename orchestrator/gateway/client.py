"""The driver's side of the gateways: one on its own machine, or several on a cluster, of which each launch has one."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self
from urllib.parse import quote, urlsplit

from orchestrator.errors import GatewayError
from orchestrator.gateway.feed import Feed, Heard
from orchestrator.gateway.line import POLL_SECONDS, RESTARTED, Line, is_unanswered
from orchestrator.gateway.resolve import resolve
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
    PodDoor,
    PodSink,
    ProbeResult,
    Registration,
    RelaySink,
    Spending,
)
from orchestrator.records.ids import TrialId, launch_id
from orchestrator.records.outcome import Seal
from orchestrator.records.state import Finding

PATIENCE_SECONDS = 120.0
"""How long a gateway of a cluster may be away: its pod is started again, or moves to another node."""


class Entrance(Protocol):
    """How sandboxes get in."""

    async def of(self, made: Registered, index: int) -> tuple[Door | PodDoor, RelaySink | PodSink]:
        """Return door and sink of a launch that gateway number ``index`` has registered. Raises GatewayError."""
        ...

    def forget(self) -> None:
        """Find addresses anew: a gateway did not answer."""
        ...


class GatewayClient:
    """``interfaces.Gateway``. Once a driver of a higher epoch was heard of, every question is a LeaseLostError. Every other failure is a
    GatewayError whose ``cause`` is one of

    ``gateway_unreachable``, ``gateway_lost`` (the connection broke), ``gateway_timeout``, ``gateway_garbled``, ``gateway_restarted``
    (it does not know the launch any more), ``launch_sealed``, or the type that the gateway gave, such as ``unknown_provider``,
    ``unpriced_model``, ``script_missing``, ``already_sealed``. A store that fails behind the gateway is a StoreError
    with the store's own cause.
    """

    def __init__(self, lines: Sequence[Line], entrance: Entrance) -> None:
        self._lines = lines
        self._entrance = entrance
        self._names: dict[str, LaunchName] = {}
        self._processes: dict[str, str] = {}
        """By launch, the process of its gateway that registered it."""
        self._feeds: dict[tuple[int, str, int], Feed] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        for feed in self._feeds.values():
            await feed.close()
        for line in self._lines:
            await line.close()

    async def register(self, request: LaunchRequest) -> Registration:
        """Make a launch known. Raises GatewayError, StoreError."""
        body = LaunchBody.of(request)
        index = self._index(body.id)
        try:
            made = await self._lines[index].ask("POST", "/admin/launches", Registered, body)
        except GatewayError as error:
            if is_unanswered(error):
                self._entrance.forget()
            raise
        self._names[made.launch] = LaunchName(run=body.run, trial=body.trial, launch=body.launch, epoch=body.epoch)
        self._processes[made.launch] = made.process
        door, sink = await self._entrance.of(made, index)
        return Registration(launch=made.launch, agent_token=made.agent_token, door=door, sink=sink)

    async def stop_reason(self, launch: str) -> StopWord:
        """Wait until the gateway wants the launch stopped. Raises GatewayError, ``launch_sealed`` when it was sealed instead."""
        path, query = f"/admin/launches/{launch}/stop", _query(self._name(launch))
        while True:
            answer: Heard | StopAnswer | None
            answer = await self._heard(launch, lambda heard: heard.stopped is not None or heard.sealed)
            if answer is None:
                answer = await self._of(launch).ask("GET", path, StopAnswer, query=query, seconds=POLL_SECONDS)
            if answer.stopped is not None:
                return answer.stopped
            if answer.sealed:
                msg = f"launch {launch} was sealed while its stop was waited for"
                raise GatewayError(msg, cause="launch_sealed")

    async def seal(self, launch: str) -> Seal:
        """Seal a launch that this client registered. Raises GatewayError, StoreError."""
        return await self._of(launch).ask("POST", f"/admin/launches/{launch}/seal", Seal, self._name(launch))

    async def stop(self, launch: str) -> None:
        """Have the launch stopped by its pod's freezer. Raises GatewayError."""
        await self._of(launch).ask("POST", f"/admin/launches/{launch}/stop", StopAnswer, self._name(launch))

    async def delivered(self, launch: str) -> Delivery:
        """Wait until a pod's freezer has delivered. Raises GatewayError, StoreError."""
        path, query = f"/admin/launches/{launch}/delivered", _query(self._name(launch))
        while True:
            await self._heard(launch, lambda heard: heard.delivered)
            answer = await self._of(launch).ask("GET", path, Delivered, query=query, seconds=POLL_SECONDS)
            if answer.report is not None:
                return _delivery(answer, answer.report)

    async def probe(self, model: str) -> ProbeResult:
        """Make one tiny call to a model. Raises GatewayError."""
        return await self._lines[0].ask("POST", "/admin/probe", ProbeResult, ProbeBody(model=model))

    async def spending(self, run: str) -> Spending:
        """Return what the launches of a run have used at all gateways so far. Raises GatewayError."""
        path = f"/admin/runs/{quote(run, safe='')}"
        found = await asyncio.gather(*(line.ask("GET", path, Spending) for line in self._lines))
        return Spending(
            running=sum(each.running for each in found),
            steps=sum(each.steps for each in found),
            cost_nano_usd=sum(each.cost_nano_usd for each in found),
        )

    async def seal_lost(self, run: str, trial: TrialId, launch: int, epoch: int) -> Seal | None:
        """Seal a launch that another client registered; None when no gateway knows it. Raises GatewayError, StoreError.

        Its own gateway is asked first, then the others: there may have been fewer when it was registered.
        """
        name = LaunchName(run=run, trial=str(trial), launch=launch, epoch=epoch)
        first = self._of(launch_id(run, trial, launch))
        for line in (first, *(each for each in self._lines if each is not first)):
            try:
                return await line.ask("POST", f"/admin/launches/{name.id}/seal", Seal, name)
            except GatewayError as error:
                if error.cause != RESTARTED:
                    raise
        return None

    def _name(self, launch: str) -> LaunchName:
        """Return the whole name of a launch that this client registered. Raises GatewayError."""
        name = self._names.get(launch)
        if name is None:
            msg = f"launch {launch} was not registered by this driver"
            raise GatewayError(msg, cause="gateway_unknown_launch")
        return name

    async def _heard(self, launch: str, enough: Callable[[Heard], bool]) -> Heard | None:
        """Wait for news of a launch; None: they cannot be had, so the launch must be asked about by itself."""
        name = self._name(launch)
        place = (self._index(launch), name.run, name.epoch)
        if place not in self._feeds:
            self._feeds[place] = Feed(self._of(launch), name.run, name.epoch)
        return await self._feeds[place].until(launch, self._processes[launch], enough)

    def _of(self, launch: str) -> Line:
        return self._lines[self._index(launch)]

    def _index(self, launch: str) -> int:
        """Return the number of a launch's gateway: the same in every process, and for most launches also when there are more gateways."""

        def weight(index: int) -> bytes:
            return hashlib.sha256(f"{self._lines[index].url}\0{launch}".encode()).digest()

        return max(range(len(self._lines)), key=weight)


class MachineEntrance:
    """Sandboxes on this machine hand their listening socket through the door and deliver to the gateway's own socket."""

    def __init__(self, socket: str, door: str) -> None:
        self._socket = socket
        self._door = door

    async def of(self, made: Registered, index: int) -> tuple[Door, RelaySink]:
        """Return door and sink of a launch."""
        del index  # there is one
        token = made.freezer_token
        return Door(socket=self._door, token=token), RelaySink(socket=self._socket, token=token)

    def forget(self) -> None:
        """Forget nothing: sockets do not move."""


class PodEntrance:
    """Pods reach their gateway and the relay by IP address: they have no DNS."""

    def __init__(self, gateways: Sequence[str], relay: str) -> None:
        self._gateways = gateways
        parts = urlsplit(relay)
        self._relay = parts.netloc if parts.port else f"{parts.netloc}:80"
        self._found: dict[str, str] = {}

    async def of(self, made: Registered, index: int) -> tuple[PodDoor, PodSink]:
        """Return door and sink of a launch. Raises GatewayError when an address cannot be found."""
        if made.prepare_token is None:
            msg = f"gateway {index} serves one machine, no pods; name gateways of a cluster in kubernetes.gateways"
            raise GatewayError(msg, cause="gateway_not_for_pods")
        door = PodDoor(
            address=f"http://{await self._address(self._gateways[index])}",
            relay=f"http://{await self._address(self._relay)}",
            index=index,
            instance=made.instance,
            agent_token=made.agent_token,
            prepare_token=made.prepare_token,
            token=made.freezer_token,
            known=made.known,
            begun=made.begun,
            sealed=made.sealed,
        )
        return door, PodSink(launch=made.launch, token=made.freezer_token)

    def forget(self) -> None:
        """Resolve names anew."""
        self._found.clear()

    async def _address(self, target: str) -> str:
        if target not in self._found:
            try:
                self._found[target] = await resolve(target)
            except (OSError, ValueError) as error:
                msg = f"no address of {target}, which pods are to reach, was found: {error}"
                raise GatewayError(msg, cause="gateway_unreachable") from None
        return self._found[target]


def machine_gateway(socket: str, door: str, token: str) -> GatewayClient:
    """Return the client of a gateway on this machine."""
    return GatewayClient([Line("http://gateway", token, socket=socket)], MachineEntrance(socket, door))


def cluster_gateways(urls: Sequence[str], for_pods: Sequence[str], relay: str, token: str) -> GatewayClient:
    """Return the client of the gateways of a cluster: their admin addresses, and ``HOST:PORT`` by which pods reach each of them."""
    return GatewayClient([Line(url, token, patience_s=PATIENCE_SECONDS) for url in urls], PodEntrance(for_pods, relay))


def _query(name: LaunchName) -> dict[str, str]:
    return {key: str(value) for key, value in name.model_dump().items()}


def _delivery(answer: Delivered, report: FreezeReport) -> Delivery:
    lost = () if report.lost is None else (Finding(type="state_lost", detail=report.lost, source="freezer"),)
    frozen = Frozen(
        state=answer.state,
        output=base64.b64decode(report.output_b64),
        output_blob=answer.output,
        final=None if report.final_b64 is None else base64.b64decode(report.final_b64),
        findings=(*report.findings, *lost),
        over_disk=report.over_disk,
    )
    return Delivery(
        frozen=frozen,
        exit=report.exit,
        cause=report.cause,
        started=report.started,
        ended=report.ended,
        disk_bytes=report.disk_bytes,
        interrupted=report.interrupted,
        cancelled=answer.cancelled,
    )
