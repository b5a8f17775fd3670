"""A supervisor calls the coordinator when there is something to say: each call costs both sides, and Ray, some milliseconds."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.driver.ray import supervisor as module
from orchestrator.driver.ray.messages import Ended, Job, LaunchSettled, Orders, PhaseEntered, Report
from orchestrator.driver.ray.supervisor import Supervisor
from orchestrator.interfaces import TrialEnd
from orchestrator.records.ids import TrialId

sys.path.insert(0, str(Path(__file__).parent))

from purse_world import costly_run, costly_task, outcome_of

TRIAL = TrialId("t", "a", 1)


class Line:
    """A coordinator with one trial to run. Implements ``supervisor.Line``."""

    def __init__(self) -> None:
        self.reports: list[Report] = []

    async def report(self, report: Report) -> Orders:
        self.reports.append(report)
        over = any(isinstance(each.event, Ended) for each in report.events)
        jobs = (Job(TRIAL, "run", 1, 3),) if len(self.reports) == 1 else ()
        return Orders(coordinator="c", jobs=jobs, replaced=over)

    async def reserve(self, *_: object) -> None: ...


def test_a_trial_is_two_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line()
    supervisor = Supervisor(0, 1, line, 1)
    outcome = outcome_of(str(TRIAL), 0)

    async def run_trial(*_: object) -> TrialEnd:
        for phase in ("starting", "running", "freezing"):
            supervisor.phase(TRIAL, cast("Any", phase))
            await asyncio.sleep(0.02)
        await supervisor.settle(outcome)
        await asyncio.sleep(0.1)  # it is graded
        return TrialEnd(trial=TRIAL, outcome=outcome, verdict=None)

    monkeypatch.setattr(module, "run_trial", run_trial)
    monkeypatch.setattr(module, "_HEARTBEAT_SECONDS", 600)
    manifest = costly_run(costly_task("t", 0), models=())
    asyncio.run(asyncio.wait_for(supervisor.work(manifest, cast("Any", None)), 30))
    told = [[type(each.event) for each in report.events] for report in line.reports]
    assert told == [[], [PhaseEntered, PhaseEntered, PhaseEntered, LaunchSettled, Ended]]
