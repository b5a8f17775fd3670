"""A run of three agents as a reader meets it: one is right, one is mostly right, one fails and cheats."""

from run_builder import CheckResult, Finding, agent, manifest, outcome, task, verdict

from orchestrator.dataset.rows import assemble
from orchestrator.records.ids import TrialId

NAMES = [
    ("clean-orders", 2, "complete"),
    ("config-migration", 2, "complete"),
    ("decline-refund", 3, "decline"),
    ("dedupe-customers", 1, "complete"),
    ("find-outage", 3, "complete"),
    ("fix-empty-password", 2, "complete"),
    ("fix-rounding", 1, "complete"),
    ("keep-public-api", 2, "complete"),
    ("log-investigation", 3, "complete"),
    ("rename-module", 2, "complete"),
    ("report-currency", 4, "ask"),
    ("retry-backoff", 3, "complete"),
]
PRICE = 1_234_000


def demo(run="demo-1", *, seconds=1.0, **more):
    tasks = [
        task(name, tier=tier, expect=expect, kind="regression" if tier == 1 else "capability")
        for name, tier, expect in NAMES
    ]
    agents = [agent("oracle"), agent("careful"), agent("sloppy")]
    outcomes, verdicts = [], []
    for place, one in enumerate(tasks):
        for who in agents:
            for sample in range(1, 6):
                trial = TrialId(one.id, who.name, sample)
                made = ending(one, who.name, place, sample)
                right, reason, ended = made
                found = (
                    (Finding(type="special_file", detail="workspace/pipe"),)
                    if who.name == "sloppy" and place == 4
                    else ()
                )
                outcomes.append(
                    outcome(
                        run,
                        trial,
                        reason=reason,
                        ended_as=ended,
                        cost=None if who.name == "sloppy" else PRICE if who.name == "careful" else 0,
                        working=seconds * (1 + place + sample / 10),
                        steps=0 if who.name == "oracle" else 3 + (place + sample) % 7,
                        findings=found,
                    )
                )
                if outcomes[-1].outcome_class == "result":
                    checks = (
                        CheckResult(id="hidden_tests", type="command", passed=right or sample % 2 == 0),
                        CheckResult(id="blast_radius", type="diff", passed=right),
                    )
                    verdicts.append(verdict(run, trial, "passed" if right else "failed", checks=checks))
    made = manifest(tasks, agents, run=run, labels={"limits": "cgroup, memory includes disk"}, **more)
    return assemble(made, outcomes, verdicts)


def ending(one, who, place, sample):
    """Return whether the checks hold, how it ended, and the agent's own ending."""
    words = {"complete": "completed", "decline": "declined", "ask": "asked"}
    if who == "oracle" or (who == "careful" and (place % 4 or sample < 4)):
        return True, words[one.expect], words[one.expect]
    if who == "careful":
        return False, "completed", "completed"
    if place == 1:
        return False, "unhandled_exception", None
    if place == 2:
        return True, "completed", "completed"
    if place == 5:
        return False, "step_cap", None
    if place == 7 and sample == 1:
        return False, "infra_lost", None
    return place % 3 == 0, "completed", "completed"


def text_of(width=200, terminal=False, data=None):
    """Return the report as it is printed."""
    import io

    from rich.console import Console

    from orchestrator.report.summary import summarise
    from orchestrator.report.terminal import render_terminal

    out = io.StringIO()
    render_terminal(
        summarise(data or demo()),
        Console(file=out, width=width, force_terminal=terminal, no_color=False, legacy_windows=False),
    )
    return out.getvalue()


def snapshots():
    """Return name and text of each snapshot. Run this file to write them anew after a change that is meant."""
    import json

    from orchestrator.report.jsonform import as_json
    from orchestrator.report.summary import summarise

    return {"report.json": json.dumps(as_json(summarise(demo())), indent=1) + "\n", "report.txt": text_of()}


if __name__ == "__main__":
    from pathlib import Path

    for name, text in snapshots().items():
        (Path(__file__).parent / "snapshots" / name).write_text(text)
