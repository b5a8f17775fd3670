"""The report for people: how trials ended first, then counts with their denominator, rates, cost and time, tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC

from rich.console import Console

from orchestrator.dataset.rows import short
from orchestrator.plan.cost import NANO
from orchestrator.plan.cost import dollars as nano_dollars
from orchestrator.report.on_the_way import show_metrics
from orchestrator.report.program import program
from orchestrator.report.summary import GRADED, RESULTS, AgentSummary, Summary, TaskState, TaskSummary
from orchestrator.report.table import Cell, Column, Row, flow, say, show_table
from orchestrator.report.text import NONE, clean, named, percent, plural
from orchestrator.stats.quantiles import Dist
from orchestrator.stats.rates import Rate

STYLE: dict[str, str] = {
    "solid": "green",
    "unreliable": "yellow",
    "defect": "red",
    "passed": "green",
    "failed": "red",
    "abstained": "yellow",
}
"""Colours of states and results on a terminal."""
GROUPS: tuple[tuple[TaskState, str], ...] = (
    ("solid", "passes always"),
    ("unreliable", "sometimes"),
    ("defect", "never"),
    ("ungraded", "no trial was graded"),
    ("quarantined", "left out for now"),
    ("not_applicable", "no agent can end like that"),
)
"""Groups of tasks in the order they are printed, and what each means."""
WIDE = 110
"""Columns from which on a terminal the tasks show their kind and expected ending."""
MOST_AGENTS = 6
"""Agents that fit as columns of the task table."""


def render_terminal(summary: Summary, console: Console) -> None:
    """Print the report."""
    _header(summary, console)
    _endings(summary, console)
    _counts(summary, console)
    if summary.manifest.is_imported:
        _title(console, "pass rate", "none: imported traces have no verdict")
    else:
        _rates(summary, console)
    _cost(summary, console)
    show_metrics(summary, console)
    if not summary.manifest.is_imported:
        _tasks(summary, console)
    _rest(summary, console)


def seconds(value: float | None) -> str:
    """Return a duration as people read it; a dash when there is none."""
    if value is None:
        return NONE
    if value >= 120:
        return f"{int(value // 60)}m {int(value % 60):02d}s"
    return f"{value:.1f}s" if value < 10 else f"{value:.0f}s"


def dollars(value: float | None) -> str:
    """Return money as people read it; a dash when it is unknown."""
    if value is None:
        return NONE
    return f"${value:,.2f}" if value >= 1 else nano_dollars(round(value * NANO))


def _header(summary: Summary, console: Console) -> None:
    manifest = summary.manifest
    samples = sorted({task.samples for task in manifest.tasks})
    each = plural(samples[0], "sample") if len(samples) == 1 else f"{samples[0]} to {samples[-1]} samples"
    total = sum(agent.counts.planned for agent in summary.agents)
    size = f"{plural(len(manifest.tasks), 'task')} x {each} x {plural(len(manifest.agents), 'agent')}"
    size = size if manifest.chosen is None else f"chosen of {size}"
    images = {task.image_id for task in manifest.tasks if task.image_id is not None}
    commit = manifest.code.commit[:12] if manifest.code.commit else "none"
    whole = f"{size} = {plural(total, 'trial')}"
    if manifest.is_imported:
        whole = f"{plural(total, 'trace')} of {plural(len(manifest.agents), 'agent')}"
    first = [f"run {clean(manifest.run)}", f"suite {manifest.suite}", whole]
    flow(console, first, style="bold")
    if manifest.is_imported:
        facts = [f"imported {manifest.created_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC", "what it says is only reported"]
        flow(console, facts, style="dim")
        return
    flow(
        console,
        [
            f"submitted {manifest.created_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
            f"commit {clean(commit)}{' with changes' if manifest.code.dirty else ''}",
            f"suite digest {short(manifest.suite_digest)}",
            f"grader {clean(summary.grader_version, 80)}" if summary.grader_version else "not graded yet",
            f"backend {clean(manifest.backend)}",
            *([plural(len(images), "image")] if images else []),
            *(f"{clean(name)}: {clean(' | '.join(values))}" for name, values in summary.labels.items()),
        ],
        style="dim",
    )


def _title(console: Console, text: str, more: str = "") -> None:
    say(console)
    flow(console, [text, *([more] if more else [])], style="bold")


def _endings(summary: Summary, console: Console) -> None:
    _title(console, "how trials ended")
    width = max(len(agent.agent) for agent in summary.agents)
    for agent in summary.agents:
        found = [f"{reason} {count:,}" for reason, count in agent.termination_reason.items()]
        flow(console, [agent.agent.ljust(width), *(found or ["nothing has ended yet"])], indent="  ")
    alarms = Counter({reason: 0 for agent in summary.agents for reason in agent.alarms})
    for reason in alarms:
        trials = [trial for agent in summary.agents for trial in agent.alarms.get(reason, ())]
        warning = f"! {reason} ended {plural(len(trials), 'trial')}; look at these before reading any average:"
        say(console, f"  {warning} {named(trials, 2)}", "bold red")


def _counts(summary: Summary, console: Console) -> None:
    words = [word for word in RESULTS if word in GRADED or any(agent.counts.of(word) for agent in summary.agents)]
    others = [word for word in words if word not in GRADED]
    beside = f"; the rest of planned: {', '.join(others)}" if others else ""
    _title(console, "counts", f"graded = passed + failed + abstained, the denominator{beside}")
    columns = [Column(title="agent"), Column(title="planned", right=True)]
    columns += [Column(title=word, right=True) for word in words]
    columns += [Column(title="graded", right=True), Column(title="coverage", right=True)]
    rows: list[Row] = []
    for agent in summary.agents:
        counts = agent.counts
        shares = [
            f"{counts.of(word):,} ({percent(counts.of(word) / counts.planned)})"
            if word == "infra" and counts.planned
            else f"{counts.of(word):,}"
            for word in words
        ]
        rows.append(
            [agent.agent, f"{counts.planned:,}", *shares, f"{counts.graded:,}", percent(agent.pass_rate.coverage)]
        )
    show_table(console, columns, rows)


def _ks(summary: Summary) -> list[int]:
    return sorted({k for agent in summary.agents for k in agent.pass_at_k if k > 1})


def _rates(summary: Summary, console: Console) -> None:
    ks = _ks(summary)
    methods = sorted({agent.pass_rate.method for agent in summary.agents if agent.pass_rate.method})
    about = ["mean over tasks", *(["pass@k: one of k attempts passes; pass^k: all k do"] if ks else [])]
    _title(console, "pass rate", "; ".join([*about, *(f"interval: {method}" for method in methods)]))
    columns = [Column(title="agent"), Column(title="pass rate", right=True), Column(title="95% interval", right=True)]
    columns += [Column(title=f"pass@{k}", right=True) for k in ks] + [Column(title=f"pass^{k}", right=True) for k in ks]
    rows: list[Row] = []
    for agent in summary.agents:
        every = [*(agent.pass_at_k.get(k) for k in ks), *(agent.pass_hat_k.get(k) for k in ks)]
        rate = agent.pass_rate
        rows.append(
            [
                agent.agent,
                Cell(percent(rate.value), "bold"),
                NONE if rate.ci_low is None else f"{percent(rate.ci_low)} to {percent(rate.ci_high)}",
                *(percent(found.value if found else None) for found in every),
            ]
        )
    show_table(console, columns, rows)
    for line in _reasons(summary, ks):
        say(console, f"  {line}", "yellow")


def _reasons(summary: Summary, ks: Sequence[int]) -> list[str]:
    """Return why numbers are absent or not about every task, each reason once."""
    found: dict[str, list[str]] = {}
    for agent in summary.agents:
        if agent.pass_rate.reason:
            found.setdefault(f"pass rate: {agent.pass_rate.reason}", []).append(agent.agent)
        for k in ks if agent.pass_rate.value is not None else ():
            if reason := _incomplete(agent.pass_hat_k.get(k)):
                found.setdefault(f"pass@{k}, pass^{k}: {reason}", []).append(agent.agent)
    return [f"{named(agents)}: {reason}" for reason, agents in found.items()]


def _incomplete(rate: Rate | None) -> str | None:
    if rate is None or not rate.left_out:
        return None
    return rate.reason if rate.value is None else f"without {named(rate.left_out)}: too few graded trials"


def _cost(summary: Summary, console: Console) -> None:
    over = "imported traces" if summary.manifest.is_imported else "graded trials"
    _title(console, "cost and time", f"over {over}; work: without waiting at the gateway")
    titles = ("a trial", "work p50/p95", "wait p95", "steps p50/p95")
    columns = [Column(title="agent"), Column(title="cost", right=True, flexible=True)]
    columns += [Column(title=title, right=True) for title in titles]
    rows: list[Row] = []
    for agent in summary.agents:
        work, steps = agent.latency_s, agent.steps
        rows.append(
            [
                agent.agent,
                _money(agent.cost_usd),
                dollars(agent.cost_usd.mean),
                f"{seconds(work.p50)} / {seconds(work.p95)}",
                seconds(agent.waiting_s.p95),
                f"{_number(steps.p50)} / {_number(steps.p95)}",
            ]
        )
    show_table(console, columns, rows)
    for agent in summary.agents:
        beside = {"simulated user": agent.user_cost_usd, "judges": agent.judge_cost_usd}
        if spent := [f"{who} {_money(cost)}" for who, cost in beside.items() if cost.total]:
            say(console, f"  {agent.agent}, beside that: {', '.join(spent)}")
    found: dict[str, list[str]] = {}
    for agent in summary.agents:
        if agent.unpriced:
            found.setdefault(price_hint(summary.manifest.run, agent.unpriced), []).append(agent.agent)
    for hint, agents in found.items():
        say(console, f"  {named(agents)}: {hint}", "yellow")


def price_hint(run: str, models: Sequence[str]) -> str:
    """Return what to do about a cost that is unknown."""
    tables = ", ".join(f'[prices."{clean(model, 120)}"]' for model in models)
    again = f"{program()} report {run} --prices current"
    return f"cost unknown; give {tables} in orchestrate.toml, and count it again: {again}"


def _money(cost: Dist) -> str:
    if cost.missing:
        return f"unknown ({cost.n} of {cost.n + cost.missing} priced)"
    return dollars(cost.total)


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.1f}".removesuffix(".0")


def _tasks(summary: Summary, console: Console) -> None:
    _title(console, "tasks", "; ".join(f"{state}: {meaning}" for state, meaning in GROUPS if _has(summary, state)))
    agents = [agent.agent for agent in summary.agents]
    width = max((len(name) for name in agents), default=0)
    for name in agents:
        flow(console, _groups(summary, name), indent=f"  {name:<{width}}   ")
    wide = not console.is_terminal or console.width >= WIDE
    by_column = len(agents) <= MOST_AGENTS
    columns = [Column(title="task", flexible=True), Column(title="tier", right=True)]
    columns += [Column(title="kind"), Column(title="expect")] if wide else []
    titles = agents if by_column else ["passed of graded"]
    columns += [Column(title=title, right=by_column) for title in titles]
    columns += [Column(title="fails most by", flexible=True)]
    rows: list[Row] = []
    for task in sorted({row.task for row in summary.tasks}, key=lambda task: (_place(summary, task), task)):
        found = summary.of_task(task)
        first = found[0]
        cells = [_passed(row) for row in found]
        extra = [first.kind, first.expect] if wide else []
        shown = cells if by_column else [_joined(found)]
        rows.append([task, str(first.tier), *extra, *shown, _fails(found)])
    show_table(console, columns, rows)


def _has(summary: Summary, state: TaskState) -> bool:
    return any(row.state == state for row in summary.tasks)


def _groups(summary: Summary, agent: str) -> list[str]:
    """Return the groups of an agent's tasks: how many, and which where it matters."""
    pieces = []
    for state, _meaning in GROUPS:
        tasks = [row.task for row in summary.tasks if row.agent == agent and row.state == state]
        if tasks:
            pieces.append(f"{len(tasks)} {state}" + ("" if state == "solid" else f": {named(tasks)}"))
    return pieces


