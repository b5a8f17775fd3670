"""One trial in full: ending, checks, findings, launches, what changed, last output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from orchestrator.dataset.metrics import trial_metrics
from orchestrator.dataset.rows import RunData, TrialRow
from orchestrator.dataset.steps import ReadEvents, read_steps
from orchestrator.errors import SpecError
from orchestrator.interfaces import BundleSource, ObjectStore
from orchestrator.records.ids import TrialId
from orchestrator.records.outcome import Outcome, Question
from orchestrator.records.verdict import CheckResult, has_left_recording
from orchestrator.report.on_the_way import trial_line
from orchestrator.report.program import program
from orchestrator.report.state import read_blob, read_state
from orchestrator.report.summary import unpriced
from orchestrator.report.table import say
from orchestrator.report.terminal import STYLE, dollars, seconds
from orchestrator.report.text import clean, clean_lines, named, plural
from orchestrator.spec.checks import DiffCheck
from orchestrator.spec.globs import matches_any
from orchestrator.stats.trajectory import TrialMetrics

SCHEMA_VERSION = 1
OUTPUT_LINES = 30
"""Lines of the end of the output that are shown."""
EVIDENCE_LINES = 30
"""Lines of evidence that are shown of a check that did not hold; of one that did, a tenth."""
PROSE_CHARS = 1500
"""Longest line of messages and evidence, in characters: people read these to the end."""
MESSAGE_LINES = 20
"""Lines of the agent's last message that are shown."""


def find_row(data: RunData, trial: TrialId) -> TrialRow:
    """Return the row of a trial. Raises SpecError when the run does not plan it."""
    for row in data.rows:
        if row.trial == trial:
            return row
    msg = f"run {data.manifest.run} has no trial {trial}"
    raise SpecError(msg)


async def show_trial(
    store: ObjectStore,
    bundles: BundleSource,
    events: ReadEvents,
    data: RunData,
    trial: TrialId,
    console: Console | None = None,
) -> dict[str, Any]:
    """Print a trial on the console, if there is one, and return its JSON form.

    What an agent wrote is in the JSON form as it was; on the console it is made visible. Raises SpecError and StoreError.
    """
    row = find_row(data, trial)
    changes, problem = await read_state(store, bundles, row)
    output = await read_blob(store, row.outcome.output) if row.outcome and row.outcome.output else None
    metrics = await _metrics(events, data, row)
    found = _as_json(data, row, changes, problem, output)
    found["metrics"] = {one.form: asdict(one) for one in metrics}
    if console:
        _print(console, row, found, metrics)
    return found


async def _metrics(events: ReadEvents, data: RunData, row: TrialRow) -> tuple[TrialMetrics, ...]:
    """Return the trial's own trajectory metrics; without a trajectory, those that its records tell."""
    if row.outcome is None:
        return ()
    steps, _ = await read_steps(data.manifest, [(row.trial, row.outcome)], events)
    return trial_metrics(row, steps.get((row.trial, row.outcome.launch)))


def _as_json(
    data: RunData, row: TrialRow, changes: Sequence[dict[str, Any]], problem: str | None, output: bytes | None
) -> dict[str, Any]:
    head = next((change for change in changes if "counts" in change), {})
    return {
        "schema_version": SCHEMA_VERSION,
        "run": data.manifest.run,
        "trial": str(row.trial),
        "result": row.result,
        "graded_as": row.graded_as,
        "left_recording": has_left_recording(row.graded_as, row.outcome),
        "outcome": row.outcome.model_dump(mode="json") if row.outcome else None,
        "verdict": row.verdict.model_dump(mode="json") if row.verdict else None,
        "image": None if row.task.image_id is None else {"image": row.task.environment.image, "id": row.task.image_id},
        "launches": [_launch(launch) for launch in row.launches],
        "changes": {
            "counts": head.get("counts"),
            "paths": [change for change in changes if "path" in change],
            "problem": problem,
        },
        "output": None if output is None else output.decode("utf-8", errors="backslashreplace"),
    }


def _launch(launch: Outcome) -> dict[str, Any]:
    return {
        "launch": launch.launch,
        "class": launch.outcome_class,
        "termination_reason": launch.termination_reason,
        "cause": launch.cause,
        "error": launch.error,
    }


