"""Ask each model of a run once before the first launch, so that a wrong key or name costs one call and not a run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from orchestrator.errors import InfrastructureError, RefusedError
from orchestrator.interfaces import Gateway, ProbeResult
from orchestrator.records.manifest import ManifestAgent
from orchestrator.settings import Settings
from orchestrator.spec.agent import is_scripted


def models_to_probe(agents: Iterable[ManifestAgent]) -> tuple[str, ...]:
    """Return the models that a provider answers for, each once, sorted; conversations from files need no probe."""
    models = {model for agent in agents for model in agent.agent.models.values()}
    return tuple(sorted(model for model in models if not is_scripted(model)))


async def probe_models(gateway: Gateway, models: Iterable[str], settings: Settings) -> None:
    """Return when every model has answered.

    Raises RefusedError when a provider refuses a model or its key, InfrastructureError when one could not be asked; both name every model
    that did not answer and say which ones did. Nothing is launched then.
    """
    found = await asyncio.gather(*(gateway.probe(model) for model in models))
    silent = [each for each in found if each.result != "answered"]
    if not silent:
        return
    lines = [_line(each, settings) for each in silent]
    fine = [each.model for each in found if each.result == "answered"]
    if fine:
        lines.append(f"fine: {', '.join(fine)}")
    if any(each.result == "refused" for each in silent):
        raise RefusedError("\n".join([*lines, "nothing was launched"]))
    raise InfrastructureError("\n".join([*lines, "nothing was launched; try again later"]), cause="model_probe")


def _line(found: ProbeResult, settings: Settings) -> str:
    words = "was refused" if found.result == "refused" else "could not be asked"
    provider = found.model.partition("/")[0]
    hint = _key_hint(provider, settings) if found.status in {401, 403} else ""
    if found.status == 0 and provider in settings.providers:
        hint = f"; its address is {settings.providers[provider].base_url}"
    return f"model {found.model} {words}: {found.reason}{hint}"


def _key_hint(provider: str, settings: Settings) -> str:
    """Return where the key came from that was not taken. The provider's own words may repeat the key, so they are not shown."""
    configured = settings.providers.get(provider)
    key = configured.key if configured else None
    if key is None:
        return f"; [providers.{provider}] has no key"
    return f"; check its key ({f'the variable {key.env}' if key.env else f'the file {key.file}'}), and what the key may use"
