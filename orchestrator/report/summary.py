"""The one aggregation: everything that any report prints is counted here, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from orchestrator.dataset.measured import Measured, unmeasured
from orchestrator.dataset.rows import RunData, TrialRow
from orchestrator.records.ids import TrialId
from orchestrator.records.manifest import ManifestAgent, ManifestTask, RunManifest
from orchestrator.records.outcome import Outcome
from orchestrator.records.termination import REASONS, TerminationReason
from orchestrator.records.usage import Usage
from orchestrator.records.verdict import TrialResult, has_left_recording
from orchestrator.report.model_ids import about_models
from orchestrator.report.select import first_failure
from orchestrator.report.text import plural
from orchestrator.stats.quantiles import Dist, distribution
from orchestrator.stats.rates import COVERAGE_FLOOR, Rate, Tally, suite_pass_k, suite_rate, task_rate
from orchestrator.stats.trajectory import FORMS, Form, Metrics, TrialMetrics, aggregate

RESULTS: tuple[TrialResult, ...] = get_args(TrialResult)
GRADED: tuple[TrialResult, ...] = ("passed", "failed", "abstained")
"""The denominator."""
ALARMS: tuple[TerminationReason, ...] = ("unhandled_exception", "step_cap")
"""Endings that name a defect of the agent before any average does."""
KS = (1, 3, 5)
"""``k`` of pass@k and pass^k, beside the suite's own."""

TaskState = Literal["solid", "unreliable", "defect", "quarantined", "not_applicable", "ungraded", "not_planned"]
"""All graded trials passed, some did, none did; or nothing was graded and why: ``not_planned`` has no trials in this run."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Trials by word. ``planned`` is always the sum of the others."""

    planned: int
    passed: int
    failed: int
    abstained: int
    infra: int
    grader_error: int
    quarantined: int
    cancelled: int
    missing: int
    not_applicable: int

    def __post_init__(self) -> None:
        total = sum(self.of(word) for word in RESULTS)
        if total != self.planned:
            msg = f"{self.planned} trials were planned but {total} are counted"
            raise AssertionError(msg)

    def of(self, word: TrialResult) -> int:
        """Return the number of trials with that word."""
        found: int = getattr(self, word)
        return found

    @property
    def graded(self) -> int:
        """The denominator: passed + failed + abstained."""
        return self.passed + self.failed + self.abstained

    @property
    def infra_share(self) -> float | None:
        """Share of planned trials that were lost for our reasons; None without trials."""
        return self.infra / self.planned if self.planned else None

    @property
    def eligible(self) -> int:
        """planned - quarantined - not applicable."""
        return self.planned - self.quarantined - self.not_applicable


@dataclass(frozen=True, kw_only=True)
class AgentSummary:
    """Everything about one agent in this run. Distributions and metrics are over graded trials, as the rate is, or over imported traces."""

    agent: str
    digest: str
    counts: Counts
    pass_rate: Rate
    pass_at_k: dict[int, Rate]
    pass_hat_k: dict[int, Rate]
    cost_usd: Dist
    user_cost_usd: Dist
    """Of the simulated user, not part of ``cost_usd``."""
    judge_cost_usd: Dist
    """Of the judges, not part of ``cost_usd``."""
    latency_s: Dist
    """Working time in seconds."""
    waiting_s: Dist
    """Waiting at the gateway, in seconds."""
    steps: Dist
    metrics: dict[Form, Metrics]
    """The nine trajectory metrics, as seen by the gateway and as only reported."""
    termination_reason: dict[TerminationReason, int]
    """How the trials ended, lost ones included, in the order of the enumeration."""
    alarms: dict[TerminationReason, tuple[TrialId, ...]]
    """The trials behind the endings that must be looked at first."""
    findings: dict[str, int]
    """Trials by type of finding."""
    left_recording: int
    """Trials that failed after a tool call without a recorded answer."""
    lost_launches: int
    """Launches that failed for a reason of ours."""
    lost_causes: dict[str, int]
    """Why."""
    spent_nano_usd: int | None
    """Cost of every launch, lost ones included, in 10**-9 US dollars; None when a price is unknown."""
    unpriced: tuple[str, ...] = ()
    """Models, as the agent asks for them, that need a price before its cost can be known."""