def _print(console: Console, row: TrialRow, found: dict[str, Any], metrics: Sequence[TrialMetrics]) -> None:
    counted = "" if row.result == row.graded_as else f" (graded as {row.graded_as})"
    run = f"   run {clean(found['run'])}"
    say(console, f"{row.trial}   {row.result}{counted}{run}", f"bold {STYLE.get(row.graded_as, 'yellow')}")
    _ending(console, row)
    for one in metrics:
        if line := trial_line(one):
            say(console, f"on the way {line} ({'seen' if one.form == 'gateway' else 'only reported'})")
    _verdict(console, row)
    _others(console, row)
    words = f"{clean(found['run'])} {row.trial}"
    _changes(console, found["changes"], f"{program()} pull {words} DIR")
    _output(console, found["output"])
    if row.outcome and row.outcome.trajectory:
        say(console)
        say(console, f"each step: {program()} logs {words}", "dim")
    elif row.outcome is None:
        say(console, f"what it does, as it does it: {program()} logs {words} --follow", "dim")


def _ending(console: Console, row: TrialRow) -> None:
    outcome = row.outcome
    if outcome is None:
        say(console, "no launch has ended yet")
        return
    code = outcome.exit
    how = "" if code is None else f", signal {code.signal}" if code.signal is not None else f", exit code {code.code}"
    asked = "an imported trace" if row.is_imported else f"the task expects: {row.task.expect}"
    say(console, f"ended      {outcome.termination_reason}{how}; {asked}")
    cost = outcome.usage.cost_nano_usd
    tokens = plural(outcome.usage.total, "token") if outcome.tells("tokens") else "tokens not recorded"
    worked = f"worked {seconds(outcome.working_s)}" if outcome.tells("times") else "times not recorded"
    used = [
        f"{worked}, waited {seconds(outcome.waiting_s)}" if outcome.tells("waiting") else worked,
        f"{plural(outcome.steps, 'step')}, {plural(outcome.tool_calls, 'tool call')}, {tokens}",
        f"cost {dollars(cost / 1e9)}" if cost is not None else f"cost unknown{_without_price(row)}",
    ]
    say(console, f"used       {'; '.join(used)}")
    if outcome.models:
        say(console, f"models     {', '.join(clean(model, 80) for model in outcome.models)}")
    if outcome.fixture_misses:
        say(
            console,
            f"recording  left by {plural(outcome.fixture_misses, 'tool call')} without a recorded answer",
            "yellow",
        )
    _questions(console, outcome)
    final = outcome.final
    if final is None:
        say(console, "said       nothing: no ending was given")
        return
    sure = "" if final.confidence is None else f", confidence {final.confidence}"
    say(console, f"said       {final.status}{sure}")
    _quote(console, clean_lines(final.message, PROSE_CHARS), MESSAGE_LINES)
    for name, value in final.escalation.items():
        say(console, f"           escalation {clean(name, 80)}: {clean(value)}")


def _questions(console: Console, outcome: Outcome) -> None:
    if outcome.questions is None:
        return
    is_played = any(asked.said is not None for asked in outcome.questions)
    fitting = sum(asked.reply is not None for asked in outcome.questions)
    replies = "of a user whom a model plays" if is_played else f"{fitting} with a fitting reply"
    say(console, f"asked      {plural(len(outcome.questions), 'question')}, {replies}")
    for asked in outcome.questions:
        lines = clean_lines(asked.question, PROSE_CHARS)
        _quote(
            console,
            [*lines, f"({_reply(asked)})"],
            MESSAGE_LINES,
        )


def _reply(asked: Question) -> str:
    if asked.said is not None:
        return f"user: {clean(asked.said, 300)}"
    return "no reply fits" if asked.reply is None else f"reply {clean(asked.reply, 100)}"


def _without_price(row: TrialRow) -> str:
    models = () if row.is_imported else unpriced(row.agent, row.launches)
    return f" (no price for {named(models)})" if models else ""


def _quote(console: Console, lines: Sequence[str], most: int, indent: str = "           ") -> None:
    """Print foreign lines behind a bar, so that none of them can be taken for ours."""
    for line in lines[:most]:
        say(console, f"{indent}│ {line}")
    if len(lines) > most:
        say(console, f"{indent}  … {plural(len(lines) - most, 'more line')}", "dim")


def _verdict(console: Console, row: TrialRow) -> None:
    verdict = row.verdict
    if verdict is None:
        say(console, "verdict    none")
        return
    say(console, f"verdict    {verdict.result}", STYLE.get(verdict.result, "yellow"))
    if verdict.error:
        say(console, f"           {verdict.error.type} error: {clean(verdict.error.message)}", "yellow")
    if row.graded_as == "failed" and not row.failed_checks:
        say(console, "           every gate holds, but the ending is not the one that the task expects", "yellow")
    if has_left_recording(row.graded_as, row.outcome):
        say(
            console,
            "           it cannot be judged: it failed after a tool call that no answer was recorded for",
            "yellow",
        )
    for title, checks in (("checks", verdict.checks), ("invariants", verdict.invariants)):
        if checks:
            say(console)
            say(console, title, "bold")
        for check in checks:
            _check(console, check)


