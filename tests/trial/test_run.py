"""The spine where its surroundings fail."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.errors import InfrastructureError
from orchestrator.interfaces import PlannedTrial
from orchestrator.records.ids import TrialId
from orchestrator.storage.file import FileStore
from orchestrator.trial.allowance import Unlimited
from orchestrator.trial.crew import Crew
from orchestrator.trial.run import run_trial


class Silent:
    def phase(self, *_: object) -> None: ...
    def begins(self, *_: object) -> None: ...
    def launch_failed(self, *_: object) -> None: ...
    def ended(self, *_: object) -> None: ...


def test_services_that_are_gone_use_up_no_launch(tmp_path: Path) -> None:
    async def gone() -> None:
        raise InfrastructureError("the gateway did not start", cause="gateway_not_started")

    store, unused = FileStore(tmp_path), cast("Any", None)
    crew = Crew(
        store=store,
        bundles=unused,
        sandboxes=unused,
        gateway=unused,
        grader=unused,
        render=unused,
        observer=Silent(),
        writer_id="w",
        ready=gone,
        hold=gone,
        allowance=Unlimited(),
    )
    planned = PlannedTrial(id=TrialId("t", "a", 1), task=unused, agent=unused, seed=1)

    async def run() -> list[str]:
        with pytest.raises(InfrastructureError, match="the gateway did not start"):
            await run_trial("r", planned, crew, asyncio.Event())
        return await store.list("")

    assert asyncio.run(run()) == []