@dataclass(frozen=True, kw_only=True)
class TaskSummary:
    """One task of one agent."""

    task: str
    agent: str
    tier: int
    kind: str
    expect: str
    digest: str
    counts: Counts
    pass_rate: Rate
    state: TaskState
    left_recording: int
    """Trials that failed after a tool call without a recorded answer; with one, nobody can judge by this task."""
    graders: tuple[str, ...]
    """Digests of the graders whose verdicts count."""
    failed_checks: dict[str, int]
    """Graded trials that did not pass, by the gate that did not hold, most frequent first."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A whole run, counted."""

    manifest: RunManifest
    agents: tuple[AgentSummary, ...]
    tasks: tuple[TaskSummary, ...]
    """By task, then by agent in the order of the manifest."""
    grader_version: str
    """What graded it; empty when nobody has and nobody knows."""
    labels: dict[str, tuple[str, ...]]
    """What sandboxes could not promise in full: of the run and of single launches."""
    notes: tuple[str, ...]
    """What a reader must know."""
    first_failure: TrialId | None = None
    """Where to look first."""

    def of_task(self, task: str) -> list[TaskSummary]:
        """Return the rows of one task, by agent."""
        return [row for row in self.tasks if row.task == task]


def summarise(data: RunData, floor: float = COVERAGE_FLOOR, measured: Measured | None = None) -> Summary:
    """Count a run. ``floor`` is the share of graded trials below which a rate has no value, only a reason.

    ``measured``: the metrics of its trajectories; without them, those of which the records tell.
    """
    manifest = data.manifest
    measured = measured or unmeasured(data)
    cells: dict[tuple[str, str], list[TrialRow]] = {}
    for row in data.rows:
        cells.setdefault((row.task.id, row.agent.name), []).append(row)
    tasks = [
        _task(task, agent.name, cells.get((task.id, agent.name), []), floor)
        for task in sorted(manifest.tasks, key=lambda task: task.id)
        for agent in manifest.agents
    ]
    agents = []
    for agent in manifest.agents:
        rows = [row for row in data.rows if row.agent.name == agent.name]
        suite = _suite([row for row in tasks if row.agent == agent.name], _ks(manifest, cells), floor)
        suite = suite.imported() if manifest.is_imported else suite
        agents.append(_agent(agent.name, agent.digest, rows, suite, measured))
    worst = first_failure(data.rows)
    return Summary(
        manifest=manifest,
        agents=tuple(agents),
        tasks=tuple(tasks),
        grader_version=data.grader_version,
        labels=_labels(data),
        notes=(*data.notes, *measured.notes, *about_models(data.rows), *_about_rerun(data)),
        first_failure=worst.trial if worst else None,
    )


def _about_rerun(data: RunData) -> tuple[str, ...]:
    manifest = data.manifest
    if manifest.rerun_of is None:
        return ()
    what = f"this repeats {plural(len(data.rows), 'trial')} of run {manifest.rerun_of} and is never counted together with it"
    if not manifest.is_biased:
        return (what,)
    return (
        f"{what}; trials that were chosen because they failed are a biased sample: these rates say nothing of the suite",
    )


def _ks(manifest: RunManifest, cells: Mapping[tuple[str, str], Sequence[TrialRow]]) -> list[int]:
    """Return the values of k that some task of the run has enough trials for."""
    most = max(map(len, cells.values()), default=0)
    return [k for k in sorted({*KS, manifest.k}) if k <= most]


def _counts(rows: Sequence[TrialRow]) -> Counts:
    found = Counter(row.result for row in rows)
    return Counts(planned=len(rows), **{word: found[word] for word in RESULTS})


def _task(task: ManifestTask, agent: str, rows: Sequence[TrialRow], floor: float) -> TaskSummary:
    counts = _counts(rows)
    failed = Counter(check for row in rows for check in _why(row))
    return TaskSummary(
        task=task.id,
        agent=agent,
        tier=task.tier,
        kind=task.kind,
        expect=task.expect,
        digest=task.digest,
        counts=counts,
        pass_rate=task_rate(_tally(task.id, counts), floor),
        state=_state(counts),
        left_recording=_left(rows),
        graders=tuple(sorted({row.verdict.grader_digest for row in rows if row.verdict})),
        failed_checks=dict(sorted(failed.items(), key=lambda item: -item[1])),
    )


def _why(row: TrialRow) -> tuple[str, ...]:
    """Return what kept a graded trial from passing: gates, else its ending. Round brackets mark what is no check."""
    if row.graded_as == "abstained":
        return ("(abstained)",)
    if row.graded_as != "failed":
        return ()
    return row.failed_checks or ("(wrong ending)",)


def _tally(task: str, counts: Counts) -> Tally:
    return Tally(
        task=task, planned=counts.planned, eligible=counts.eligible, graded=counts.graded, passed=counts.passed
    )


def _state(counts: Counts) -> TaskState:
    if counts.graded:
        return "solid" if counts.passed == counts.graded else "unreliable" if counts.passed else "defect"
    if not counts.planned:
        return "not_planned"
    if counts.eligible:
        return "ungraded"
    return "quarantined" if counts.quarantined else "not_applicable"


@dataclass(frozen=True, kw_only=True)
class _Suite:
    pass_rate: Rate
    at: dict[int, Rate]
    hat: dict[int, Rate]

    def imported(self) -> _Suite:
        """Return the same rates, which are none, with the reason why."""

        def why(rate: Rate) -> Rate:
            return replace(rate, reason="imported traces have no verdict")

        every = ({k: why(rate) for k, rate in rates.items()} for rates in (self.at, self.hat))
        return _Suite(pass_rate=why(self.pass_rate), at=next(every), hat=next(every))