def _check(console: Console, check: CheckResult) -> None:
    word, style = {True: ("ok  ", "green"), False: ("FAIL", "bold red"), None: ("?   ", "yellow")}[check.passed]
    more = "" if check.gate else ", reported only"
    say(console, f"  {word} {clean(check.id, 120)} ({clean(check.type, 60)}{more}, {seconds(check.seconds)})", style)
    for name, value in (("expected", check.expected), ("actual", check.actual)):
        if value is not None:
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            say(console, f"       {name:<9}{clean(shown)}")
    told = check.actual.split("; ") if isinstance(check.actual, str) else []
    evidence = [item for item in check.evidence if item != check.actual and item not in told]
    lines = [line for item in evidence for line in clean_lines(item, PROSE_CHARS)]
    _quote(console, lines, EVIDENCE_LINES if check.passed is not True else EVIDENCE_LINES // 10, "       ")


def _others(console: Console, row: TrialRow) -> None:
    found = [*(row.outcome.findings if row.outcome else ()), *(row.verdict.findings if row.verdict else ())]
    if found:
        say(console)
        say(console, "findings", "bold")
    for finding in found:
        say(console, f"  {finding.type}: {clean(finding.detail)} (seen by {finding.source})")
    if len(row.launches) > 1 or any(launch.error for launch in row.launches):
        say(console)
        say(console, "launches", "bold")
        for launch in row.launches:
            why = f": {clean(launch.error)}" if launch.error else ""
            say(console, f"  {launch.launch}  {launch.outcome_class}  {launch.termination_reason}{why}")
    if row.task.image_id is not None:
        say(console)
        image = row.task.environment.image or ""
        beside = "" if image == row.task.image_id else f", id {clean(row.task.image_id, 80)}"
        say(console, f"image      {clean(image, 700)}{beside}", "dim")
    labels = row.outcome.labels if row.outcome else {}
    if labels:
        say(console)
        say(
            console,
            f"sandbox    {'; '.join(f'{clean(name, 60)}: {clean(value, 120)}' for name, value in labels.items())}",
            "dim",
        )


def _changes(console: Console, changes: dict[str, Any], pull: str) -> None:
    say(console)
    counts = changes["counts"] or {}
    if not counts and changes["problem"]:
        say(console, f"left behind   nothing that can be shown: {clean(changes['problem'])}", "bold")
        return
    kinds = ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "nothing known"
    ignored = sum(is_by_product(change) for change in changes["paths"])
    beside = f"; {plural(ignored, 'by-product')} among them, which diff checks ignore" if ignored else ""
    say(console, f"left behind   {kinds}{beside}", "bold")
    for change in changes["paths"]:
        _change(console, change)
    more = sum(counts.values()) - len(changes["paths"])
    if changes["problem"]:
        say(console, f"  not complete: {clean(changes['problem'])}", "yellow")
    elif more > 0:
        say(console, f"  … {plural(more, 'more path')}; all of them into a folder: {pull}", "dim")


def is_by_product(change: dict[str, Any]) -> bool:
    """Return whether a diff check that says nothing else ignores the path; its other patterns only the grader knows."""
    area, _, path = str(change.get("path")).partition("/")
    return area == "workspace" and matches_any(DiffCheck.model_fields["ignore"].default, path)


def _change(console: Console, change: dict[str, Any]) -> None:
    kind = change.get("type")
    facts = [] if kind == "file" else [clean(str(kind), 40)]
    if kind == "file" and change.get("diff") is None:
        old = f"{change['old_size']:,} → " if "old_size" in change else ""
        facts.append(f"{old}{change.get('size', 0):,} bytes, not compared line by line")
    if change.get("target"):
        facts.append(f"to {clean(str(change['target']), 120)}")
    if change.get("finding"):
        facts.append(clean(str(change["finding"]), 60))
    if is_by_product(change):
        facts.append("by-product")
    say(
        console,
        f"  {clean(str(change.get('origin')), 20):<8} {clean(str(change.get('path')))}  {', '.join(facts)}".rstrip(),
    )
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in change.get("diff") or ():
        say(console, f"    │ {clean(line)}", styles.get(line[:1], ""))
    if change.get("more_lines"):
        say(console, f"      … {plural(change['more_lines'], 'more line')}", "dim")


def _output(console: Console, output: str | None) -> None:
    say(console)
    if not output:
        say(console, "last output   none", "bold")
        return
    lines = clean_lines(output)
    say(console, f"last output   {plural(min(OUTPUT_LINES, len(lines)), 'line')} of {len(lines):,}", "bold")
    _quote(console, lines[-OUTPUT_LINES:], OUTPUT_LINES, "  ")
