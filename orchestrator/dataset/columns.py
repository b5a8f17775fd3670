"""The six tables and what each of their columns means. The README beside this file shows the same list."""

from __future__ import annotations

from typing import get_args

from orchestrator.dataset.schema import Column, Table
from orchestrator.records.event import EventSource
from orchestrator.records.manifest import Origin
from orchestrator.records.state import EndedAs
from orchestrator.records.termination import REASONS, OutcomeClass, TerminationClass
from orchestrator.records.verdict import TrialResult
from orchestrator.spec.task import Expect, Kind

RESULTS: tuple[str, ...] = get_args(TrialResult)
STEP_TYPES = ("model_response", "model_error", "tool_call", "refusal")
"""The events of a trajectory that are rows of ``steps``."""
CALL_OUTCOMES = ("ok", "error", "refused", "timeout", "invalid")
"""What can come of a tool call."""
FORMS = get_args(EventSource)
ORIGINS = get_args(Origin)
VERDICTS = ("passed", "failed", "grader_error")
GRADING_ERRORS = ("evidence", "integrity", "check", "config")
CONFIDENCES = ("low", "medium", "high")

_RUN = (
    Column("run", "word", "Run id."),
    Column("suite", "word", "Suite id."),
    Column("created_at", "time", "When the run was submitted; its month is the month of the part."),
)
_RERUN_OF = Column(
    "rerun_of",
    "word",
    "The run that it repeats a part of; null: a run of its own. Trials chosen by their results estimate nothing.",
    nullable=True,
    since=2,
)
_ORIGIN = Column(
    "origin",
    "word",
    "run: made here. production: imported traces, which nobody graded. null: made here, by an older version.",
    ORIGINS,
    nullable=True,
    since=3,
)
_TRIAL = (
    Column("trial_id", "bin16", "First 16 bytes of sha256 of run, NUL, TASK@AGENT:N: joins the tables."),
    *_RUN,
    Column("task", "word", "Task id."),
    Column("agent", "word", "Agent name."),
    Column("sample", "int32", "Number of the trial among those of its task and agent, from 1."),
)


def _ending(*, nullable: bool) -> tuple[Column, ...]:
    reasons: tuple[str, ...] = REASONS
    return (
        Column("outcome_class", "word", "What the ending makes of the launch.", get_args(OutcomeClass), nullable),
        Column("termination_reason", "word", "How it ended.", reasons, nullable),
        Column("termination_class", "word", "Who caused the ending.", get_args(TerminationClass), nullable),
        Column("ended_as", "word", "The ending that the agent gave; null: none.", get_args(EndedAs), nullable=True),
        Column("exit_code", "int64", "Exit code of the agent's first process.", nullable=True),
        Column("exit_signal", "int64", "Signal that ended it.", nullable=True),
    )


def _spent(*, nullable: bool, since: int) -> tuple[Column, ...]:
    """Return the columns of what was used; ``since`` is the version that first had the latest of them."""
    counted = "null: no launch ended" if nullable else "never null"
    return (
        Column("steps", "int64", f"Model responses; {counted}.", nullable=nullable),
        Column("tool_calls", "int64", "Tool calls.", nullable=nullable),
        Column("uncached_input", "int64", "Input tokens that no cache served; null: not recorded.", nullable=True),
        Column("cache_read", "int64", "Input tokens read from a cache.", nullable=True),
        Column("cache_write", "int64", "Input tokens written to a cache.", nullable=True),
        Column(
            "cache_write_1h", "int64", "The part of cache_write that is kept for an hour.", nullable=True, since=since
        ),
        Column("output", "int64", "Output tokens, reasoning included.", nullable=True),
        Column("reasoning", "int64", "The reasoning part of output.", nullable=True),
        Column("cost_nano_usd", "int64", "Cost in 10**-9 US dollars; null: a price is unknown.", nullable=True),
        Column(
            "user_cost_nano_usd",
            "int64",
            "Cost of the simulated user, not part of cost_nano_usd; null: not known.",
            nullable=True,
            since=since,
        ),
        Column("price_table", "word", "Digest of the price table; null: no price was known.", nullable=True),
        Column("started_at", "time", "When the agent's process started; null: not recorded.", nullable=True),
        Column("ended_at", "time", "When its tree was seen dead.", nullable=True),
        Column("working_s", "float64", "Wall clock without waiting, in seconds.", nullable=True),
        Column("waiting_s", "float64", "Waiting at the gateway, in seconds.", nullable=True),
        Column("setup_s", "float64", "From registration to the agent's start, in seconds.", nullable=True),
        Column("freeze_s", "float64", "From the tree's death to the committed state, in seconds.", nullable=True),
        Column("models", "texts", "Model ids as they came back from the providers."),
    )