def _suite(tasks: Sequence[TaskSummary], ks: Sequence[int], floor: float) -> _Suite:
    tallies = [_tally(row.task, row.counts) for row in tasks]
    return _Suite(
        pass_rate=suite_rate(tallies, floor),
        at={k: suite_pass_k(tallies, k, "at", floor) for k in ks},
        hat={k: suite_pass_k(tallies, k, "hat", floor) for k in ks},
    )


def _agent(name: str, digest: str, rows: Sequence[TrialRow], suite: _Suite, measured: Measured) -> AgentSummary:
    endings = Counter(row.outcome.termination_reason for row in rows if row.outcome)
    launches = [launch for row in rows for launch in row.launches]
    lost = Counter(launch.cause or "unknown" for launch in launches if launch.outcome_class == "infra")
    costs = [launch.usage.cost_nano_usd for launch in launches]
    return AgentSummary(
        agent=name,
        digest=digest,
        counts=_counts(rows),
        pass_rate=suite.pass_rate,
        pass_at_k=suite.at,
        pass_hat_k=suite.hat,
        cost_usd=_costs(rows, lambda row: row.outcome.usage if row.outcome else None),
        user_cost_usd=_costs(rows, lambda row: row.outcome.user_usage if row.outcome else None),
        judge_cost_usd=_costs(rows, lambda row: row.verdict.judge_usage if row.verdict else None),
        latency_s=_over_graded(rows, lambda row: row.outcome.working_s if row.outcome else None),
        waiting_s=_over_graded(rows, lambda row: row.outcome.waiting_s if row.outcome else None),
        steps=_over_graded(rows, lambda row: row.outcome.known_steps if row.outcome else None),
        metrics=_metrics(rows, suite.pass_rate, measured),
        termination_reason={reason: endings[reason] for reason in REASONS if endings[reason]},
        alarms={reason: found for reason in ALARMS if (found := _ended(rows, reason))},
        findings=_findings(rows),
        left_recording=_left(rows),
        lost_launches=sum(lost.values()),
        lost_causes=dict(sorted(lost.items())),
        spent_nano_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
        unpriced=unpriced(rows[0].agent, launches) if rows else (),
    )


def unpriced(agent: ManifestAgent, launches: Iterable[Outcome]) -> tuple[str, ...]:
    """Return the models that had no price in this run, when a launch that asked a model has no known cost.

    Without such a model, a call was broken off instead.
    """
    unknown = any(launch.usage.cost_nano_usd is None for launch in launches if launch.steps)
    return agent.unpriced if unknown else ()


def _ended(rows: Iterable[TrialRow], reason: TerminationReason) -> tuple[TrialId, ...]:
    return tuple(row.trial for row in rows if row.outcome and row.outcome.termination_reason == reason)


def _over_graded(rows: Iterable[TrialRow], value: Callable[[TrialRow], float | None], unit: float = 1) -> Dist:
    return distribution([value(row) for row in rows if _counts_here(row)], unit=unit)


def _costs(rows: Iterable[TrialRow], usage: Callable[[TrialRow], Usage | None]) -> Dist:
    """Return the costs of graded trials in US dollars."""
    return _over_graded(rows, lambda row: used.cost_nano_usd if (used := usage(row)) else None, unit=1e9)


def _counts_here(row: TrialRow) -> bool:
    """Return whether a trial is in distributions and metrics: it was graded, or it is an imported trace."""
    return row.result in GRADED or (row.is_imported and row.outcome is not None)


def _metrics(rows: Sequence[TrialRow], completion: Rate, measured: Measured) -> dict[Form, Metrics]:
    found: list[tuple[str, TrialMetrics]] = [
        (row.task.id, one) for row in rows if _counts_here(row) for one in measured.trials.get(row.trial, ())
    ]
    return {form: aggregate(found, form, completion if form == "gateway" else None) for form in FORMS}


def _left(rows: Iterable[TrialRow]) -> int:
    return sum(has_left_recording(row.graded_as, row.outcome) for row in rows)


def _findings(rows: Iterable[TrialRow]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for row in rows:
        of_outcome = row.outcome.findings if row.outcome else ()
        of_verdict = row.verdict.findings if row.verdict else ()
        found.update({finding.type for finding in (*of_outcome, *of_verdict)})
    return dict(sorted(found.items()))


def _labels(data: RunData) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {name: {value} for name, value in data.manifest.labels.items()}
    for row in data.rows:
        for name, value in (row.outcome.labels if row.outcome else {}).items():
            found.setdefault(name, set()).add(value)
    return {name: tuple(sorted(values)) for name, values in sorted(found.items())}
