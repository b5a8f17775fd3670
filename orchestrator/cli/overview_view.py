"""How runs at a glance and the standing of one run look: tables, lines, and JSON with stable keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from orchestrator.cli.read import console
from orchestrator.driver.lookout import Sight
from orchestrator.driver.overview import Line, Overview
from orchestrator.driver.standing import AgentStanding, Standing
from orchestrator.interfaces.waits import waiting
from orchestrator.report.program import program
from orchestrator.report.summary import RESULTS
from orchestrator.report.table import Cell, Column, Row, flow, say, show_table
from orchestrator.report.terminal import dollars, seconds
from orchestrator.report.text import NONE, clean, duration, percent

SCHEMA_VERSION = 1
_ALWAYS = ("passed", "failed", "infra")
"""Words that have a column in every list; others when there are any."""
_STYLE = {
    "running": "green",
    "waiting": "yellow",
    "silent": "yellow",
    "stopped": "yellow",
    "paused": "red",
    "limit": "yellow",
    "interrupted": "red",
    "unreadable": "red",
}
_MEANING = {
    "running": "it is being driven",
    "waiting": "nobody has begun with it",
    "silent": "its driver gives no sign of life",
    "stopped": "its driver was asked to stop",
    "paused": "it was paused after the same failure again and again",
    "limit": "it came to its spending limit",
    "interrupted": "its driver is gone",
    "complete": "nothing is left to do",
}


def list_json(found: Overview) -> dict[str, Any]:
    """Return the list as JSON values."""
    return {
        "schema_version": SCHEMA_VERSION,
        "runs": [_line_json(line) for line in found.lines],
        "more": found.more,
        "notes": list(found.notes),
    }


def _line_json(line: Line) -> dict[str, Any]:
    return {
        "run": line.run,
        "created_at": line.created_at.isoformat() if line.created_at else None,
        "suite": line.suite or None,
        "agents": list(line.agents),
        "backend": line.backend or None,
        "pool": line.pool or None,
        "commit": line.commit,
        "rerun_of": line.rerun_of,
        "state": line.state,
        "planned": line.planned,
        "ended": line.ended,
        "left": line.left,
        "counts": None if line.counts is None else dict(line.counts),
        "spent_usd": _usd(line.spent_nano_usd),
        "problem": line.problem,
    }


def print_list(found: Overview, screen: Console | None = None, now: datetime | None = None) -> None:
    """Print the list as a table."""
    now = now or datetime.now(UTC)
    words = [
        word
        for word in RESULTS
        if word in _ALWAYS or any(line.counts and line.counts.get(word) for line in found.lines)
    ]
    columns = [
        Column(title="run", flexible=True),
        Column(title="age", right=True),
        Column(title="suite"),
        Column(title="agents", flexible=True),
        Column(title="where"),
        Column(title="state"),
        Column(title="ended", right=True),
        *(Column(title=word, right=True) for word in words),
        Column(title="cost", right=True),
        Column(title="commit"),
    ]
    show_table(screen or console(), columns, [_line_row(line, words, now) for line in found.lines], indent=0)


def _line_row(line: Line, words: Sequence[str], now: datetime) -> Row:
    counted = [NONE if line.counts is None else f"{line.counts.get(word, 0):,}" for word in words]
    known = line.problem is None
    cost = NONE if line.counts is None else _cost(line.spent_nano_usd)
    return [
        clean(line.run, 120),
        NONE if line.created_at is None else age((now - line.created_at).total_seconds()),
        clean(line.suite, 80) or NONE,
        clean(", ".join(line.agents) if known else line.problem or "", 200),
        f"{clean(line.backend, 40)}/{clean(line.pool, 40)}" if known else NONE,
        Cell(line.state, _STYLE.get(line.state, "")),
        f"{line.ended:,}/{line.planned:,}" if known else NONE,
        *counted,
        cost,
        clean((line.commit or NONE)[:12]),
    ]


def age(passed: float) -> str:
    """Return seconds as the largest unit that fits; never negative."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if passed >= size:
            return f"{int(passed // size)}{unit}"
    return f"{max(0, int(passed))}s"


