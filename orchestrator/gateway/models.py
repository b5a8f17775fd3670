"""Where the calls of a launch go: providers by name, and the script of a launch whose model is a scripted one."""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp
from pydantic import ValidationError

from orchestrator.gateway.bedrock import BedrockProvider
from orchestrator.gateway.bundled import read_bundled, unusable
from orchestrator.gateway.calls import Route
from orchestrator.gateway.config import ProviderConfig
from orchestrator.gateway.limiter import Limiter
from orchestrator.gateway.provider import Provider
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.scripted import ScriptedProvider
from orchestrator.gateway.upstream import AnthropicProvider, HttpProvider
from orchestrator.gateway.wire import LaunchBody
from orchestrator.interfaces import BundleSource
from orchestrator.settings import ProviderType
from orchestrator.spec.agent import is_scripted
from orchestrator.spec.scripts import Script

_TYPES: Mapping[ProviderType, type[HttpProvider]] = {
    "openai": HttpProvider,
    "anthropic": AnthropicProvider,
    "bedrock": BedrockProvider,
}


class Models:
    """All models that launches of this process may use."""

    def __init__(
        self, providers: Mapping[str, ProviderConfig], bundles: BundleSource, session: aiohttp.ClientSession
    ) -> None:
        self._bundles = bundles
        self._providers: dict[str, tuple[Provider, Limiter]] = {
            name: (_TYPES[provider.type](name, provider, session), Limiter(provider.concurrency))
            for name, provider in providers.items()
            if provider.type in _TYPES
        }
        self._scripted = Limiter(1024)

    async def routes(self, body: LaunchBody) -> dict[str, Route]:
        """Return where each name goes that the agent may use: aliases, ``provider/name``, and bare names, in this order."""
        by_model = {model: await self._route(model, body) for model in sorted(set(body.models.values()))}
        bare = {route.name: route for route in reversed(by_model.values())}
        return bare | by_model | {alias: by_model[model] for alias, model in body.models.items()}

    async def _route(self, model: str, body: LaunchBody) -> Route:
        if body.budgets.max_cost_usd is not None and model not in body.prices:
            msg = f"the task limits the cost, and model {model} has no price; give it in the agent file or in orchestrate.toml (`prices`)"
            raise Refusal(400, "unpriced_model", msg)
        if is_scripted(model):
            return Route(model, ScriptedProvider(await self._script(body), body.seed), self._scripted)
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
        try:
            script = await read_bundled(self._bundles, body.scripts, f"{body.task}.json", Script)
        except ValidationError as error:
            raise unusable("script_unusable", f"the script for task {body.task} is", error) from None
        if script is None:
            msg = f"the agent of trial {body.trial} has no script for task {body.task}"
            raise Refusal(400, "script_missing", msg)
        return script
