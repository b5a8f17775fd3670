"""The nine metrics of what happened on the way: each with its denominator, from rows that do not know where they are kept.

Task completion, steps, tool-call validity, tool selection, verification failures, recovery, context exhaustion, termination reason, and
cost with latency. Every metric has two forms that are never mixed. ``gateway`` counts what was seen to happen: calls of the gateway's own
tools, endings, time and money. ``agent`` counts what was only reported: calls in what models and agents told each other, the ending that
an agent claims, and everything of an imported trace. Where there is nothing to divide by there is no number, only the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.stats.intervals import LEVEL
from orchestrator.stats.quantiles import Dist, distribution
from orchestrator.stats.rates import Rate

Form = Literal["gateway", "agent"]
"""Who vouches: the gateway itself, or only the agent."""
FORMS: tuple[Form, ...] = ("gateway", "agent")

FULL_WINDOW = frozenset({"context_length_exceeded", "context_window_exceeded", "model_context_window_exceeded"})
"""Words with which providers say that a conversation is longer than the model's window."""
NOBODYS = frozenset({"finish", "ask_user"})
"""Tools of the gateway that end or ask: no task expects anything of them, unless it names them."""
_NO_INTERVAL = "no interval: what happens in one trial is alike"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One row of a trial: a model's response or failure, or a tool call with what came of it."""

    source: Form
    type: str
    """``model_response``, ``model_error``, ``tool_call``, ``refusal``."""
    tool: str | None = None
    known: bool | None = None
    """Whether the request offered that tool; None: it is not known what was offered."""
    valid: bool | None = None
    """Whether the arguments fit the tool's schema; None: there is none to fit."""
    wellformed: bool | None = None
    """Whether the arguments are a JSON object; None: unknown."""
    outcome: str | None = None
    """``ok``, or why not; None: nobody said what came of it."""
    goal: str | None = None
    """What the call was for: equal for calls that try the same thing."""
    verify: bool | None = None
    """Whether the task counts the call as verifying."""
    finish_reason: str | None = None
    code: str | None = None

    @property
    def is_right(self) -> bool:
        """Whether the call could be made as it was written: a known tool, with arguments that it takes."""
        return self.known is not False and (self.wellformed is not False if self.valid is None else self.valid)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a task expects of tools."""

    allow: frozenset[str] | None = None
    """Tools that may be called; None: the task does not say."""
    phases: tuple[frozenset[str], ...] = ()
    """Which tools fit each phase of the work, in order."""
    verifies: bool = False
    """Whether the task says what counts as verifying."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a trial ended and what it took."""

    seen: Form
    """``gateway``: it ran here. ``agent``: it was imported, so that everything about it was only reported."""
    passed: bool | None
    """What the verdict makes of it; None: it has none that counts."""
    claimed: str | None
    """The ending that the agent gave: ``completed, declined, asked``."""
    reason: str
    """Its termination reason."""
    steps: int | None
    cost_nano_usd: int | None
    working_s: float | None


@dataclass(frozen=True, kw_only=True)
class TrialMetrics:
    """The metrics of one trial in one form, as the counts that rates are made of. None: not defined, or not known."""

    form: Form
    completed: bool | None
    """``gateway``: the verdict. ``agent``: whether the ending that it gave was ``completed``."""
    steps: int | None
    """Model responses."""
    calls: int | None
    """Tool calls."""
    right_calls: int | None
    """Calls of a known tool with arguments that fit its schema or, where no schema is known, are a JSON object."""
    schema_calls: int | None
    """Calls that were held against a schema, or were of a tool that nobody offered."""
    expected_calls: int | None
    """Calls of which the task expects something."""
    matching_calls: int | None
    """Of these, calls whose tool fits the phase."""
    verify_calls: int | None
    """Calls that verify and of which the outcome is known; None: the task does not say what verifies."""
    verify_failures: int | None
    """Of these, calls that did not succeed."""
    unverified_claim: bool | None
    """Whether ``completed`` was claimed without any call that verifies and succeeds; None: nothing was claimed, nothing counts as
    verifying, or the gateway saw nothing that does."""
    error_episodes: int | None
    """Runs of failures for one goal."""
    recovered_episodes: int | None
    """Of these, followed by a success for the same goal."""
    context_exhausted: bool | None
    termination_reason: str | None
    """``agent``: the ending that it gave, or the reason of an imported trace."""
    cost_nano_usd: int | None
    working_s: float | None


