"""Sandboxes, what they are made from, and the images they may run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from orchestrator.interfaces.waits import unheard
from orchestrator.records.base import BlobRef
from orchestrator.records.outcome import Exit
from orchestrator.records.state import Finding, FrozenState
from orchestrator.records.termination import BudgetReason
from orchestrator.spec.task import Environment

if TYPE_CHECKING:
    from orchestrator.interfaces.gateway import Gateway


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
class BundleRef:
    """A bundle of the store, or a folder of one."""

    audience: Literal["sandbox", "solutions"]
    """Whose it is."""
    digest: str
    """Its tree digest."""
    folder: str = ""
    """The folder that is meant, relative to the bundle; the whole when empty."""


@dataclass(frozen=True, kw_only=True)
class BundledInput:
    """A folder that a sandbox fetches by itself before anything runs, because it is not on this machine."""

    bundle: BundleRef
    """What is fetched. A folder that the bundle does not have is an empty one."""
    target: str
    """Absolute path in the sandbox."""
    writable: bool = False
    """As in ``Input``."""
    extra_bytes: int = 0
    """Bytes that it needs beside the sandbox's disk; what a task brings counts as that disk."""


@dataclass(frozen=True, kw_only=True)
class Door:
    """How a sandbox reaches the gateway: the launcher's listening socket is handed over here, so a connection belongs to its launch."""

    socket: str
    """Path of the unix socket that takes the listening socket (SCM_RIGHTS) with one JSON line ``{"token": …}``."""
    token: str
    """The launch's freezer token, which the agent never sees."""
    port: int = 8080
    """Port on the sandbox's own loopback."""

    @property
    def address(self) -> str:
        """Where the agent finds the gateway."""
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, kw_only=True)
class PodDoor:
    """How a pod reaches the gateway: over the network, each of its containers with a token of its own."""

    address: str
    """``http://IP:PORT`` of the launch's gateway, as pods reach it: the agent port."""
    relay: str
    """``http://IP:PORT`` of the relay."""
    index: int
    """Which of the configured gateways it is, from 0."""
    instance: str
    """The gateway process that made the tokens; another one knows neither them nor the launch."""
    agent_token: str
    """For the agent's container."""
    prepare_token: str
    """For fetching bundles and asking for canaries."""
    token: str
    """The freezer's."""
    known: bool = False
    """The launch was registered before, by this driver or an earlier one, so that its pod may exist already."""
    begun: bool = False
    """A pod of the launch has used its tokens: another one must not be made, since the launch has a past."""
    sealed: bool = False
    """The launch is over: its state has been delivered, or will be."""


@dataclass(frozen=True, kw_only=True)
class RelaySink:
    """Frozen state goes to the relay: ``PUT /launch/state/output``, ``…/entries`` and ``…/changes``, each once, in this order."""

    socket: str
    """Unix socket of the relay."""
    token: str
    """Freezer token."""


