"""Every seam on one page. The parts of the middle layer meet only here and in ``records``.

Each Protocol says what it may raise; nothing else may come out of it. All of them are async; the command line is the sync edge.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from pydantic import JsonValue

from orchestrator.records.base import BlobRef
from orchestrator.records.event import EventSource, EventType
from orchestrator.records.ids import TrialId
from orchestrator.records.keys import Audience
from orchestrator.records.manifest import ManifestAgent, ManifestTask, RunManifest
from orchestrator.records.outcome import Exit, Outcome, Seal
from orchestrator.records.probe import ProbeResult
from orchestrator.records.state import Finding, FrozenState
from orchestrator.records.termination import BudgetReason, TerminationReason
from orchestrator.records.usage import Spending
from orchestrator.records.verdict import Verdict
from orchestrator.spec.agent import Price
from orchestrator.spec.task import Budgets, Environment

# --- storage -----------------------------------------------------------------------------------------------------------------------------


class ObjectStore(Protocol):
    """Blobs under unique keys and create-only markers. Nothing is ever overwritten.

    Every method may raise StoreError; reading what is not there raises its subclass NotFoundError.
    """

    async def put_blob(self, key: str, data: bytes | AsyncIterator[bytes]) -> BlobRef:
        """Write a large object under a key that nobody else uses; digest and size are computed while writing."""
        ...

    async def create(self, key: str, data: bytes) -> bool:
        """Create a marker. True: it is ours and durable. False: the key was taken; nothing was changed."""
        ...

    async def get(self, key: str) -> bytes:
        """Return a whole object."""
        ...

    def stream(self, key: str) -> AsyncIterator[bytes]:
        """Yield an object's bytes."""
        ...

    async def exists(self, key: str) -> bool:
        """Return whether there is an object under the key."""
        ...

    async def list(self, prefix: str) -> list[str]:
        """Return all keys that begin with the prefix, sorted. A key that was created before the call is in it."""
        ...


@runtime_checkable
class LocalObjects(Protocol):
    """What a store can do beside, when its objects are files of this machine."""

    def path_of(self, key: str) -> Path:
        """Return where the object of that key is, or would be. Only to be read. Raises StoreError for what cannot be a key."""
        ...


@dataclass(frozen=True, kw_only=True)
class Stored:
    """One object as a listing shows it."""

    key: str
    size: int
    """Bytes."""
    age_s: float
    """Seconds since it was written, by the clock that the store itself goes by."""


class Sweeper(Protocol):
    """The store as ``gc`` sees it, who alone deletes. Every method may raise StoreError."""

    async def stored(self, prefix: str) -> list[Stored]:
        """Return all objects whose keys begin with the prefix, sorted by key."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, in any order; one that is not there is no error. On return they are gone for good and for everybody.

        After a StoreError some of them are gone; to try again is harmless.
        """
        ...


class SweepableStore(ObjectStore, Sweeper, Protocol):
    """A store that ``gc`` can work on."""


@runtime_checkable
class UnfinishedFiles(Protocol):
    """What a store can do beside, when killed writers leave files in it that no key reaches."""

    async def remove_unfinished(self, min_age_s: float, *, dry_run: bool = False) -> tuple[int, int]:
        """Remove those that are at least so old, in seconds, and return their number and bytes. Raises StoreError."""
        ...


class BundleSource(Protocol):
    """Bundles as folders on this machine."""

    async def fetch(self, audience: Audience, digest: str) -> Path:
        """Return a read-only folder with the bundle's files, verified against its tree digest. Raises StoreError."""
        ...

    async def listing(self, digest: str) -> Path:
        """Return the file that lists the workspace of a sandbox bundle, for ``SandboxSpec.listing``. Raises StoreError."""
        ...


# --- sandbox -----------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Input:
    """A folder laid into a sandbox before anything runs."""

    source: Path
    """Folder (or file) on this machine; only read."""
    target: str
    """Absolute path in the sandbox."""
    writable: bool = False
    """True: copied into the sized workspace, owned by the agent. False: seen read-only."""


@dataclass(frozen=True, kw_only=True)
class Door:
    """How a sandbox reaches the gateway: the launcher's listening socket is handed over here, so a connection belongs to its launch."""

    socket: str
    """Path of the unix socket that takes the listening socket (SCM_RIGHTS) with one JSON line ``{"token": …}``."""
    token: str
    """The launch's freezer token, which the agent never sees."""
    port: int = 8080
    """Port on the sandbox's own loopback."""


@dataclass(frozen=True, kw_only=True)
class RelaySink:
    """Frozen state goes to the relay: ``PUT /launch/state/output``, ``…/entries`` and ``…/changes``, each once, in this order."""

    socket: str
    """Unix socket of the relay."""
    token: str
    """Freezer token."""