RUNS = Table(
    "runs",
    "One row for each run.",
    (
        *_RUN,
        Column("orchestrate_version", "word", "Version that submitted it."),
        Column("commit", "word", "Commit of the suite, full hex; null: no repository.", nullable=True),
        Column("dirty", "bool", "Whether files differed from the commit.", nullable=True),
        Column("suite_digest", "word", "Digest of the suite and all its tasks."),
        Column("metric", "word", "The suite's metric."),
        Column("k", "int32", "k of the metric."),
        Column("seed", "int64", "Seed of the run."),
        Column("backend", "word", "Sandbox backend."),
        Column("pool", "word", "Who ran the trials."),
        Column("grader_version", "word", "Version of the grader service."),
        Column("price_table", "word", "Digest of the price table; null: no price was known.", nullable=True),
        Column("labels", "texts", "What the backend does not promise in full, as NAME: VALUE."),
        Column("agents", "texts", "Agent names, in the order given."),
        Column("tasks", "int32", "Number of tasks."),
        Column("planned", "int64", "Planned trials: the sum of the columns that follow."),
        *(Column(word, "int64", f"Trials whose result is {word}.") for word in RESULTS),
        Column("left", "int64", "Trials that resume would run or grade.", nullable=True, since=2),
        Column(
            "spent_nano_usd",
            "int64",
            "Cost of all launches; null: a price is unknown, or too large.",
            nullable=True,
            since=2,
        ),
        _RERUN_OF,
        Column("chosen_by", "texts", "How a rerun's trials were chosen; null: no rerun.", nullable=True, since=2),
        _ORIGIN,
    ),
    sort=("run",),
    version=3,
)

TRIALS = Table(
    "trials",
    "One row for each planned trial: its only result, or its last lost launch, or neither.",
    (
        *_TRIAL,
        Column("commit", "word", "Commit of the suite, full hex; null: no repository.", nullable=True),
        Column("backend", "word", "Sandbox backend."),
        Column("task_version", "int32", "The author's version of the task."),
        Column("task_digest", "word", "Digest of the whole task."),
        Column("kind", "word", "capability or regression.", get_args(Kind)),
        Column("tier", "int8", "1 to 4."),
        Column("expect", "word", "The right ending.", get_args(Expect)),
        Column("tags", "texts", "Tags of the task."),
        Column("agent_digest", "word", "Digest of the agent's configuration."),
        Column("result", "word", "The one word that counts; planned is the sum of all.", RESULTS),
        Column("graded_as", "word", "The word without quarantine and applicability.", RESULTS),
        Column(
            "passed",
            "bool",
            "true: passed; false: failed or abstained; null: not in the denominator. avg(passed::int) is the micro rate.",
            nullable=True,
        ),
        Column("grader_digest", "word", "Digest of the grader whose verdict counts; null: none.", nullable=True),
        Column("verdict", "word", "What the checks say, the ending not considered.", VERDICTS, nullable=True),
        Column("failed_checks", "texts", "Ids of the gates that did not hold."),
        Column("launch", "int32", "Number of the launch that counts; null: none ended.", nullable=True),
        Column("launches", "int32", "Launches that ended, lost ones included."),
        *_ending(nullable=True),
        Column("confidence", "float64", "How sure the agent said it was, 0 to 1.", nullable=True),
        Column("confidence_word", "word", "Or its word for it.", CONFIDENCES, nullable=True),
        *_spent(nullable=True, since=3),
        Column(
            "judge_cost_nano_usd",
            "int64",
            "Cost of the judges of the verdict that counts; null: no verdict, or not known.",
            nullable=True,
            since=3,
        ),
        Column(
            "spent_nano_usd",
            "int64",
            "Cost of all launches; null: no launch, an unknown price, or too large.",
            nullable=True,
        ),
        Column("state_sha256", "bin32", "Digest of the frozen state; null: none.", nullable=True),
        Column("findings", "texts", "Types of what was noticed, by sandbox, gateway, freezer or grader."),
        _RERUN_OF,
        _ORIGIN,
        Column("questions", "int32", "Questions to the user; null: there was nobody to ask.", nullable=True, since=3),
        Column("fixture_misses", "int64", "Tool calls that no answer was recorded for.", nullable=True, since=4),
        Column("left_recording", "bool", "Failed after such a call: it cannot be judged.", nullable=True, since=4),
    ),
    sort=("task", "run", "agent", "sample"),
    version=4,
)

