"""One launch through every failure of the API server and of watches: it is a result, or the failure has its word."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from fault_injections import FAULTS
from launch_world import QUICK, whole, world

from orchestrator.errors import SandboxError

SLOW = {
    "hangs",
    "post_commits_then_timeout",
    "watch_hangs",
    "watch_bookmarks_only",
    "watch_floods",
    "slow",
    "slow_list",
}
"""What takes as long as a client is patient; the client's own tests have these."""
REFUSED = {"pod_security": "pod_security", "policy_denies": "admission_denied", "webhook_denies": "admission_denied"}
"""What a person has to mend."""
CASES = [
    (fault, verb)
    for fault, (verbs, _) in FAULTS.items()
    if fault not in SLOW | REFUSED.keys()
    for verb in verbs
    if verb in ("create", "delete", "watch", "list")
]


async def through(fault: str, verb: str, **options: Any) -> str:
    async with asyncio.timeout(20), world(pace=replace(QUICK, overdue=30.0)) as around:
        around.play(agent=0.02)
        around.server.remember("trials-0")
        around.server.inject(fault, verb=verb, resource="pods", **options)
        ending, frozen = await whole(around.pods, around.gateway, around.spec())
        assert frozen.state is not None
        await around.pods.close()  # type: ignore[attr-defined]
        assert around.server.counts["create", "pods"] <= 3
        assert around.server.pods() == []
        return ending.cause


@pytest.mark.parametrize(("fault", "verb"), CASES)
def test_a_launch_gets_through(fault: str, verb: str) -> None:
    assert asyncio.run(through(fault, verb)) == "exited"


@pytest.mark.parametrize(("fault", "cause"), REFUSED.items())
def test_what_a_person_has_to_mend_is_named(fault: str, cause: str) -> None:
    with pytest.raises(SandboxError) as caught:
        asyncio.run(through(fault, "create"))
    assert caught.value.cause == cause