@dataclass(frozen=True, kw_only=True)
class FolderSink:
    """Frozen state goes to files ``entries.jsonl`` and ``changes.tar`` in a folder that belongs to the caller."""

    folder: Path


@dataclass(frozen=True, kw_only=True)
class SandboxLimits:
    """Hard limits of one sandbox."""

    cpu: float
    """Processors."""
    memory_bytes: int
    """Memory, the writable file systems not included."""
    disk_bytes: int
    """Workspace, home and temporary files together."""
    processes: int
    """Processes and threads."""
    wall_seconds: float
    """Wall clock after which everything is killed in any case (reason ``wall_clock``)."""
    output_bytes: int = 1 << 20
    """How much of the end of the process's output is kept."""


@dataclass(frozen=True, kw_only=True)
class SandboxSpec:
    """Everything that a sandbox is made from."""

    name: str
    """Unique short name of the launch, safe in file names."""
    command: tuple[str, ...]
    """Program and arguments; the first is found on the sandbox's PATH."""
    limits: SandboxLimits
    env: Mapping[str, str] = field(default_factory=dict)
    """The whole environment, beside PATH, HOME, LANG and TMPDIR, which the backend sets."""
    stdin: bytes = b""
    """What the program reads on its standard input."""
    workdir: str = "/workspace"
    """Current folder of the program; also where the workspace is. Frozen paths below it are named ``workspace/…``."""
    inputs: tuple[Input, ...] = ()
    """Folders laid before the start, in order."""
    requires: tuple[str, ...] = ()
    """Programs that must be found; ``python3`` is the interpreter that runs the orchestrator, without its packages."""
    image: str | None = None
    """Pinned container image whose files are the sandbox's system; only backends that run images look at it."""
    packages: tuple[Path, ...] = ()
    """Python packages of this machine (folders or files) seen read-only as ``/packages/NAME``; never for an
    agent. The grader's runner needs pytest."""
    door: Door | None = None
    """The gateway; None: no network at all, not even the gateway."""
    channel: int | None = None
    """A file descriptor of this process (one end of a socketpair) that the program gets as descriptor 3."""
    sink: RelaySink | FolderSink | None = None
    """Where the frozen state goes; None: nothing is frozen."""
    pristine: Path | None = None
    """Folder that the workspace was laid from, to compare the frozen state with; None: everything is ``added``."""
    listing: Path | None = None
    """``BundleSource.listing`` of ``pristine``: then it is not read, and may be shown itself instead of a copy. None: it is read."""
    exclude: tuple[str, ...] = ()
    """Patterns over the workspace that are not frozen."""


StopReason = Literal["cancelled"] | BudgetReason


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a sandbox's tree ended, observed from outside, once nothing of it is alive."""

    exit: Exit
    """The first process."""
    cause: Literal["exited", "out_of_memory", "out_of_disk", "out_of_processes", "wall_clock", "stopped"]
    """Why the tree ended."""
    started: float
    """When the program started, seconds since 1970."""
    ended: float
    """When the tree was seen dead, seconds since 1970."""
    findings: tuple[Finding, ...] = ()
    """What was seen while it ran."""


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """What is left after the freeze."""

    state: FrozenState | None
    """The blobs; None with ``sink=None``. With a FolderSink the keys are file names in that folder."""
    output: bytes
    """The last output of the program."""
    output_blob: BlobRef | None
    """The same as the relay keeps it; None with another sink, or when there was no output."""
    final: bytes | None
    """Raw bytes of ``/output/final.json`` when it is a regular file of at most 64 KiB; not parsed."""
    findings: tuple[Finding, ...] = ()
    """What was seen while freezing."""


class Sandbox(Protocol):
    """One sandbox whose command has been started. Methods may raise SandboxError, ``freeze`` also the StoreError of its sink."""

    labels: Mapping[str, str]
    """What it cannot promise in full, such as ``limits: sampled``."""

    async def ended(self) -> Ending:
        """Wait until the whole tree is dead and say how it ended. May be awaited again."""
        ...

    async def stop(self) -> None:
        """Kill the tree. ``ended`` then says ``stopped``, unless it had ended before. Harmless when repeated."""
        ...

    async def freeze(self) -> Frozen:
        """Stream the state to the sink, once, after ``ended`` has returned."""
        ...