def measure(ending: Ending, steps: Sequence[Step] | None, expected: Expected, form: Form) -> TrialMetrics:
    """Return the metrics of one trial in one form. ``steps`` are its rows in order; None: its trajectory is not there."""
    mine = None if steps is None else [step for step in steps if step.source == form]
    calls = None if mine is None else [step for step in mine if step.type == "tool_call"]
    own = ending.seen == form
    claim = ending.claimed if form == "agent" else None
    right, judged = selection(calls or (), expected)
    verifying = [call for call in calls or () if call.verify]
    told = [call for call in verifying if call.outcome is not None]
    episodes, recovered = recovery(calls or ())
    known, claimed = calls is not None, ending.claimed == "completed"
    return TrialMetrics(
        form=form,
        completed=ending.passed if form == "gateway" else None if claim is None else claim == "completed",
        steps=ending.steps if own else None,
        calls=len(calls) if calls is not None else None,
        right_calls=sum(call.is_right for call in calls) if calls is not None else None,
        schema_calls=sum(call.valid is not None or call.known is False for call in calls)
        if calls is not None
        else None,
        expected_calls=judged if known else None,
        matching_calls=right if known else None,
        verify_calls=len(told) if known and expected.verifies else None,
        verify_failures=sum(call.outcome != "ok" for call in told) if known and expected.verifies else None,
        unverified_claim=_unverified(verifying, form) if known and expected.verifies and claimed else None,
        error_episodes=episodes if known else None,
        recovered_episodes=recovered if known else None,
        context_exhausted=_exhausted(ending, mine) if own else None,
        termination_reason=ending.reason if own else claim,
        cost_nano_usd=ending.cost_nano_usd if own else None,
        working_s=ending.working_s if own else None,
    )


def _unverified(verifying: Sequence[Step], form: Form) -> bool | None:
    """Return whether no call that verifies has succeeded. Of what an agent runs in its sandbox the gateway knows nothing."""
    if form == "gateway" and not verifying:
        return None
    return not any(call.outcome == "ok" for call in verifying)


def selection(calls: Iterable[Step], expected: Expected) -> tuple[int, int]:
    """Return the calls whose tool fits the phase, and the calls of which something is expected.

    Phases come in order. A call that does not fit the present phase but a later one begins that phase, and fits if it is the next one and
    something fitting was called in the present one: a phase that was skipped is one wrong call, not many. A tool that fits no phase but is
    allowed by name is expected nowhere and not counted.
    """
    right = judged = phase = 0
    begun = False
    for call in calls:
        tool = plain_name(call.tool or "")
        if expected.phases:
            named = any(tool in tools for tools in expected.phases)
            if not named and (tool in NOBODYS or (expected.allow is not None and tool in expected.allow)):
                continue
            judged += 1
            if tool in expected.phases[phase]:
                right, begun = right + 1, True
                continue
            later = next((n for n in range(phase + 1, len(expected.phases)) if tool in expected.phases[n]), None)
            if later is not None:
                right += begun and later == phase + 1
                phase, begun = later, True
        elif expected.allow is not None and not (tool in NOBODYS and tool not in expected.allow):
            judged += 1
            right += tool in expected.allow
    return right, judged


def plain_name(tool: str) -> str:
    """Return the name of a tool without that of the server which some agents write before it: ``mcp__gateway__finish`` is ``finish``."""
    return tool.split("__", 2)[2] if tool.startswith("mcp__") and tool.count("__") >= 2 else tool


def recovery(calls: Iterable[Step]) -> tuple[int, int]:
    """Return the error episodes and how many of them were recovered from.

    An episode begins with a failure for a goal and lasts, however many more failures come, until a call for the same goal succeeds: then
    it is recovered. Calls of which nobody said what came neither begin nor end one.
    """
    episodes = recovered = 0
    failing: set[str] = set()
    for call in calls:
        goal = call.goal or call.tool or ""
        if call.outcome == "ok" and goal in failing:
            failing.remove(goal)
            recovered += 1
        elif call.outcome not in {None, "ok"} and goal not in failing:
            failing.add(goal)
            episodes += 1
    return episodes, recovered