def _place(summary: Summary, task: str) -> int:
    """Return where a task stands: the one with most failures first."""
    return sum(row.counts.passed - row.counts.graded for row in summary.of_task(task))


def _passed(row: TaskSummary) -> Cell:
    """Return passed of graded; a star says that not every trial was graded."""
    if row.state in {"solid", "unreliable", "defect"}:
        star = "*" if row.counts.graded < row.counts.eligible else ""
        return Cell(f"{row.counts.passed}/{row.counts.graded}{star}", STYLE[row.state])
    words = {"quarantined": "quarantine", "not_applicable": "n/a", "not_planned": NONE}
    return Cell(words.get(row.state, f"0/0 of {row.counts.planned}"), "dim")


def _joined(rows: Sequence[TaskSummary]) -> str:
    return " ".join(f"{row.agent} {_passed(row).text}" for row in rows)


def _fails(rows: Sequence[TaskSummary]) -> str:
    found: Counter[str] = Counter()
    for row in rows:
        found.update(row.failed_checks)
    if not found:
        return ""
    check, count = found.most_common(1)[0]
    return f"{clean(check, 80)} ({count})"


def _rest(summary: Summary, console: Console) -> None:
    lines = [line for agent in summary.agents for line in _about_agent(agent)]
    if any(row.counts.graded and row.counts.graded < row.counts.eligible for row in summary.tasks):
        lines.append("*  not every trial of the task was graded")
    lines += [f"note: {clean(note)}" for note in summary.notes]
    if summary.first_failure:
        lines.append(f"look first: {program()} show {clean(summary.manifest.run)} {summary.first_failure}")
    if lines:
        say(console)
    for line in lines:
        say(console, line)


def _about_agent(agent: AgentSummary) -> list[str]:
    lines = []
    if agent.findings:
        found = ", ".join(f"{clean(name)} in {plural(count, 'trial')}" for name, count in agent.findings.items())
        lines.append(f"{agent.agent}: findings: {found}")
    if agent.left_recording:
        failed = plural(agent.left_recording, "failed trial")
        lines.append(f"{agent.agent}: {failed} cannot be judged: a tool call had no recorded answer")
    if agent.lost_launches:
        causes = ", ".join(f"{clean(name)} {count}" for name, count in agent.lost_causes.items())
        lines.append(f"{agent.agent}: launches lost for our reasons, {agent.lost_launches} in all: {causes}")
    return lines