class SandboxBackend(Protocol):
    """Makes sandboxes of one kind."""

    name: str
    """``bubblewrap``, ``container``, ``kubernetes``."""

    def refusals(self, environment: Environment) -> list[str]:
        """Return one sentence for each thing that the environment asks and this backend cannot give, with the way out. Empty: it can."""
        ...

    async def preflight(self) -> Mapping[str, str]:
        """Prove that sandboxes can be made here and return the labels that all of them carry.

        Raises RefusedError with the sysctl, profile or package to change when they cannot.
        """
        ...

    async def lacking(self, environments: Iterable[Environment]) -> list[str]:
        """Look into what sandboxes of these environments are made from, once it is on this machine.

        Returns one sentence for each thing that is required and is not there, with the way out.
        """
        ...

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """Lay the inputs and start the command. Leaving the context kills and removes everything. Raises SandboxError."""
        ...


# --- images ---------------------------------------------------------------------------------------------------------------------------


class LocalImage(Protocol):
    """A container image that is on this machine."""

    @property
    def id(self) -> str:
        """``sha256:…``, the same on every machine that has the image."""
        ...

    @property
    def digests(self) -> tuple[str, ...]:
        """``name@sha256:…`` by which a registry gives the same image; none when it was made here."""
        ...


class ImageEngine(Protocol):
    """The container engine of this machine, as far as images go. Methods may raise SandboxError, with what the engine said last."""

    async def image(self, reference: str) -> LocalImage | None:
        """Return an image that is here by name, digest or id; None when it is not. Nothing is fetched."""
        ...

    async def pull(self, reference: str) -> LocalImage:
        """Fetch an image from its registry."""
        ...

    async def build(self, context: Path, *, tag: str | None = None, again: bool = False) -> LocalImage:
        """Build the recipe of a folder and name the image; ``again``: also steps that were built before."""
        ...

    async def create(self, image: str) -> str:
        """Make a container that is never started, to read its files, and return its id."""
        ...

    def archive(self, container: str, path: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Give a tar of one path of a container, piece by piece."""
        ...

    async def remove(self, container: str) -> None:
        """Remove a container."""
        ...


# --- gateway -----------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """What the driver tells the gateway about a launch."""

    run: str
    trial: TrialId
    launch: int
    """From 1."""
    epoch: int
    """The driver's epoch; a lower one than was seen before is refused."""
    budgets: Budgets
    models: Mapping[str, str]
    """Alias to ``provider/name``."""
    prices: Mapping[str, Price]
    """Price by model; a model that is absent has none."""
    seed: int
    """The trial's seed."""
    task: str
    """Task id: chooses the script."""
    scripts: str | None = None
    """Digest of the agent's conversation files (audience ``world``)."""
    world: str | None = None
    """Digest of the task's world bundle."""


@dataclass(frozen=True, kw_only=True)
class Registration:
    """What the gateway gives back."""

    launch: str
    """Short name of the launch."""
    agent_token: str
    """The only secret that enters the sandbox; good for this launch until its seal."""
    door: Door
    """Where the sandbox's listening socket goes."""
    sink: RelaySink
    """Where the state goes."""


class Gateway(Protocol):
    """The driver's side of the gateway. Methods may raise GatewayError, and StoreError when the store behind it fails."""

    async def register(self, request: LaunchRequest) -> Registration:
        """Make a launch known. Registering the same launch again gives the same launch and fresh tokens."""
        ...

    async def stop_reason(self, launch: str) -> BudgetReason | Literal["model_api_error"]:
        """Wait until the gateway wants the launch stopped (a spent budget, working time over, no model to be had) and say why."""
        ...

    async def seal(self, launch: str) -> Seal:
        """Revoke the agent's token, settle open calls, close the trajectory. Sealing twice gives the same seal."""
        ...

    async def probe(self, model: str) -> ProbeResult:
        """Make one tiny call to a model of a configured provider, for no launch: nothing is recorded or counted."""
        ...

    async def spending(self, run: str) -> Spending:
        """Return what the launches of a run have used here so far, for a progress display."""
        ...

    async def seal_lost(self, run: str, trial: TrialId, launch: int, epoch: int) -> Seal | None:
        """Seal a launch that another process registered and that died; None when this gateway never knew of it."""
        ...


# --- agents ------------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AgentProgram:
    """An agent rendered for one trial: what the sandbox runs. Pure data."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    bundle: str | None = None
    """Digest of files laid read-only at ``/agent`` (audience ``sandbox``)."""
    files: Path | None = None
    """Or: a folder of this program laid read-only at ``/agent``."""
    solution: str | None = None
    """Digest of a solutions bundle laid read-only at ``/solution``."""
    requires: tuple[str, ...] = ()
    """Programs that it needs beside the task's."""


# --- grading -----------------------------------------------------------------------------------------------------------------------------


class Grader(Protocol):
    """The driver's side of the grader service."""

    async def grade(self, run: str, trial: TrialId) -> Verdict:
        """Return the verdict of a committed trial, made now or before. Raises GraderError when the service cannot answer."""
        ...


# --- trajectory --------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ClosedTrajectory:
    """A trajectory file that nobody will write to again."""

    path: Path
    sha256: str
    """Digest of the file's bytes, in hex."""
    size: int
    """Bytes."""


class Trajectory(Protocol):
    """The ordered record of one launch while it is written."""

    def append(self, kind: EventType, source: EventSource, data: Mapping[str, JsonValue]) -> int:
        """Add an event and return its number; -1 when closed. It is on disk within 50 ms; a failing disk shows in ``close``."""
        ...

    async def close(self, data: Mapping[str, JsonValue]) -> ClosedTrajectory:
        """Write the last event (``seal``) and return once all is on disk.

        Closing twice gives the same. Raises StoreError.
        """
        ...


class TrajectoryFactory(Protocol):
    """Makes trajectories."""

    async def open(self, name: str) -> Trajectory:
        """Begin the trajectory of a launch. Raises StoreError: cause ``trajectory_exists`` when the name is taken."""
        ...


# --- the pool ----------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PlannedTrial:
    """One trial to run."""

    id: TrialId
    task: ManifestTask
    agent: ManifestAgent
    seed: int
    first_launch: int = 1
    """Number of the next launch; more than 1 when earlier launches failed on our side or were cancelled."""
    launches_left: int = 3
    """Launches that may still fail on our side before the trial is given up."""


@dataclass(frozen=True, kw_only=True)
class TrialEnd:
    """What a pool reports for a finished trial."""

    trial: TrialId
    outcome: Outcome
    verdict: Verdict | None


Phase = Literal["queued", "starting", "running", "freezing", "grading", "done"]


class Observer(Protocol):
    """Hears what happens to trials, for the progress display. Must not raise."""

    def begins(self, planned: int, before: int) -> None:
        """A run of that many trials is driven; ``before`` of them had ended earlier."""
        ...

    def phase(self, trial: TrialId, phase: Phase) -> None:
        """A trial entered a phase."""
        ...

    def launch_failed(self, trial: TrialId, launch: int, cause: str, message: str) -> None:
        """A launch ended for a reason that is ours."""
        ...

    def ended(self, end: TrialEnd) -> None:
        """A trial is committed and graded, or given up."""
        ...


class Allowance(Protocol):
    """What a run may still spend. Each launch that was set aside for is settled or forfeited, or others may wait for ever.

    Without a limit the methods do nothing.
    """

    async def reserve(self, planned: PlannedTrial, launch: int) -> None:
        """Set aside what the launch may cost at most, durably, before it starts.

        Waits while what is set aside for running launches may come back. Raises SpendingLimitError when it cannot be covered, and
        StoreError.
        """
        ...

    async def settle(self, outcome: Outcome) -> None:
        """Replace what was set aside for a launch by what it did cost. The outcome is committed. Raises nothing."""
        ...

    async def forfeit(self, trial: TrialId, launch: int) -> None:
        """Count what was set aside for a launch as spent, because it has no committed outcome. Raises nothing."""
        ...


class TrialPool(Protocol):
    """Runs trials, some at a time.

    Both iterators raise StoreError when an outcome cannot be committed, LeaseLostError when another driver has the run, SpendingLimitError
    when nothing more can be launched under the run's limit (after everything that ran has ended); what was committed stays.
    """

    def run(self, manifest: RunManifest, trials: list[PlannedTrial]) -> AsyncIterator[TrialEnd]:
        """Yield each trial as it ends. ``stop`` makes it end early, without starting more."""
        ...

    def grade(self, manifest: RunManifest, trials: list[tuple[PlannedTrial, Outcome]]) -> AsyncIterator[TrialEnd]:
        """Ask for the verdicts of committed results that have none yet. ``stop`` makes it end early."""
        ...

    async def stop(self) -> None:
        """Start no more trials; stop, freeze and grade those that run."""
        ...


__all__ = [
    "AgentProgram", "Allowance", "Audience", "BundleSource", "ClosedTrajectory", "Door", "Ending", "FolderSink",
    "Frozen", "Gateway", "Grader", "ImageEngine", "Input", "LaunchRequest", "LocalImage", "LocalObjects", "ObjectStore",
    "Observer", "Phase", "PlannedTrial", "ProbeResult", "Registration", "RelaySink", "Sandbox", "SandboxBackend",
    "SandboxLimits", "SandboxSpec", "Spending", "StopReason", "Stored", "SweepableStore", "Sweeper",
    "TerminationReason", "Trajectory", "TrajectoryFactory", "TrialEnd", "TrialPool", "UnfinishedFiles",
]  # fmt: skip
