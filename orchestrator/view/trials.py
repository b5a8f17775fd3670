"""The table of trials: filtered, sorted and cut here, so that thousands of them cost the page nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.dataset.rows import RunData, TrialRow
from orchestrator.errors import SpecError
from orchestrator.report.jsonform import as_json
from orchestrator.report.summary import RESULTS, summarise
from orchestrator.view.filter import Filter, facets, parse

MOST_ROWS = 500
"""Rows of one answer."""
_Key = Callable[[TrialRow], Any]


def _tokens(row: TrialRow) -> int | None:
    return row.outcome.usage.total if row.outcome and row.outcome.tells("tokens") else None


def _ended(row: TrialRow) -> float | None:
    return row.outcome.times.ended if row.outcome and row.outcome.tells("times") else None


SORTS: dict[str, _Key] = {
    "result": lambda row: RESULTS.index(row.result),
    "ending": lambda row: row.outcome.termination_reason if row.outcome else None,
    "cost": lambda row: row.spent_nano_usd if row.launches else None,
    "worked": lambda row: row.outcome.working_s if row.outcome else None,
    "waited": lambda row: row.outcome.waiting_s if row.outcome else None,
    "steps": lambda row: row.outcome.steps if row.outcome else None,
    "calls": lambda row: row.outcome.tool_calls if row.outcome else None,
    "tokens": _tokens,
    "launches": lambda row: len(row.launches),
    "ended": _ended,
}
"""Columns by which trials can be sorted; the order of the run is the default and breaks ties."""


def trial_table(data: RunData, hays: Sequence[str], query: str, sort: str, begin: int, count: int) -> dict[str, Any]:
    """Return a piece of the table, with what it is a piece of.

    ``hays``: the text of each row; ``sort``: a column, with ``-`` before it for the largest first. Trials without a value come last either
    way. Raises SpecError for a filter or a column that there is not.
    """
    wanted = parse(query)
    marked = [(row, wanted.failing(row, hay)) for row, hay in zip(data.rows, hays, strict=True)]
    found = [row for row, failed in marked if not failed]
    ordered = _sorted(found, sort)
    return {
        "total": len(found),
        "of": len(data.rows),
        "from": begin,
        "rows": [row_json(row) for row in ordered[begin : begin + min(count, MOST_ROWS)]],
        "facets": facets(marked),
        "counts": _counts(found),
        "agents": _rates(data, found, wanted),
    }


def neighbours(data: RunData, hays: Sequence[str], query: str, sort: str, trial: str) -> dict[str, Any]:
    """Return the trials before and after one in the table that a person came from; one that is not in it has none. Raises SpecError."""
    wanted = parse(query)
    found = [row for row, hay in zip(data.rows, hays, strict=True) if not wanted.failing(row, hay)]
    names = [str(row.trial) for row in _sorted(found, sort)]
    place = names.index(trial) if trial in names else None
    return {
        "total": len(names),
        "place": None if place is None else place + 1,
        "previous": names[place - 1] if place else None,
        "next": names[place + 1] if place is not None and place + 1 < len(names) else None,
    }


def row_json(row: TrialRow) -> dict[str, Any]:
    """Return one line of the table."""
    outcome = row.outcome
    findings = [*(outcome.findings if outcome else ()), *(row.verdict.findings if row.verdict else ())]
    return {
        "trial": str(row.trial),
        "task": row.trial.task,
        "agent": row.trial.agent,
        "sample": row.trial.sample,
        "result": row.result,
        "graded_as": row.graded_as,
        "ending": outcome.termination_reason if outcome else None,
        "failed_checks": list(row.failed_checks),
        "findings": sorted({finding.type for finding in findings}),
        "cost_nano_usd": row.spent_nano_usd if row.launches else None,
        "worked_s": outcome.working_s if outcome else None,
        "waited_s": outcome.waiting_s if outcome else None,
        "steps": outcome.steps if outcome else None,
        "calls": outcome.tool_calls if outcome else None,
        "tokens": _tokens(row),
        "launches": len(row.launches),
        "ended": _ended(row),
    }


def _sorted(rows: Sequence[TrialRow], sort: str) -> list[TrialRow]:
    name = sort.removeprefix("-")
    if not name:
        return list(rows)
    if name not in SORTS:
        msg = f"trials cannot be sorted by {name!r}; columns: {', '.join(SORTS)}"
        raise SpecError(msg)
    key = SORTS[name]
    known = sorted((row for row in rows if key(row) is not None), key=key, reverse=sort.startswith("-"))
    return [*known, *(row for row in rows if key(row) is None)]


def _counts(rows: Sequence[TrialRow]) -> dict[str, int]:
    found = Counter(row.result for row in rows)
    return {"planned": len(rows), **{word: found[word] for word in RESULTS}}


def _rates(data: RunData, found: Sequence[TrialRow], wanted: Filter) -> list[dict[str, Any]] | None:
    """Return the report's numbers of a selection. None for one by what came of the trials, whose rates would say nothing; and for all
    trials, of which the run itself tells.
    """
    if not wanted.words or not wanted.is_by_design:
        return None
    agents = as_json(summarise(replace(data, rows=tuple(found))))["agents"]
    return [agent for agent in agents if agent["counts"]["planned"]]
