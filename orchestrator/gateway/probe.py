"""One tiny call to a model before anything is launched: does its provider take the key, and does it know the model?"""

from __future__ import annotations

import asyncio

from orchestrator.gateway.calls import Route, complete
from orchestrator.gateway.clock import WorkingClock
from orchestrator.gateway.findings import printable
from orchestrator.gateway.provider import ProviderError
from orchestrator.records.probe import ProbeResult

_REFUSED = frozenset({400, 401, 403, 404, 422})
"""Statuses that say what the next call would say, too: the user has to change something."""
_SECONDS = 60.0
"""For all attempts together: somebody waits for the run to begin."""
_REASON = 300
# No limit on tokens: its name differs between models, and a wrong one is refused.
_BODY = {"messages": [{"role": "user", "content": "Reply with the word ok and nothing else."}]}


async def probe(route: Route) -> ProbeResult:
    """Ask the model once, with the retries of its provider."""
    try:
        async with asyncio.timeout(_SECONDS):
            await complete(route, dict(_BODY), WorkingClock(), lambda *_: None)
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
