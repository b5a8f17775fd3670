"""Runs as a list and a status show them, with every time fixed."""

from __future__ import annotations

import io
import json
import sys
from datetime import timedelta
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1] / "dataset"))

from run_builder import NIGHT, agent, manifest, outcome, task, verdict

from orchestrator.cli.overview_view import list_json, print_list, print_status, status_json
from orchestrator.dataset.rows import assemble
from orchestrator.driver.lease import Holder
from orchestrator.driver.lookout import Sight
from orchestrator.driver.overview import Line, Overview
from orchestrator.driver.standing import Standing
from orchestrator.records.lease import Beat, Claim, Process, Release, ReleaseReason
from orchestrator.spec.submission import RunLimits

START = NIGHT.timestamp()


def sight(*, reason: ReleaseReason | None = None, detail: str = "", silent_s: float = 3.2) -> Sight:
    claim = Claim(run="r1", epoch=2, writer_id="w", process=Process(host="box", pid=4711), at=START, term_s=15)
    beat = Beat(epoch=2, number=12, at=START + 60, phases={"running": 2, "grading": 1}, ended=4)
    release = Release(epoch=2, at=START + 61, reason=reason, detail=detail) if reason else None
    return Sight(Holder(claim=claim, beat=beat, release=release, gone=False), silent_s)


def standing(seen: Sight | None = None, *, ended: int = 4) -> Standing:
    """Return a run of ten trials: a lost one that is launched again, one not graded, the others as ``ended`` says."""
    made = manifest([task("fix", samples=5)], [agent("careful"), agent("sloppy")], run="r1")
    made = made.model_copy(update={"limits": RunLimits(cost_usd=2.5)})
    trials = list(made.trials())
    done = [outcome("r1", trial, cost=150_000_000) for trial in trials[:ended]]
    verdicts = [verdict("r1", trial, "passed" if trial.sample > 1 else "failed") for trial in trials[:ended]]
    if ended < len(trials) - 1:
        lost = {"reason": "infra_lost", "cause": "sandbox", "error": "no room"}
        done += [outcome("r1", trials[8], **lost), outcome("r1", trials[9], cost=0)]
    return Standing(assemble(made, done, verdicts), seen or sight())


def lines() -> Overview:
    counts = {
        "passed": 3,
        "failed": 1,
        "abstained": 0,
        "infra": 0,
        "grader_error": 0,
        "quarantined": 0,
        "not_applicable": 0,
    }
    common = {
        "suite": "starter",
        "backend": "bubblewrap",
        "pool": "inline",
        "planned": 4,
        "commit": "24173cb" + "0" * 33,
    }
    return Overview(
        (
            Line(
                run="r3", state="running", created_at=NIGHT, agents=("careful", "sloppy"), left=4, counts=None, **common
            ),
            Line(
                run="r2",
                state="complete",
                created_at=NIGHT - timedelta(hours=5),
                agents=("careful",),
                counts=counts | {"abstained": 1, "passed": 2},
                spent_nano_usd=1_500_000_000,
                rerun_of="r0",
                **common,
            ),
            Line(run="r1", state="unreadable", problem="runs/r1/manifest.json is not a RunManifest"),
        ),
        7,
    )


def shown(view, *arguments) -> str:
    out = io.StringIO()
    view(*arguments[:1], Console(file=out, width=200, highlight=False), *arguments[1:])
    return out.getvalue()


def snapshots() -> dict[str, str]:
    """Return name and text of each snapshot. Run this file to write them anew after a change that is meant."""
    return {
        "list.txt": shown(print_list, lines(), NIGHT + timedelta(minutes=3)),
        "list.json": json.dumps(list_json(lines()), indent=1) + "\n",
        "status.txt": shown(print_status, standing()),
        "status-stopped.txt": shown(print_status, standing(sight(reason="stopped", detail="by anna@box"))),
        "status.json": json.dumps(status_json(standing()), indent=1) + "\n",
        "status-stopped.json": json.dumps(
            status_json(standing(sight(reason="stopped", detail="by anna@box"))), indent=1
        )
        + "\n",
    }


if __name__ == "__main__":
    for name, text in snapshots().items():
        (Path(__file__).parent / "snapshots" / name).write_text(text)
