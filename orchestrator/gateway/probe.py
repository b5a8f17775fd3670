"""One tiny call to a model before anything is launched: does its provider take the key, and does it know the model?"""

from __future__ import annotations

import asyncio
from typing import Any

from orchestrator.gateway.calls import Route, Timing, Trying, with_retries
from orchestrator.gateway.clock import WorkingClock
from orchestrator.gateway.dialects.known import DIALECTS
from orchestrator.gateway.findings import printable
from orchestrator.gateway.provider import ModelCall, ProviderError
from orchestrator.records.message import Endpoint
from orchestrator.records.probe import ProbeResult

_REFUSED = frozenset({400, 401, 403, 404, 422})
"""Statuses that say what the next call would say, too: the user has to change something."""
_SECONDS = 60.0
"""For all attempts together: somebody waits for the run to begin."""
_REASON = 300
_TEXT = "Reply with the word ok and nothing else."
# No limit on tokens where none is needed: its name differs between models, and a wrong one is refused.
_QUESTIONS: dict[Endpoint, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": _TEXT}]},
    "messages": {"messages": [{"role": "user", "content": _TEXT}], "max_tokens": 16},
    "responses": {"input": _TEXT},
    "embeddings": {"input": _TEXT},
}
"""In the order of preference."""


async def probe(route: Route) -> ProbeResult:
    """Ask the model once, with the retries of its provider."""
    try:
        async with asyncio.timeout(_SECONDS):
            endpoint = next(name for name in _QUESTIONS if route.provider.offers(name))
            call = ModelCall(DIALECTS[endpoint], _QUESTIONS[endpoint], route.name)
            await with_retries(route, Trying("probe", WorkingClock()), Timing(), lambda _: route.provider.attempt(call))
    except ProviderError as error:
        return ProbeResult(
            model=route.model,
            result="refused" if error.status in _REFUSED else "failed",
            status=error.status,
            reason=printable(error.message, _REASON),
        )
    except TimeoutError:
        return ProbeResult(model=route.model, result="failed", reason=f"no answer came within {_SECONDS:g} s")
    return ProbeResult(model=route.model, result="answered")
