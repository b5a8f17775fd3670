"""Where trials run and who answers them: backends, services, providers, pool."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import urlsplit

from orchestrator import wiring
from orchestrator.driver.scratch import scratch_folder
from orchestrator.driver.services import Services, local_services
from orchestrator.errors import InfrastructureError, RefusedError, SandboxError
from orchestrator.interfaces import ProbeResult
from orchestrator.plan.published import published
from orchestrator.settings import KNOWN_PROVIDERS, KeyedProvider, Settings
from orchestrator.storage.health import Fact, State

_OLD_PRICES_DAYS = 120


async def bubblewrap(settings: Settings) -> Sequence[Fact]:
    """Make a first sandbox."""
    needed = settings.backend in {"auto", "bubblewrap"}
    return await _backend("bubblewrap", settings, needed=needed)


async def container(settings: Settings) -> Sequence[Fact]:
    """Ask the container engine, and make a first container where this version runs trials in them."""
    needed = settings.backend == "container"
    try:
        engine = wiring.container_engine(settings)
    except RefusedError as error:
        if needed:
            return [Fact(state="problem", said=str(error))]
        return [Fact(state="ok", said=f"{error} (only tasks with an image need it)")]
    try:
        version = await engine.version()
    except SandboxError as error:
        return [_failed(error, needed=needed)]
    return [
        Fact(state="ok", said=f"{engine.kind} {version}"),
        *await _backend("container", settings, needed=needed),
    ]


async def _backend(name: str, settings: Settings, *, needed: bool) -> list[Fact]:
    try:
        with scratch_folder(settings) as scratch:
            backend = wiring.sandbox_backend(name, scratch / "sandboxes", settings)
            labels = await backend.preflight()
    except (RefusedError, InfrastructureError) as error:
        return [_failed(error, needed=needed)]
    facts = [
        Fact(state="ok", said=f"a first sandbox was made; {_spelled(labels) or 'nothing is weaker than promised'}")
    ]
    if "sampled" in labels.get("limits", ""):
        advice = (
            "give this process a cgroup that it may write to; until then an agent may exceed its limits for a moment"
        )
        facts.append(Fact(state="warning", said="limits are sampled", advice=advice))
    return facts


def _failed(error: Exception, *, needed: bool) -> Fact:
    if needed:
        return Fact(state="problem", said=str(error))
    return Fact(state="warning", said=f"{error} (the settings do not need it)")


def _spelled(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in sorted(labels.items()))


async def services(settings: Settings, *, models: bool) -> Sequence[Fact]:
    """Start gateway and grader, and with ``models`` ask each model that has a price, once."""
    with scratch_folder(settings) as scratch, _without_log():
        # Nothing is left behind, and a store that cannot be used is told by its own check.
        settings = settings.model_copy(update={"logs": scratch / "logs", "store": str(scratch / "store")})
        backend = "container" if settings.backend == "container" else "bubblewrap"
        async with local_services(settings, scratch, backend, concurrency=1) as running:
            started = Fact(state="ok", said=f"gateway and grader {running.grader_version} start")
            return [started, *(await _ask(running, settings) if models else [])]


@contextlib.contextmanager
def _without_log() -> Iterator[None]:
    """Take the place of the log out of an error: it is gone when the error is read."""
    try:
        yield
    except InfrastructureError as error:
        raise InfrastructureError(re.sub(r" \(log: [^)]*\)$", "", str(error)), cause=error.cause) from error


async def _ask(running: Services, settings: Settings) -> list[Fact]:
    models = sorted(model for model in settings.prices if model.partition("/")[0] in settings.providers)
    if not models:
        advice = "give the models that you use a price in orchestrate.toml"
        return [Fact(state="warning", said="no model to ask: none of a configured provider has a price", advice=advice)]
    async with running.open_gateway() as gateway:
        return [_answer(await gateway.probe(model)) for model in models]


def _answer(found: ProbeResult) -> Fact:
    if found.result == "answered":
        return Fact(state="ok", said=f"{found.model} answers")
    words: dict[Literal["answered", "refused", "failed"], str] = {
        "refused": "was refused",
        "failed": "could not be asked",
    }
    advice = "see its key, name and address in orchestrate.toml"
    return Fact(state="problem", said=f"{found.model} {words[found.result]}: {found.reason}", advice=advice)


async def providers(settings: Settings) -> Sequence[Fact]:
    """Say which providers have a key. None of them is called."""
    if not settings.providers:
        names = " or ".join(variable for variable, _ in KNOWN_PROVIDERS.values())
        return [
            Fact(state="ok", said=f"none configured: agents with written conversations run without; else set {names}")
        ]
    return [_provider(name, each, settings) for name, each in sorted(settings.providers.items())]


def _provider(name: str, provider: KeyedProvider, settings: Settings) -> Fact:
    where = urlsplit(provider.base_url)
    said = f"{name} ({provider.type}) at {where.scheme}://{where.netloc}{where.path}"
    if (problem := settings.key_problems.get(name)) is not None:
        return Fact(state="warning", said=f"{said}: {problem}", advice="runs that use it will be refused")
    if provider.key is None:
        return Fact(state="ok", said=f"{said}, without a key")
    kept = f"the variable {provider.key.env}" if provider.key.env else f"the file {provider.key.file}"
    return Fact(state="ok", said=f"{said}, key from {kept}")


async def prices(settings: Settings) -> Sequence[Fact]:
    """Say where prices of models come from, and how old they are."""
    found = await asyncio.to_thread(published)
    own = f"; {len(settings.prices)} in orchestrate.toml win over it" if settings.prices else ""
    said = f"{found.name} knows {found.models:,} models of {found.providers} providers, without the network"
    if found.released is None:
        advice = "install the version that this program was released with: runs at other prices are not compared"
        return [Fact(state="warning", said=f"{said}{own}", advice=advice)]
    days = (datetime.now(UTC).date() - found.released).days
    said = f"{said}, as of {found.released} ({days} days ago){own}"
    if days <= _OLD_PRICES_DAYS:
        return [Fact(state="ok", said=said)]
    advice = "install a newer version of this program, or give your models [prices] in orchestrate.toml"
    return [Fact(state="warning", said=said, advice=advice)]


async def ray(settings: Settings) -> Sequence[Fact]:
    """See whether Ray is there, and whether it loads when runs need it."""
    try:
        version = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        state: State = "problem" if settings.pool == "ray" else "ok"
        return [
            Fact(
                state=state,
                said="not installed; only --pool ray needs it",
                advice="install ray" if state != "ok" else "",
            )
        ]
    if settings.pool != "ray":
        return [Fact(state="ok", said=f"ray {version} is installed; only --pool ray needs it")]
    loaded = subprocess.run(  # noqa: ASYNC221 - every check has a thread of its own
        [sys.executable, "-P", "-c", "import ray"], capture_output=True, text=True, timeout=60, check=False
    )
    if loaded.returncode != 0:
        return [
            Fact(
                state="problem", said=f"ray {version} does not load: {_last(loaded.stderr)}", advice="install it again"
            )
        ]
    return [Fact(state="ok", said=f"ray {version} loads")]


def _last(text: str) -> str:
    lines: Iterable[str] = (line.strip() for line in reversed(text.splitlines()))
    return next((line for line in lines if line), "it said nothing")