LAUNCHES = Table(
    "launches",
    "One row for each launch that ended, lost and cancelled ones included.",
    (
        *_TRIAL,
        Column("launch", "int32", "Number of the launch, from 1."),
        Column("launch_id", "bin12", "Short name of the launch; in hex it names sandbox and trajectory."),
        Column("counts", "bool", "Whether it is the launch that its trial is judged by."),
        *_ending(nullable=False),
        Column("cause", "word", "For infra: the word under which equal failures are counted.", nullable=True),
        Column("error", "text", "For infra: what failed, in one line.", nullable=True),
        *_spent(nullable=False, since=2),
        Column("state_sha256", "bin32", "Digest of the frozen state; null: none.", nullable=True),
        Column("entries_key", "text", "Store key of the list of frozen entries.", nullable=True),
        Column("changes_key", "text", "Store key of the tar of changed entries.", nullable=True),
        Column("output_key", "text", "Store key of the last output.", nullable=True),
        Column("trajectory_key", "text", "Store key of the trajectory.", nullable=True),
        Column("trajectory_sha256", "bin32", "Digest of the trajectory's bytes.", nullable=True),
        Column("trajectory_bytes", "int64", "Size of the trajectory.", nullable=True),
        Column("findings", "texts", "Types of what sandbox, gateway and freezer noticed."),
        Column("labels", "texts", "What the sandbox could not promise in full, as NAME: VALUE."),
        Column("writer_id", "text", "Who committed the outcome."),
        Column("epoch", "int32", "The driver's epoch."),
    ),
    sort=("task", "run", "agent", "sample", "launch"),
    version=2,
)

STEPS = Table(
    "steps",
    "One row for each model response, failed model call, tool call and refusal of a trajectory.",
    (
        *_TRIAL,
        Column("launch", "int32", "Number of the launch, from 1."),
        Column("seq", "int32", "Number of the event in the trajectory."),
        Column("at", "time", "When it was written down; null: an imported trace does not say.", nullable=True),
        Column("source", "word", "gateway: seen by us. agent: only reported.", get_args(EventSource)),
        Column("type", "word", "What happened.", STEP_TYPES),
        Column("step", "int32", "Number of the model response that it is or belongs to, from 1.", nullable=True),
        Column("conversation", "int32", "Conversation of the launch; 0 is the first.", nullable=True),
        Column("model", "word", "Model id: as it came back, or for a failed call as asked for.", nullable=True),
        Column("finish_reason", "word", "Why the response ended.", nullable=True),
        Column("seconds", "float64", "Time to the whole response, retries included.", nullable=True),
        Column("output", "int64", "Output tokens that the provider reported, reasoning included.", nullable=True),
        Column("tool", "word", "Name of the tool, at most 200 characters.", nullable=True),
        Column("call", "text", "Id of the tool call, at most 200 characters.", nullable=True),
        Column("known", "bool", "Whether the request offered that tool.", nullable=True),
        Column("valid", "bool", "Whether the arguments were what the tool takes.", nullable=True),
        Column("arguments_sha256", "bin32", "Digest of the arguments: equal calls have equal ones.", nullable=True),
        Column("arguments_chars", "int64", "Characters of the arguments.", nullable=True),
        Column("result_chars", "int64", "Characters of the result; null: none was reported.", nullable=True),
        Column("code", "word", "Short word of a failed call or refusal.", nullable=True),
        Column("asked", "word", "Model that was asked for, as provider/name.", nullable=True, since=2),
        Column("uncached_input", "int64", "Input tokens that no cache served.", nullable=True, since=2),
        Column("cache_read", "int64", "Input tokens read from a cache.", nullable=True, since=2),
        Column("cache_write", "int64", "Input tokens written to a cache.", nullable=True, since=2),
        Column("cache_write_1h", "int64", "The part of cache_write that is kept for an hour.", nullable=True, since=2),
        Column("reasoning", "int64", "The reasoning part of output.", nullable=True, since=2),
        Column("estimated", "bool", "Whether the tokens are a guess by size.", nullable=True, since=2),
        Column("cost_nano_usd", "int64", "Cost of the response in 10**-9 US dollars.", nullable=True, since=2),
        Column("wellformed", "bool", "Whether the arguments are a JSON object.", nullable=True, since=2),
        Column("outcome", "word", "What came of the call; null: nobody said.", CALL_OUTCOMES, nullable=True, since=2),
        Column(
            "goal", "word", "The tool and, for commands, the program: equal for the same aim.", nullable=True, since=2
        ),
        Column(
            "verify",
            "bool",
            "Whether the task counts the call as verifying; null: it does not say what does.",
            nullable=True,
            since=2,
        ),
    ),
    sort=("task", "run", "agent", "sample", "launch", "seq"),
    version=2,
)

