"""All launches that this process knows: registration, routes to models, the door's hand-over."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import aiohttp
from pydantic import ValidationError

from orchestrator.gateway.agent import AgentSide
from orchestrator.gateway.calls import Route
from orchestrator.gateway.config import GatewayConfig
from orchestrator.gateway.door import DoorError
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.listener import LaunchListener
from orchestrator.gateway.openai import OpenAIProvider
from orchestrator.gateway.provider import Provider
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.scripted import ScriptedProvider
from orchestrator.gateway.tokens import Claim, TokenMint
from orchestrator.gateway.wire import LaunchBody, Registered
from orchestrator.interfaces import BundleSource, TrajectoryFactory
from orchestrator.records.usage import Spending
from orchestrator.spec.agent import is_scripted
from orchestrator.spec.scripts import Script

_REMEMBERED = 4096
"""Sealed launches with a committed state that are kept in memory."""

_SLACK_SECONDS = 3600
"""A token outlives its launch's hard deadline by this: laying inputs, freezing, a slow store."""


class Registry:
    """Launches by short name."""

    def __init__(
        self,
        config: GatewayConfig,
        trajectories: TrajectoryFactory,
        bundles: BundleSource,
        session: aiohttp.ClientSession,
    ) -> None:
        self._config = config
        self._trajectories = trajectories
        self._bundles = bundles
        self._mint = TokenMint()
        self._agents = AgentSide(self._mint)
        self._launches: dict[str, Launch] = {}
        self._forgotten: dict[str, Spending] = {}
        """What launches have used that are no longer in memory, by run."""
        self._epochs: dict[str, int] = {}
        self._lock = asyncio.Lock()
        self._providers: dict[str, tuple[Provider, asyncio.Semaphore]] = {
            name: (OpenAIProvider(name, provider, session), asyncio.Semaphore(provider.concurrency))
            for name, provider in config.providers.items()
        }
        self._scripted_queue = asyncio.Semaphore(1024)

    def all(self) -> list[Launch]:
        """Return every launch."""
        return list(self._launches.values())

    def find(self, launch: str) -> Launch:
        """Return a launch by short name. Raises Refusal 404 ``unknown_launch``."""
        found = self._launches.get(launch)
        if found is None:
            msg = f"launch {launch[:64]} is not known here: it was never registered, or the gateway was started anew since"
            raise Refusal(404, "unknown_launch", msg)
        return found

    def spending(self, run: str) -> Spending:
        """Return what all launches of a run have used here; a cost that is not known counts as nothing."""
        found = self._forgotten.get(run, Spending())
        for launch in self._launches.values():
            if launch.body.run == run:
                found = _plus(found, launch)
        return found

    def check_epoch(self, run: str, epoch: int) -> None:
        """Refuse a driver that was replaced. Raises Refusal 409 ``stale_epoch``."""
        seen = self._epochs.get(run, self._config.epoch)
        if epoch < seen:
            msg = f"epoch {epoch} of run {run} is over: a driver of epoch {seen} has taken the run"
            raise Refusal(409, "stale_epoch", msg)
        self._epochs[run] = epoch

    async def register(self, body: LaunchBody) -> Registered:
        """Make a launch known, or make fresh tokens for one that is. Raises Refusal, StoreError."""
        self.check_epoch(body.run, body.epoch)
        async with self._lock:
            launch = self._launches.get(body.id)
            if launch is None:
                launch = await self._begin(body)
            elif launch.sealing:
                raise Refusal(409, "already_sealed", f"launch {body.id} is sealed; start another launch")
            elif launch.body.model_copy(update={"epoch": body.epoch}) != body:
                raise Refusal(409, "launch_differs", f"launch {body.id} was registered with other budgets or models")
        launch.generation += 1
        life = body.budgets.hard_seconds + _SLACK_SECONDS
        return Registered(
            launch=launch.id,
            agent_token=self._mint.make("agent", launch.id, launch.generation, life),
            freezer_token=self._mint.make("freezer", launch.id, launch.generation, life),
        )

    def freezer(self, token: str) -> Launch:
        """Return the launch that a freezer token is for. Raises Refusal."""
        claim: Claim | None = self._mint.read(token)
        if claim is None:
            raise Refusal(401, "bad_token", "the token is not one of this gateway's or is too old")
        launch = self.find(claim.launch)
        if claim.role != "freezer" or claim.generation != launch.generation:
            raise Refusal(403, "wrong_token", "a freezer's token is needed, of the launch's last registration")
        return launch

    def opened(self, token: str, listening: socket.socket) -> None:
        """Take a sandbox's listening socket: the start of the working clock. Raises DoorError."""
        try:
            launch = self.freezer(token)
        except Refusal as refusal:
            raise DoorError(refusal.message) from None
        if launch.sealing:
            msg = "the launch is sealed"
            raise DoorError(msg)
        if launch.listener is not None:
            msg = "the launch has a listening socket already"
            raise DoorError(msg)
        launch.listener = LaunchListener(listening, self._agents.handler(launch), self._config.limits)
        launch.start_clock()

    async def _begin(self, body: LaunchBody) -> Launch:
        routes = await self._routes(body)
        trajectory = await self._trajectories.open(body.id)
        launch = Launch(body, trajectory, routes, self._config)
        facts = body.model_dump(mode="json", include={"run", "trial", "launch", "models", "budgets", "seed"})
        trajectory.append("launch", "gateway", facts)
        self._launches[body.id] = launch
        self._forget()
        return launch

    async def _routes(self, body: LaunchBody) -> dict[str, Route]:
        """Return where each name goes that the agent may use: aliases, ``provider/name``, and bare names, in this order."""
        by_model = {model: await self._route(model, body) for model in sorted(set(body.models.values()))}
        bare = {route.name: route for route in reversed(by_model.values())}
        return bare | by_model | {alias: by_model[model] for alias, model in body.models.items()}

    async def _route(self, model: str, body: LaunchBody) -> Route:
        if body.budgets.max_cost_usd is not None and model not in body.prices:
            msg = f"the task limits the cost, and model {model} has no price; give one in the agent file (`prices`)"
            raise Refusal(400, "unpriced_model", msg)
        if is_scripted(model):
            return Route(model, ScriptedProvider(await self._script(body), body.seed), self._scripted_queue)
        return self.configured(model)

    def configured(self, model: str) -> Route:
        """Return where calls to a model of a configured provider go. Raises Refusal 400 ``unknown_provider``."""
        name = model.partition("/")[0]
        if name not in self._providers:
            known = ", ".join(sorted(["scripted", *self._providers]))
            msg = f"model {model} needs a provider {name!r}, and there are only: {known}; configure it or set its key"
            raise Refusal(400, "unknown_provider", msg)
        return Route(model, *self._providers[name])

    async def _script(self, body: LaunchBody) -> Script:
        if body.scripts is None:
            msg = f"the agent of trial {body.trial} has a scripted model and no scripts"
            raise Refusal(400, "script_missing", msg)
        folder = await self._bundles.fetch("world", body.scripts)
        try:
            return Script.model_validate_json(await asyncio.to_thread(_script_bytes, folder, body.task))
        except FileNotFoundError:
            msg = f"the agent of trial {body.trial} has no script for task {body.task}"
            raise Refusal(400, "script_missing", msg) from None
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            msg = f"the script for task {body.task} is not usable: {'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise Refusal(400, "script_unusable", msg) from None

    def _forget(self) -> None:
        if len(self._launches) <= _REMEMBERED:
            return
        done = [name for name, launch in self._launches.items() if launch.state_taken]
        for name in done[: len(self._launches) - _REMEMBERED]:
            launch = self._launches.pop(name)
            before = self._forgotten.get(launch.body.run, Spending())
            self._forgotten[launch.body.run] = _plus(before, launch)


def _plus(counted: Spending, launch: Launch) -> Spending:
    return Spending(
        running=counted.running + (launch.seal is None),
        steps=counted.steps + launch.meter.steps,
        cost_nano_usd=counted.cost_nano_usd + (launch.meter.usage.cost_nano_usd or 0),
    )


def _script_bytes(folder: Path, task: str) -> bytes:
    return (folder / f"{task}.json").read_bytes()
