"""What happened on the way, for people: the trajectory metrics of agents and of one trial."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from orchestrator.report.summary import Summary
from orchestrator.report.table import Column, Row, flow, say, show_table
from orchestrator.report.text import NONE, named, percent, plural
from orchestrator.stats.rates import Rate
from orchestrator.stats.trajectory import Metrics, TrialMetrics

_TITLES = ("valid calls", "fitting tool", "verify failed", "unverified", "recovered", "window full")


def show_metrics(summary: Summary, console: Console) -> None:
    """Print the rates of each agent, in each form in which there is something; nothing when no call and no claim is known."""
    rows: list[Row] = []
    notes: dict[str, list[str]] = {}
    for agent in summary.agents:
        for form, found in agent.metrics.items():
            rates = _rates(found)
            if any(rate.denominator for rate in rates[:-1]):
                rows.append([agent.agent, form, *map(_share, rates)])
            if form == "agent" and (note := _about_schemas(found.tool_call_validity)):
                notes.setdefault(note, []).append(agent.agent)
    if not rows:
        return
    say(console)
    flow(console, ["on the way", "gateway: seen by us; agent: only reported"], style="bold")
    columns = [Column(title="agent"), Column(title="form"), *(Column(title=title, right=True) for title in _TITLES)]
    show_table(console, columns, rows)
    for note, agents in notes.items():
        say(console, f"  {named(agents)}: {note}", "dim")


def _rates(metrics: Metrics) -> list[Rate]:
    return [
        metrics.tool_call_validity,
        metrics.tool_selection_accuracy,
        metrics.verification_failures,
        metrics.unverified_claims,
        metrics.recovery_rate,
        metrics.context_exhaustion,
    ]


def _share(rate: Rate) -> str:
    return NONE if rate.value is None else f"{percent(rate.value)} of {rate.denominator:,}"


def _about_schemas(rate: Rate) -> str | None:
    return rate.reason.split("; ")[0] if rate.value is not None and rate.reason and "schema" in rate.reason else None


def trial_line(found: TrialMetrics) -> str | None:
    """Return the metrics of one trial in one form in words; None when there is nothing to say."""
    if not found.calls:
        return None
    words = [
        f"{plural(found.calls, 'tool call')}, {found.right_calls} valid",
        *_part(found.matching_calls, found.expected_calls, "of a fitting tool"),
        *_part(found.verify_failures, found.verify_calls, "verifications failed"),
        *(["completion claimed and never verified"] if found.unverified_claim else []),
        *_part(found.recovered_episodes, found.error_episodes, "failures recovered from"),
        *(["window full"] if found.context_exhausted else []),
    ]
    return "; ".join(words)


def _part(numerator: int | None, denominator: int | None, what: str) -> Sequence[str]:
    return [f"{numerator} of {denominator} {what}"] if denominator else []