METRICS = Table(
    "metrics",
    "Two rows for each trial with a result: its trajectory metrics as seen by the gateway, and as only reported.",
    (
        *_TRIAL,
        Column("form", "word", "gateway: seen by us. agent: only reported.", FORMS),
        Column("completed", "bool", "gateway: the verdict. agent: whether completed was claimed.", nullable=True),
        Column("steps", "int64", "Model responses.", nullable=True),
        Column("calls", "int64", "Tool calls.", nullable=True),
        Column("right_calls", "int64", "Calls of a known tool with arguments that it takes.", nullable=True),
        Column("schema_calls", "int64", "Calls that were held against a schema or an unknown tool's.", nullable=True),
        Column("expected_calls", "int64", "Calls of which the task expects something.", nullable=True),
        Column("matching_calls", "int64", "Of these, calls of a tool that fits the phase.", nullable=True),
        Column("verify_calls", "int64", "Calls that verify and whose outcome is known.", nullable=True),
        Column("verify_failures", "int64", "Of these, calls that did not succeed.", nullable=True),
        Column("unverified_claim", "bool", "Whether completed was claimed and nothing verified it.", nullable=True),
        Column("error_episodes", "int64", "Runs of failures for one goal.", nullable=True),
        Column("recovered_episodes", "int64", "Of these, followed by a success for that goal.", nullable=True),
        Column("context_exhausted", "bool", "Whether the model's window was full.", nullable=True),
        Column("termination_reason", "word", "How it ended; agent: the ending it gave.", nullable=True),
        Column("cost_nano_usd", "int64", "Cost in 10**-9 US dollars.", nullable=True),
        Column("working_s", "float64", "Wall clock without waiting, in seconds.", nullable=True),
    ),
    sort=("task", "run", "agent", "sample", "form"),
)

GRADES = Table(
    "grades",
    "One row for each check and invariant of each verdict; a verdict without any has one row with check null.",
    (
        *_TRIAL,
        Column("launch", "int32", "The launch that was graded."),
        Column("grader_digest", "word", "Digest over graders bundle, service version and configuration."),
        Column("counts", "bool", "Whether the verdict is the one that its trial is judged by."),
        Column("verdict", "word", "What the checks say, the ending not considered.", VERDICTS),
        Column("error_type", "word", "Kind of a permanent grading error.", GRADING_ERRORS, nullable=True),
        Column("error", "text", "What it was, in one line.", nullable=True),
        Column("position", "int32", "Number of the row in its verdict, from 0: checks, then invariants."),
        Column("check", "word", "Id of the check or invariant.", nullable=True),
        Column("part", "word", "Where it stands in the task.", ("check", "invariant"), nullable=True),
        Column("type", "word", "Type of the check.", nullable=True),
        Column("gate", "bool", "Whether it decides the trial.", nullable=True),
        Column("passed", "bool", "null: it could not be evaluated.", nullable=True),
        Column("seconds", "float64", "How long it took.", nullable=True),
        Column("expected", "text", "What should have been, as JSON, at most 2,000 characters.", nullable=True),
        Column("actual", "text", "What was, as JSON, at most 2,000 characters.", nullable=True),
        Column("evidence", "texts", "Lines for a person, at most 20 of 400 characters."),
    ),
    sort=("task", "run", "agent", "sample", "launch", "grader_digest", "position"),
)

TABLES: dict[str, Table] = {table.name: table for table in (RUNS, TRIALS, LAUNCHES, STEPS, GRADES, METRICS)}
"""Every table by its name."""