def _exhausted(ending: Ending, steps: Sequence[Step] | None) -> bool | None:
    if ending.reason == "context_exhausted" or any(
        {step.code, step.finish_reason} & FULL_WINDOW for step in steps or ()
    ):
        return True
    if ending.seen == "gateway":
        return False
    # A trace that does not say why responses ended does not say either that the window was never full.
    return False if any(step.finish_reason for step in steps or ()) else None


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """The nine metrics of one agent in one form."""

    task_completion: Rate
    steps: Dist
    tool_call_validity: Rate
    tool_selection_accuracy: Rate
    verification_failures: Rate
    unverified_claims: Rate
    recovery_rate: Rate
    context_exhaustion: Rate
    termination_reason: dict[str, int]
    cost_usd: Dist
    latency_s: Dist


def aggregate(trials: Sequence[tuple[str, TrialMetrics]], form: Form, completion: Rate | None = None) -> Metrics:
    """Return the metrics of an agent over its trials, each with its task.

    ``completion`` is the pass rate, which is the completion in the form ``gateway``; that of the form ``agent`` is made of claims. Rates
    are over all calls, episodes or trials of the agent (``micro``), and ``planned`` is how many there would be if everything were known.
    """
    mine = [(task, found) for task, found in trials if found.form == form]
    every = [found for _, found in mine]
    rate = _Rates(mine)
    reasons = Counter(found.termination_reason for found in every if found.termination_reason is not None)
    return Metrics(
        task_completion=completion or rate.of_flags("completed", "no ending was claimed"),
        steps=distribution([found.steps for found in every]),
        tool_call_validity=rate.validity(),
        tool_selection_accuracy=rate.of_counts(
            "matching_calls", "expected_calls", "no call of which a task expects anything (tools.expected, tools.allow)"
        ),
        verification_failures=rate.of_counts(
            "verify_failures", "verify_calls", "no call that a task counts as verifying (tools.verify)"
        ),
        unverified_claims=rate.of_flags(
            "unverified_claim", "nobody claimed completion of a task that says what verifies (tools.verify)"
        ),
        recovery_rate=rate.of_counts("recovered_episodes", "error_episodes", "no call is known to have failed"),
        context_exhaustion=rate.of_flags("context_exhausted", "it is not known of any trial"),
        termination_reason=dict(sorted(reasons.items())),
        cost_usd=distribution([found.cost_nano_usd for found in every], unit=1e9),
        latency_s=distribution([found.working_s for found in every]),
    )


class _Rates:
    def __init__(self, trials: Sequence[tuple[str, TrialMetrics]]) -> None:
        self._trials = trials

    def of_counts(self, numerator: str, denominator: str, otherwise: str) -> Rate:
        """Return the rate of two counts of trials; ``otherwise`` is why there is none."""
        known = [
            (task, getattr(found, numerator), getattr(found, denominator))
            for task, found in self._trials
            if getattr(found, denominator) is not None
        ]
        total = sum(count for _, _, count in known)
        tasks = len({task for task, _, count in known if count})
        return self._rate(sum(count for _, count, _ in known), total, total, tasks, otherwise)

    def of_flags(self, name: str, otherwise: str) -> Rate:
        """Return the share of trials of which something holds, of those where it is defined."""
        known = [(task, getattr(found, name)) for task, found in self._trials if getattr(found, name) is not None]
        tasks = len({task for task, _ in known})
        return self._rate(sum(flag for _, flag in known), len(known), len(self._trials), tasks, otherwise)

    def validity(self) -> Rate:
        found = self.of_counts("right_calls", "calls", "no tool was called")
        without = found.denominator - sum(each.schema_calls or 0 for _, each in self._trials)
        if not without or found.value is None:
            return found
        note = f"{without} of {found.denominator} calls had no schema to fit: valid are those whose arguments are a JSON object"
        return replace(found, reason=f"{note}; {_NO_INTERVAL}")

    def _rate(self, numerator: int, denominator: int, planned: int, tasks: int, otherwise: str) -> Rate:
        unread = sum(found.calls is None for _, found in self._trials)
        why = otherwise if self._trials else "no trial ended"
        if self._trials and unread == len(self._trials):
            why = "no trajectory was read"
        return Rate(
            value=numerator / denominator if denominator else None,
            estimand="micro",
            numerator=numerator,
            denominator=denominator,
            planned=planned,
            coverage=denominator / planned if planned else None,
            tasks=tasks,
            ci_low=None,
            ci_high=None,
            level=LEVEL,
            method=None,
            reason=_NO_INTERVAL if denominator else why,
        )
