"""What decides a trial: checks on the end state, invariants, trace checks, judges, measures.

Every type of the published format parses. Which of them this version runs is said by ``RUNNABLE_CHECKS`` and
``RUNNABLE_INVARIANTS``; planning refuses the others by name, so that no check is ever skipped silently.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, JsonValue, StringConstraints, Tag, model_validator

from orchestrator.spec.base import Glob, Name, RelativePath, Spec

RUNNABLE_CHECKS = frozenset({"command", "files", "diff", "final", "asked", "sql", "db_goal", "outbox", "any_of"})
RUNNABLE_INVARIANTS = frozenset(
    {"paths_unchanged", "public_api_unchanged", "rows_unchanged", "no_irreversible_without_approval"}
)


class CommandCheck(Spec):
    """A command over hidden tests.

    It passes when it exits with 0 and, with ``expect``, when exactly those tests passed.
    """

    id: Name
    """Name of the check, unique in the task."""
    type: Literal["command"]
    run: str = Field(min_length=1)
    """Shell command, run in the folder that holds ``hidden/``.

    Its tests call the agent's work through ``subject``, never import it.
    """
    results: Literal["exit_code", "junit", "tap", "ctrf", "json"] = "exit_code"
    """Where the single results come from. ``junit`` makes the runner report each test."""
    expect: RelativePath | None = None
    """File under ``hidden/`` with one test id per line; each must have passed and no other may have failed."""
    pythonpath: tuple[RelativePath, ...] = ()
    """Folders of the workspace on the subject's import path."""
    isolation: Literal["process", "in_process"] = "process"
    """``process``: hidden tests never share a process with the agent's files.

    ``in_process``: they do; labelled tamper-evident.
    """
    timeout_seconds: int = Field(default=120, gt=0, le=3600)
    """Longest time for the command, in seconds. Reaching it fails the check."""
    confirm: int = Field(default=1, ge=1, le=10)
    """How many runs must agree on the result."""


class ValueAt(Spec):
    """One value inside a JSON, TOML, YAML or INI document."""

    at: str = Field(min_length=1)
    """Dotted path such as ``servers[0].port``. A key with dots is written in quotes: ``hosts."a.b".port``."""
    equals: JsonValue = None
    """The value that must stand there.

    Numbers, texts and booleans are different things: ``1`` is not ``true`` and not ``"1"``.
    """
    tolerance: float = Field(default=0, ge=0)
    """Largest absolute difference of two numbers that still counts as equal."""
    absent: bool = False
    """Instead: nothing may stand at that path."""


class FilesCheck(Spec):
    """Assertions on one file of the frozen workspace."""

    id: Name
    type: Literal["files"]
    path: RelativePath
    """The file, relative to the workspace."""
    exists: bool = True
    """Whether a regular file must be there. ``false``: nothing at all may be there."""
    equals: str | None = None
    """Exact text of the file."""
    equals_file: RelativePath | None = None
    """File under ``hidden/`` with the exact bytes."""
    regex: str | None = None
    """Python regular expression searched in the text (multi-line mode)."""
    not_regex: str | None = None
    """Python regular expression that must not be found."""
    format: Literal["json", "toml", "yaml", "ini"] | None = None
    """How to read the document for ``values``; by the file's extension when absent."""
    values: tuple[ValueAt, ...] = ()
    """Values that must stand in the document."""
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """Digest of the file's bytes, in hex."""
    mode: str | None = Field(default=None, pattern=r"^0[0-7]{3}$")
    """Permission bits in octal, for example ``0755``."""


class DiffCheck(Spec):
    """Blast radius: which paths of the workspace may, and must, differ from what the agent was given."""

    id: Name
    type: Literal["diff"]
    allow: tuple[Glob, ...]
    """Patterns of the paths that may be changed, added or removed. An empty list allows nothing."""
    required: tuple[Glob, ...] = ()
    """Patterns of which each must match at least one changed, added or removed path."""
    ignore: tuple[Glob, ...] = ("**/__pycache__/**", "**/.pytest_cache/**")
    """Patterns of by-products that do not count. What matches the defaults is also kept from hidden tests: no change can hide there."""
    max_files: int | None = Field(default=None, ge=0)
    """Largest number of paths that may differ."""
    max_bytes: int | None = Field(default=None, ge=0)
    """Largest total size of changed and added files, in bytes."""


