"""What is said of a run before it starts, and after it went on to its end."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.driver.estimate import Estimate
    from orchestrator.driver.execute import Execution
    from orchestrator.errors import SpendingLimitError
    from orchestrator.plan.trials import Remaining
    from orchestrator.records.manifest import RunManifest
    from orchestrator.settings import Settings


def announce_resume(manifest: RunManifest, left: Remaining) -> None:
    """Say of which run what is left."""
    announce_trials(manifest, manifest.labels)
    if left.to_run or left.to_grade:
        print(
            f"run {manifest.run}: {len(left.to_run)} to run, {len(left.to_grade)} to grade", file=sys.stderr, flush=True
        )
    else:
        print(f"run {manifest.run}: nothing was left to do", file=sys.stderr, flush=True)


def announce_probe(models: str) -> None:
    """Say which models are asked once before anything is launched."""
    print(f"asking once: {models}", file=sys.stderr, flush=True)


def announce_trials(manifest: RunManifest, labels: Mapping[str, str]) -> None:
    """Say which trials a run has, and on which backend with which labels, before any of them starts."""
    from orchestrator.report.text import plural

    agents = [agent.name for agent in manifest.agents]
    notes = "".join(f", {name}: {value}" for name, value in sorted(labels.items()))
    size = f"{plural(len(manifest.tasks), 'task')} x {plural(len(agents), 'agent')} ({', '.join(agents)})"
    trials = plural(len(manifest.trials()), "trial")
    print(f"{manifest.suite}: {size} = {trials} on {manifest.backend}{notes}", file=sys.stderr, flush=True)


def print_plan(manifest: RunManifest, estimate: Estimate, *, as_json: bool) -> None:
    """Print trials by task and agent, for ``--dry-run``; as JSON with all that is known of their cost."""
    if as_json:
        limits = estimate.in_force.limits.model_dump(mode="json")
        plan = {"planned": estimate.rows(), "estimate": estimate.as_json(), "limits": limits}
        print(json.dumps({"schema_version": 1, "suite": manifest.suite, **plan}, indent=2))
        return
    agents = [agent.name for agent in manifest.agents]
    sizes: dict[str, dict[str, int]] = {task.id: {} for task in manifest.tasks}
    for trial in manifest.trials():
        sizes[trial.task][trial.agent] = sizes[trial.task].get(trial.agent, 0) + 1
    totals = [sum(row.get(agent, 0) for row in sizes.values()) for agent in agents]
    lines = [["task", *agents, "trials"]]
    lines += [
        [task, *(str(row.get(agent, "-")) for agent in agents), str(sum(row.values()))] for task, row in sizes.items()
    ]
    lines.append(["all", *map(str, totals), str(sum(totals))])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *rest in lines:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *cells]))


def ending(manifest: RunManifest, execution: Execution, settings: Settings, *, stopped_by: str | None = None) -> int:
    """Say what is left and return the exit code; ``stopped_by`` says who stopped it, if anybody did."""
    from orchestrator.report.program import program
    from orchestrator.report.text import named, plural

    again = f"{program()} resume {manifest.run}"
    left = plural(execution.left, "trial")
    are = "is" if execution.left == 1 else "are"
    if stopped_by is not None and execution.left:
        print(f"stopped by {stopped_by} with {left} left; go on with: {again}", file=sys.stderr)
        return 130
    if execution.limited is not None:
        print(
            f"{execution.limited}; {left} {are} left; {_with_more(again, execution.limited, settings)}", file=sys.stderr
        )
        return execution.limited.exit_code
    if execution.paused is not None:
        print(f"{execution.paused}\n{left} {are} left; when the cause is gone, go on with: {again}", file=sys.stderr)
        return 5
    if execution.refused:
        print(f"{execution.refused}\n{left} {are} left; when that is mended, go on with: {again}", file=sys.stderr)
        return 5
    if execution.left:
        print(f"{left} could not be graded; go on with: {again}", file=sys.stderr)
        return 5
    if execution.lost:
        one = len(execution.lost) == 1
        launches = f"{manifest.max_launches} {'launch' if manifest.max_launches == 1 else 'launches'}"
        used = f"{plural(len(execution.lost), 'trial')} {'has used its' if one else 'have used their'} {launches}"
        show = f"{program()} show {manifest.run} {execution.lost[0]}"
        print(
            f"{used}, lost for our reasons: {named(execution.lost)}\n"
            f"see why with: {show}; measure {'it' if one else 'them'} again with: {program()} rerun {manifest.run} --infra",
            file=sys.stderr,
        )
        return 5
    return 0


def _with_more(again: str, limited: SpendingLimitError, settings: Settings) -> str:
    """Return how to go on with a higher limit; the settings may be what holds it down."""
    enough, own = limited.enough_usd, settings.limits.cost_usd
    words = f"go on with: {again} --max-cost {enough:g}, or more" if enough else f"go on with: {again} --max-cost USD"
    if own is None or own >= enough:
        return words
    return f"{words}, once limits.cost_usd ({settings.sources['limits.cost_usd']}) allows it"