def next_step(standing: Standing, *, driver_may_come: bool = False) -> str:
    """Return the command that goes on from here; ``driver_may_come``: without anybody's doing, since a Job of a cluster has one."""
    run = standing.data.manifest.run
    if driver_may_come:
        return f"{program()} watch {run}"
    words = {"running": f"watch {run}", "complete": f"report {run}", "limit": f"resume {run} --max-cost USD"}
    return f"{program()} {words.get(standing.state, f'resume {run}')}"


def status_json(standing: Standing, job: tuple[str, bool] = ("", False)) -> dict[str, Any]:
    """Return the standing of a run as JSON values; ``job`` is what is said of the Job that drives it on a cluster, and whether it will."""
    manifest = standing.data.manifest
    return {
        "schema_version": SCHEMA_VERSION,
        "run": manifest.run,
        "suite": manifest.suite,
        "created_at": manifest.created_at.isoformat(),
        "rerun_of": manifest.rerun_of,
        "state": standing.state,
        "driver": _driver_json(standing.sight),
        "stop": standing.stop and {"by": standing.stop.by, "at": _iso(standing.stop.at)},
        "job": job[0] or None,
        "planned": standing.planned,
        "ended": standing.planned - standing.left,
        "to_run": standing.to_run,
        "to_grade": standing.to_grade,
        "phases": dict(standing.phases),
        "waits": dict(standing.waits),
        "failed_launches": dict(standing.failed_launches),
        "agents": [_agent_json(agent) for agent in standing.agents],
        "spent_usd": _usd(standing.spent_nano_usd),
        "limit_usd": manifest.limits.cost_usd,
        "eta_s": standing.eta_s,
        "next": next_step(standing, driver_may_come=job[1]),
    }


def _driver_json(sight: Sight) -> dict[str, Any] | None:
    holder = sight.holder
    if holder is None:
        return None
    release = holder.release
    return {
        "state": sight.state,
        "host": holder.claim.process.host,
        "pid": holder.claim.process.pid,
        "epoch": holder.claim.epoch,
        "since": _iso(holder.claim.at),
        "last_sign": _iso((holder.beat or holder.claim).at),
        "released": release and {"reason": release.reason, "detail": release.detail, "at": _iso(release.at)},
    }


def _agent_json(agent: AgentStanding) -> dict[str, Any]:
    return {
        "agent": agent.agent,
        "counts": {"planned": agent.planned, **{word: agent.counts.get(word, 0) for word in RESULTS}},
        "left": agent.left,
        "infra_share": agent.infra_share,
        "spent_usd": _usd(agent.spent_nano_usd),
    }


def print_status(standing: Standing, screen: Console | None = None, job: tuple[str, bool] = ("", False)) -> None:
    """Print the standing of a run on one screen; ``job`` as in ``status_json``."""
    screen = screen or console()
    manifest, state = standing.data.manifest, standing.state
    ended = standing.planned - standing.left
    head = [
        f"run {clean(manifest.run)}",
        f"suite {clean(manifest.suite)}",
        f"{clean(manifest.backend)}/{clean(manifest.pool)}",
    ]
    flow(screen, head, style="bold")
    say(screen, f"{state}: {_MEANING.get(state, '')}", _STYLE.get(state, "green"))
    say(screen, f"driver    {driver_words(standing.sight)}")
    if standing.stop is not None:
        asked = f"{clean(standing.stop.by, 80)} has asked for it on {_when(standing.stop.at)}"
        say(screen, f"stop      {asked}; it holds until somebody resumes the run", "yellow")
    if job[0]:
        say(screen, f"cluster   {clean(job[0], 1000)}")
    say(screen, f"trials    {ended:,} of {standing.planned:,} ended{_left_words(standing)}{_eta(standing)}")
    if standing.phases:
        say(screen, f"now       {_counted(standing.phases)}")
    if standing.waits:
        say(screen, f"waiting   {waiting(standing.waits)}", "yellow")
    if standing.failed_launches:
        say(screen, f"lost      launches that failed on our side: {_counted(standing.failed_launches)}")
    limit = f" of at most {dollars(manifest.limits.cost_usd)}" if manifest.limits.cost_usd is not None else ""
    say(screen, f"spent     {_cost(standing.spent_nano_usd)}{limit}")
    say(screen)
    _print_agents(standing, screen)
    say(screen)
    see = job[1] or state in {"running", "complete"}
    say(screen, f"{'see' if see else 'go on with'}: {next_step(standing, driver_may_come=job[1])}")
    if state in {"running", "silent"} and standing.stop is None:
        say(screen, f"stop it with: {program()} stop {clean(manifest.run)}")