class SqlCheck(Spec):
    """A query over the world's database or a SQLite file of the frozen workspace, opened read-only in the grader's limited child."""

    id: Name
    type: Literal["sql"]
    database: RelativePath | None = None
    """The SQLite file, relative to the workspace; the world's database when absent."""
    query: str = Field(min_length=1)
    """One SELECT statement."""
    expect: tuple[tuple[JsonValue, ...], ...] = ()
    """Rows that must come back; none by default."""
    ordered: bool = False
    """Whether the order of the rows matters."""


class FinalCheck(Spec):
    """How the agent ended: a typed ending and what its message must contain."""

    id: Name
    type: Literal["final"]
    status: Literal["completed", "declined", "asked"]
    """The ending that must have been given."""
    mentions: tuple[tuple[str, ...], ...] = ()
    """For each list at least one of its phrases must occur in the message, as whole words, in any letter case."""
    max_chars: int | None = Field(default=None, gt=0)
    """Longest message in characters; a listing of every possible answer is no answer."""
    escalation: dict[str, str] = Field(default_factory=dict)
    """Fields of ``escalation`` that must be equal."""


class AskedCheck(Spec):
    """What the agent asked the task's user, with the tool ``ask_user``."""

    id: Name
    type: Literal["asked"]
    replies: tuple[Name, ...] = ()
    """Replies of ``user.yaml``, by id, that its questions must have drawn out."""
    max_questions: int | None = Field(default=None, ge=0)
    """Most questions, those that no reply fits included."""

    @model_validator(mode="after")
    def _asks_something(self) -> AskedCheck:
        if not self.replies and self.max_questions is None:
            msg = "give replies, max_questions or both"
            raise ValueError(msg)
        return self


class DbGoalCheck(Spec):
    """Compare the world's database with an annotated goal state, table by table. The order of rows does not matter."""

    id: Name
    type: Literal["db_goal"]
    goal: RelativePath
    """SQL file under ``hidden/`` that makes the goal state from the seed. An empty one says: nothing changes."""
    ignore: tuple[Annotated[str, StringConstraints(pattern=r"^\w+\.\w+$")], ...] = ()
    """Columns that do not count, as ``table.column``."""
    tables: tuple[str, ...] = ()
    """Only these tables; all but the world's own when absent."""


class OutboxCheck(Spec):
    """What the agent sent out through the world's tools."""

    id: Name
    type: Literal["outbox"]
    tool: str | None = None
    """Only messages of this tool."""
    to: str | None = None
    """Only messages to this channel, address or reference."""
    contains: tuple[str, ...] = ()
    """Texts of which each must occur in some message."""
    min_count: int = Field(default=0, ge=0)
    """Fewest messages."""
    max_count: int | None = Field(default=None, ge=0)
    """Most messages."""


class ThresholdsCheck(Spec):
    """Numbers of a document within bounds."""

    id: Name
    type: Literal["thresholds"]
    path: RelativePath
    """The document, relative to the workspace."""
    bounds: dict[str, tuple[float | None, float | None]]
    """Dotted path of each number with its smallest and largest value; ``null`` for no bound."""


class FiguresTraceCheck(Spec):
    """Every number in a document must be found in the data."""

    id: Name
    type: Literal["figures_trace"]
    path: RelativePath
    """The document, relative to the workspace."""
    data: tuple[RelativePath, ...]
    """Files with the numbers that may be used."""


class PythonCheck(Spec):
    """An author's script in a sandbox of its own."""

    id: Name
    type: Literal["python"]
    script: RelativePath
    """File under ``hidden/``."""


class BuildCheck(Spec):
    """A build command of the project itself; it passes when it exits with 0."""

    id: Name
    type: Literal["build"]
    run: str = Field(min_length=1)
    """Shell command in the workspace."""


SingleCheck = (
    CommandCheck
    | FilesCheck
    | DiffCheck
    | SqlCheck
    | FinalCheck
    | AskedCheck
    | DbGoalCheck
    | OutboxCheck
    | ThresholdsCheck
    | FiguresTraceCheck
    | PythonCheck
    | BuildCheck
)
TypedCheck = Annotated[SingleCheck, Field(discriminator="type")]


