"""Gateways and grader of a cluster, reached by their addresses: nothing is started here, and nothing ends with this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator import __version__, wiring
from orchestrator.errors import GatewayError, GraderError, InfrastructureError, RefusedError
from orchestrator.interfaces import Gateway, Grader
from orchestrator.settings import Kubernetes, Settings

if TYPE_CHECKING:
    import aiohttp

_PATIENCE_SECONDS = 600.0
"""For a gateway or grader that is being moved or upgraded."""
_FRESH_SECONDS = 2.0
"""How long an answer is good for: launches that start together ask once."""
_ANSWER_SECONDS = 5.0
_PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class ClusterServices:
    """Implements Services."""

    table: Kubernetes
    gateway_token: str = field(repr=False)
    grader_token: str = field(repr=False)
    grader_version: str
    """What the grader says of itself."""
    _seen: list[float] = field(default_factory=list, repr=False)
    """When all of them answered last, at most one entry."""

    def open_gateway(self) -> AbstractAsyncContextManager[Gateway]:
        """Return the driver's side of the gateways, to be opened."""
        return wiring.cluster_gateway(self.table, self.gateway_token)

    def open_grader(self) -> AbstractAsyncContextManager[Grader]:
        """Return the driver's side of the grader, to be opened."""
        return wiring.grader_client(self.table.grader or "", self.grader_token)

    async def ready(self) -> None:
        """Wait until all gateways and the grader answer. Raises GatewayError or GraderError when one is away for minutes."""
        if self._seen and time.monotonic() - self._seen[0] < _FRESH_SECONDS:
            return
        await _all_answer(self.table, _PATIENCE_SECONDS)
        self._seen[:] = [time.monotonic()]


async def cluster_services(settings: Settings, patience: float = _PATIENCE_SECONDS) -> ClusterServices:
    """Return the services of the settings, once they answer.

    Raises RefusedError when the settings do not say where they are, or a gateway is of another version, and InfrastructureError when one
    does not answer for so many seconds.
    """
    table = settings.kubernetes
    refuse_outside(table)
    tokens = [read_token(table, name) for name in ("gateway_token_file", "grader_token_file")]
    answers = await _all_answer(table, patience)
    _refuse_others(answers[:-1])
    return ClusterServices(table, tokens[0], tokens[1], str(answers[-1].get("version", "")))


def _refuse_others(gateways: Sequence[dict[str, Any]]) -> None:
    """Raise RefusedError for gateways of other versions: an upgrade leaves them as they are, and what pods say they may not understand."""
    versions = [str(each.get("version") or __version__) for each in gateways]
    others = [f"gateway {index} is of version {each}" for index, each in enumerate(versions) if each != __version__]
    if others:
        msg = (
            f"{', '.join(others)}, and this is {__version__}: an upgrade does not restart gateways, since runs may be going on; "
            "when there is none: kubectl -n SYSTEM delete pod -l app=gateway, with the namespace of the services"
        )
        raise RefusedError(msg)


def refuse_outside(table: Kubernetes) -> None:
    """Raise RefusedError when runs are not to be driven by this process, or when it could not reach what a driver needs."""
    if table.driver != "here":
        msg = (
            "runs on a cluster are driven there, by a Job: use submit, resume, or rerun; "
            "with kubernetes.driver = 'here' this process drives them, once it reaches gateways and grader"
        )
        raise RefusedError(msg)
    if missing := table.unreachable:
        names = ", ".join(f"kubernetes.{name}" for name in missing)
        msg = (
            f"kubernetes.driver is 'here', and the settings do not say what a driver needs: {names}; "
            "set them to what this machine reaches, or leave kubernetes.driver at 'job'"
        )
        raise RefusedError(msg)


def read_token(table: Kubernetes, name: str) -> str:
    """Return the token of the file that a setting names. Raises RefusedError when there is none."""
    path: Path | None = getattr(table, name)
    try:
        token = "" if path is None else path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not plain text"
        msg = f"kubernetes.{name}: the token in {path} cannot be read: {reason}"
        raise RefusedError(msg) from error
    if not token:
        msg = f"kubernetes.{name}: there is no token in {path}"
        raise RefusedError(msg)
    return token


async def _all_answer(table: Kubernetes, patience: float) -> Sequence[dict[str, Any]]:
    """Return what each gateway and then the grader says of its health. Raises GatewayError, GraderError."""
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
        gateways = [_answer(session, f"gateway {index}", url, patience) for index, url in enumerate(table.gateways)]
        return await asyncio.gather(*gateways, _answer(session, "grader", table.grader or "", patience))


async def _answer(session: aiohttp.ClientSession, who: str, url: str, patience: float) -> dict[str, Any]:
    until = time.monotonic() + patience
    while True:
        answer, problem = await look_at(session, url)
        if answer is not None:
            return answer
        if time.monotonic() >= until:
            raise _gone(who, url, problem)
        await asyncio.sleep(_PAUSE_SECONDS)


async def look_at(session: aiohttp.ClientSession, url: str) -> tuple[dict[str, Any] | None, str]:
    """Ask a service for its health once: its answer, or None and why there is none."""
    import aiohttp

    try:
        async with session.get(f"{url.rstrip('/')}/healthz") as response:
            body = await response.content.read(64 << 10)
    except TimeoutError:
        return None, f"no answer within {_ANSWER_SECONDS:.0f} s"
    except (aiohttp.ClientError, OSError) as error:
        return None, " ".join(str(error).split()) or type(error).__name__
    if response.status != 200:
        return None, f"HTTP status {response.status}"
    return _said(body), ""


def _said(body: bytes) -> dict[str, Any]:
    import json

    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _gone(who: str, url: str, problem: str) -> InfrastructureError:
    msg = f"the {who} at {url} does not answer: {problem}; look at its pod, or ask: orchestrate doctor --backend kubernetes"
    return GraderError(msg, cause="grader_gone") if who == "grader" else GatewayError(msg, cause="gateway_gone")