def _print_agents(standing: Standing, screen: Console) -> None:
    agents = standing.agents
    words = [word for word in RESULTS if word in _ALWAYS or any(agent.counts.get(word) for agent in agents)]
    columns = [Column(title="agent", flexible=True), Column(title="planned", right=True)]
    columns += [Column(title=word, right=True) for word in words]
    columns += [
        Column(title="infra share", right=True),
        Column(title="left", right=True),
        Column(title="cost", right=True),
    ]
    rows = [
        [
            clean(agent.agent, 80),
            f"{agent.planned:,}",
            *(f"{agent.counts.get(word, 0):,}" for word in words),
            percent(agent.infra_share),
            f"{agent.left:,}",
            _cost(agent.spent_nano_usd),
        ]
        for agent in agents
    ]
    show_table(screen, columns, rows, indent=0)


def driver_words(sight: Sight) -> str:
    """Return who drives the run, or did, and how that ended."""
    holder = sight.holder
    if holder is None:
        return "nobody yet"
    since = f"{holder}, since {_when(holder.claim.at)}"
    if holder.release is None:
        sign = f"last sign of life {seconds(sight.silent_s)} ago"
        return f"{since}, was killed" if sight.state == "gone" else f"{since}, {sign}"
    reason, detail = holder.release.reason, clean(holder.release.detail)
    words = {"ended": "brought it to its end", "limit": "came to the spending limit"}.get(reason, reason)
    if reason == "limit":
        detail = detail.removeprefix("spending limit: ")
    more = "" if not detail else f" {detail}" if reason == "stopped" else f": {detail}"
    return f"{since}, {words}{more}"


def live_line(standing: Standing) -> str:
    """Return the standing in one line, for a run that is being driven."""
    over = standing.counts
    counts = {word: over[word] for word in RESULTS if word != "missing" and over.get(word)}
    parts = [f"{standing.planned - standing.left:,}/{standing.planned:,}"]
    parts += [f"{count:,} {word}" for word, count in (*counts.items(), *sorted(standing.phases.items()))]
    if standing.failed_launches:
        lost = standing.failed_launches
        count = sum(lost.values())
        parts.append(f"{count:,} lost {'launch' if count == 1 else 'launches'} ({', '.join(map(clean, lost))})")
    if standing.spent_nano_usd:
        parts.append(_cost(standing.spent_nano_usd))
    return "  ".join(parts) + _eta(standing) + (f"  {waiting(standing.waits)}" if standing.waits else "")


def _left_words(standing: Standing) -> str:
    parts = [
        f"{count:,} to {what}" for count, what in ((standing.to_run, "run"), (standing.to_grade, "grade")) if count
    ]
    return f", {', '.join(parts)}" if parts else ""


def _eta(standing: Standing) -> str:
    return "" if standing.eta_s is None or not standing.left else f", about {duration(standing.eta_s)} left"


def _counted(found: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {clean(word, 80)}" for word, count in sorted(found.items()))


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def _usd(nano: int | None) -> float | None:
    return None if nano is None else nano / 1e9


def _cost(nano: int | None) -> str:
    return "unknown" if nano is None else dollars(nano / 1e9)