@dataclass(frozen=True, kw_only=True)
class PodSink:
    """The pod's own freezer gives the state to the relay; the gateway says when it has come: ``Gateway.delivered``."""

    launch: str
    """Short name of the launch."""
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
    now: datetime | None = None
    """Where its clock begins; None: the real one. Where its programs see it, the sandbox has the label ``clock: frozen``."""
    watched: tuple[str, ...] = ()
    """Folders that are read-only: an attempt to write there is the finding ``memory_write`` where the sandbox has the label
    ``memory: watched``."""
    inputs: tuple[Input, ...] = ()
    """Folders laid before the start, in order."""
    bundled: tuple[BundledInput, ...] = ()
    """Folders that the sandbox fetches by itself; only for backends that say ``fetches``."""
    requires: tuple[str, ...] = ()
    """Programs that must be found; ``python3`` is the interpreter that runs the orchestrator, without its packages."""
    image: str | None = None
    """Pinned container image whose files are the sandbox's system; only backends that run images look at it."""
    mounted: str | None = None
    """Pinned container image whose files are seen read-only at ``/agent``; only for backends that say ``mounts_images``."""
    packages: tuple[Path, ...] = ()
    """Python packages of this machine (folders or files) seen read-only as ``/packages/NAME``; never for an
    agent. The grader's runner needs pytest."""
    door: Door | PodDoor | None = None
    """The gateway; None: no network at all, not even the gateway."""
    channel: int | None = None
    """A file descriptor of this process (one end of a socketpair) that the program gets as descriptor 3."""
    sink: RelaySink | PodSink | FolderSink | None = None
    """Where the frozen state goes; None: nothing is frozen."""
    pristine: Path | None = None
    """Folder that the workspace was laid from, to compare the frozen state with; None: everything is ``added``."""
    listing: Path | None = None
    """``BundleSource.listing`` of ``pristine``: then it is not read, and may be shown itself instead of a copy. None: it is read."""
    exclude: tuple[str, ...] = ()
    """Patterns over the workspace that are not frozen."""
    isolation: Literal["container", "gvisor", "vm"] = "container"
    """As the task asks; a backend that cannot give it has refused the task."""
    user: Literal["agent", "root"] = "agent"
    """Likewise."""
    left: bool = False
    """Open only a sandbox that is there, and make none: see ``PlannedTrial``. Only for backends that say ``fetches``."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """What a person who comes upon the sandbox may want to know: ``trial``, ``launch``."""
    waits: Callable[[str], None] = unheard
    """Told why the sandbox has to wait before it runs, in one line without anything of an agent; and ``""`` when it does not or no more."""


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
    over_disk: bool = False
    """The agent wrote more than its disk limit, which was found only now."""


class Sandbox(Protocol):
    """One sandbox whose command has been started, or will be as soon as there is room for it.

    Methods may raise SandboxError, those of a sandbox that ``fetches`` also GatewayError; ``freeze`` the StoreError of its sink, too.
    """

    @property
    def labels(self) -> Mapping[str, str]:
        """What it cannot promise in full, such as ``limits: sampled``; complete once it has ended."""
        ...

    async def running(self) -> None:
        """Wait until the command runs, or will never run. Raises nothing: what went wrong is told by ``ended``."""
        ...

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
    fetches: bool
    """True: sandboxes fetch their bundles from the gateway (``SandboxSpec.bundled``), deliver by themselves (``PodSink``), and outlive the
    process that made them: opening a launch again gives the sandbox that there is. False: all is laid from this machine and ends here."""

    @property
    def mounts_images(self) -> bool:
        """Whether the files of an image can be seen in a sandbox of another one (``SandboxSpec.mounted``)."""
        ...

    def refusals(self, environment: Environment) -> list[str]:
        """Return one sentence for each thing that the environment asks and this backend cannot give, with the way out. Empty: it can."""
        ...

    async def preflight(self) -> Mapping[str, str]:
        """Prove that sandboxes can be made here and return the labels that all of them carry.

        Raises RefusedError with the sysctl, profile or package to change when they cannot.
        """
        ...

    async def lacking(self, environments: Iterable[Environment], mounted: Iterable[str] = ()) -> list[str]:
        """Look into what sandboxes of these environments are made from, once it is on this machine; ``mounted``: images seen in some.

        Returns one sentence for each thing that is required and is not there, with the way out.
        """
        ...

    def claiming(self, run: str, epoch: int) -> AbstractAsyncContextManager[None]:
        """Show, while the context is open, that a run is driven under this epoch, to whoever cleans up after dead drivers.

        One process of a run does this. Entering raises LeaseLostError when a higher epoch was seen, and SandboxError.
        """
        ...

    async def tidy(self, run: str, over: AbstractSet[str]) -> AbstractSet[str]:
        """Remove what a process left of launches whose outcome is committed, by their short names, when it was killed before it could.

        Returns the other launches that have sandboxes, running or ended, whichever process made them. Raises SandboxError. Nothing on
        backends whose sandboxes end with their process.
        """
        ...

    def driving(self, run: str, epoch: int, gateway: Gateway) -> AbstractAsyncContextManager[SandboxBackend]:
        """Give what makes the sandboxes of a run in this process while the context is open. Raises SandboxError."""
        ...

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """Lay the inputs and start the command. Leaving the context kills and removes everything. Raises SandboxError.

        A sandbox that outlives its process is left alone when the context is left because this process ends or has lost the run (cancelled,
        LeaseLostError, a store that fails whatever is asked of it): the next one opens it again. Until its outcome is committed, nobody
        should leave in any other way.
        """
        ...


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