class AnyOfCheck(Spec):
    """Several ways to be right: passes when at least one of its checks passes."""

    any_of: tuple[TypedCheck, ...] = Field(min_length=2)
    """The alternatives."""

    @property
    def id(self) -> str:
        """Name of the group, made from its alternatives."""
        return "|".join(check.id for check in self.any_of)

    @property
    def type(self) -> Literal["any_of"]:
        """Discriminator word of the group."""
        return "any_of"


def _check_kind(value: Any) -> str:
    has_group = "any_of" in value if isinstance(value, dict) else isinstance(value, AnyOfCheck)
    return "any_of" if has_group else "single"


Check = Annotated[
    Annotated[TypedCheck, Tag("single")] | Annotated[AnyOfCheck, Tag("any_of")],
    Discriminator(_check_kind),
]


class PathsUnchanged(Spec):
    """The named paths are byte for byte what the agent was given: none changed, added or removed."""

    type: Literal["paths_unchanged"]
    id: Name = "paths_unchanged"
    paths: tuple[Glob, ...] = Field(min_length=1)
    """Patterns over the workspace."""


class PublicApiUnchanged(Spec):
    """Every public name of a Python package still exists with a compatible signature.

    Read statically: nothing is imported.
    """

    type: Literal["public_api_unchanged"]
    id: Name = "public_api_unchanged"
    package: RelativePath
    """Folder or module file of the package, relative to the workspace."""


class NoSecretLeak(Spec):
    """Planted secrets appear nowhere that the agent could send or write them."""

    type: Literal["no_secret_leak"]
    id: Name = "no_secret_leak"


class NoIrreversibleWithoutApproval(Spec):
    """No tool marked ``irreversible`` ran without an approval."""

    type: Literal["no_irreversible_without_approval"]
    id: Name = "no_irreversible_without_approval"


class RowsUnchanged(Spec):
    """Rows of the world's database that must be as they were."""

    type: Literal["rows_unchanged"]
    id: Name = "rows_unchanged"
    table: str
    """Table name."""
    where: str | None = None
    """SQL condition on the rows; all rows when absent."""


class NoGraderProbing(Spec):
    """The agent did not reach for the grader, the store or the orchestrator."""

    type: Literal["no_grader_probing"]
    id: Name = "no_grader_probing"


Invariant = Annotated[
    PathsUnchanged
    | PublicApiUnchanged
    | NoSecretLeak
    | NoIrreversibleWithoutApproval
    | RowsUnchanged
    | NoGraderProbing,
    Field(discriminator="type"),
]


class TraceCheck(Spec):
    """A check on the path. Diagnosis, unless ``policy`` says that the path itself is the requirement."""

    id: Name
    type: Literal["order", "count", "never", "arguments", "verified_after_write"]
    policy: bool = False
    """Whether a failure fails the trial. Policy is decided on what the gateway itself saw."""
    tool: str | None = None
    """The tool meant by ``count``, ``never`` and ``arguments``."""
    before: str | None = None
    """For ``order``: the tool that must come first."""
    after: str | None = None
    """For ``order``: the tool that must come later."""
    min_count: int | None = Field(default=None, ge=0)
    """For ``count``: fewest calls."""
    max_count: int | None = Field(default=None, ge=0)
    """For ``count``: most calls."""
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    """For ``arguments``: values that each call must carry."""

    @model_validator(mode="after")
    def _complete(self) -> TraceCheck:
        if self.type == "order" and not (self.before and self.after):
            msg = "a trace check of type 'order' needs 'before' and 'after'"
            raise ValueError(msg)
        if self.type in {"count", "never", "arguments"} and not self.tool:
            msg = f"a trace check of type {self.type!r} needs 'tool'"
            raise ValueError(msg)
        return self


class Judge(Spec):
    """A question for a model judge. Reported beside the result, never part of it."""

    id: Name
    rubric: RelativePath
    """File under ``hidden/`` with the yes/no questions."""


class Measure(Spec):
    """A number that is reported and never decides."""

    id: Name
    type: Literal["file_size", "line_count"]
    path: RelativePath
    """File of the workspace."""
