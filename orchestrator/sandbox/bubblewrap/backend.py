"""The bubblewrap backend: sandboxes on one Linux machine, without a daemon or an image.

Not covered: the kernel is shared with the machine, no image is honoured, CPU caches and load are shared, and everything runs for one user
of the machine, so a grader on the same machine is separated by convention only.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import json
import os
import platform
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from orchestrator.errors import RefusedError, SandboxError
from orchestrator.interfaces import Ending, FolderSink, Frozen, RelaySink, Sandbox, SandboxLimits, SandboxSpec
from orchestrator.records.base import BlobRef
from orchestrator.records.outcome import Exit
from orchestrator.records.state import Finding, FrozenState
from orchestrator.sandbox.bubblewrap import host, seccomp
from orchestrator.sandbox.bubblewrap.stage import OUTPUT_BYTES
from orchestrator.sandbox.bubblewrap.start import kept_name
from orchestrator.spec.task import Environment

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_LINE_BYTES = 64 << 20
_ROOT = Path(__file__).resolve().parents[3]
_KEEPER = "import sys; sys.path.append(sys.argv[1]); from orchestrator.sandbox.bubblewrap.keeper import main; sys.exit(main())"
_LEAVE_SECONDS = 60.0


class BubblewrapBackend:
    """Makes sandboxes with bubblewrap."""

    name = "bubblewrap"

    def __init__(self, folder: Path, python: Path | None = None) -> None:
        """Take a folder of this program's own and the prefix of the Python to show; None: the one of this process."""
        self.folder = folder
        self._prefix = python

    def refusals(self, environment: Environment) -> list[str]:
        """Return one sentence for each thing that the environment asks and this backend cannot give."""
        found = _refused_words(environment)
        if environment.network != "model_only":
            found.append(
                "network: bubblewrap sandboxes reach the gateway only (model_only); other networks are not built yet"
            )
        problem = host.workdir_problem(environment.workdir)
        if problem:
            found.append(problem)
        missing = [
            name for name in environment.requires if name not in {"python3", "python"} and host.find(name) is None
        ]
        if missing:
            found.append(
                f"requires {', '.join(missing)}: not found on this machine in {host.SYSTEM_PATH}; install it, or take it out of 'requires'"
            )
        return found

    async def preflight(self) -> Mapping[str, str]:
        """Make one small sandbox and return the labels that all will carry. Raises RefusedError with what to change."""
        if sys.platform != "linux":
            msg = f"the bubblewrap backend needs Linux, this is {sys.platform}"
            raise RefusedError(msg)
        if platform.machine() not in seccomp.machines():
            msg = f"the bubblewrap backend has no system call filter for {platform.machine()}, only for {', '.join(seccomp.machines())}"
            raise RefusedError(msg)
        limits = SandboxLimits(cpu=1, memory_bytes=256 << 20, disk_bytes=1 << 20, processes=16, wall_seconds=30)
        spec = SandboxSpec(name="preflight", command=("/bin/sh", "-c", "exit 42"), limits=limits)
        try:
            async with self.open(spec) as sandbox:
                ending = await sandbox.ended()
                labels = dict(sandbox.labels)
        except SandboxError as error:
            raise RefusedError(explain(str(error))) from error
        if ending.exit.code != 42:
            msg = f"a first sandbox was made, but its program ended with {ending.exit} ({ending.cause}) instead of exit code 42"
            raise RefusedError(msg)
        return labels

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        """Lay the inputs and start the command. Leaving the context kills and removes everything. Raises SandboxError."""
        line = json.dumps(self._specification(spec)).encode() + b"\n"
        starting = asyncio.create_task(_start_keeper(line, spec.channel, host.interpreter(self._prefix)))
        try:
            keeper = await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(SandboxError):
                await BubblewrapSandbox(spec.name, await starting).leave()
            raise
        sandbox = BubblewrapSandbox(spec.name, keeper)
        try:
            await sandbox.started()
            yield sandbox
        finally:
            await sandbox.leave()

    def _specification(self, spec: SandboxSpec) -> dict[str, Any]:
        _check(spec)
        path = host.SYSTEM_PATH
        binds, links = host.binds(), host.links()
        masks = host.private_folders(host.interpreter(self._prefix))
        if "python3" in spec.requires or "python" in spec.requires:
            python = host.interpreter(self._prefix)
            shown, named = host.python_parts(python)
            masks += host.packages_of(python)
            binds, links, path = binds + shown, links + named, f"{host.BIN}:{path}"
        env = {"PATH": path, "HOME": host.HOME, "LANG": "C.UTF-8", "TMPDIR": "/tmp"}  # noqa: S108 - the sandbox's own
        env |= {kept_name(number): value for number, value in enumerate(spec.env.values())}
        limits = spec.limits
        return {
            "name": spec.name,
            "command": list(spec.command),
            "env": list(spec.env),
            "flags": [*host.FLAGS, *(word for name, value in env.items() for word in ("--setenv", name, value))],
            "stdin": base64.b64encode(spec.stdin).decode(),
            "workdir": os.path.normpath(spec.workdir),
            "home": host.HOME,
            "bwrap": str(host.bwrap()),
            "binds": binds,
            "links": links,
            "masks": masks,
            "packages": [str(package.absolute()) for package in spec.packages],
            "etc": host.ETC_FILES,
            "inputs": [
                {
                    "source": str(item.source.absolute()),
                    "target": os.path.normpath(item.target),
                    "writable": item.writable,
                }
                for item in spec.inputs
            ],
            "door": None if spec.door is None else vars(spec.door),
            "channel": spec.channel,
            "sink": _sink(spec.sink),
            "pristine": None if spec.pristine is None else str(spec.pristine.absolute()),
            "exclude": list(spec.exclude),
            "seccomp": base64.b64encode(seccomp.program(platform.machine())).decode(),
            "limits": {
                "cpu": limits.cpu,
                "memory": limits.memory_bytes,
                "memory_total": limits.memory_bytes + limits.disk_bytes + OUTPUT_BYTES,
                "disk": limits.disk_bytes,
                "processes": limits.processes,
                "wall": limits.wall_seconds,
                "output": limits.output_bytes,
            },
        }


class BubblewrapSandbox:
    """One sandbox and its keeper."""

    def __init__(self, name: str, keeper: asyncio.subprocess.Process) -> None:
        self.labels: Mapping[str, str] = {}
        self._name = name
        self._keeper = keeper
        self._started_at = 0.0
        self._frozen = False
        self._ending: asyncio.Task[Ending] | None = None
        self._errors: asyncio.Task[bytes] = asyncio.create_task(_tail(keeper))

    async def started(self) -> None:
        """Wait until the program runs. Raises SandboxError."""
        event = await self._event("started")
        self._started_at = event["at"]
        self.labels = event["labels"]
        self._ending = asyncio.create_task(self._read_ending())

    async def ended(self) -> Ending:
        """Wait until the whole tree is dead and say how it ended. Raises SandboxError."""
        assert self._ending is not None  # noqa: S101 - ``open`` hands out started sandboxes only
        return await asyncio.shield(self._ending)

    async def stop(self) -> None:
        """Kill the tree. Harmless when repeated or late."""
        await self._command("stop")

    async def freeze(self) -> Frozen:
        """Stream the state to the sink, once. Raises SandboxError."""
        await self.ended()
        if self._frozen:
            msg = f"sandbox {self._name}: its state is frozen once and was frozen before"
            raise SandboxError(msg, cause="sandbox_spec")
        self._frozen = True
        await self._command("freeze")
        event = await self._event("frozen")
        state = None
        if "entries" in event:
            state = FrozenState(entries=BlobRef(**event["entries"]), changes=BlobRef(**event["changes"]))
        return Frozen(
            state=state,
            output=base64.b64decode(event["output"]),
            output_blob=BlobRef(**event["output_blob"]) if "output_blob" in event else None,
            final=None if event["final"] is None else base64.b64decode(event["final"]),
            findings=tuple(Finding(type=kind, detail=detail, source="freezer") for kind, detail in event["findings"]),
        )

    async def leave(self) -> None:
        """Let the keeper kill what is left and clean up; wait for it, also when this task is cancelled meanwhile."""
        leaving = asyncio.ensure_future(self._leave())
        while not leaving.done():
            try:
                await asyncio.shield(leaving)
            except asyncio.CancelledError:
                if leaving.done():
                    break
                await asyncio.wait({leaving})
                raise
        if not leaving.cancelled():
            leaving.exception()

    async def _leave(self) -> None:
        stdin = self._keeper.stdin
        assert stdin is not None  # noqa: S101 - it was asked for
        stdin.close()
        if self._ending is not None:
            self._ending.cancel()
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._drain()
                await self._keeper.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._keeper.kill()
            await self._keeper.wait()
        await asyncio.gather(self._errors, return_exceptions=True)
        transport = getattr(self._keeper, "_transport", None)
        if transport is not None:
            transport.close()

    async def _drain(self) -> None:
        stdout = self._keeper.stdout
        assert stdout is not None  # noqa: S101 - it was asked for
        if self._ending is not None:
            await asyncio.gather(self._ending, return_exceptions=True)
        while await stdout.read(1 << 16):
            pass

    async def _read_ending(self) -> Ending:
        event = await self._event("ended")
        return Ending(
            exit=Exit(code=event["code"], signal=event["signal"]),
            cause=event["cause"],
            started=self._started_at,
            ended=event["at"],
            findings=tuple(Finding(type=kind, detail=detail) for kind, detail in event["findings"]),
        )

    async def _command(self, word: str) -> None:
        stdin = self._keeper.stdin
        assert stdin is not None  # noqa: S101 - it was asked for
        with contextlib.suppress(ConnectionError):
            stdin.write(word.encode() + b"\n")
            await stdin.drain()

    async def _event(self, wanted: str) -> dict[str, Any]:
        """Return the next event of that name. Raises SandboxError when the keeper fails or goes first."""
        stdout = self._keeper.stdout
        assert stdout is not None  # noqa: S101 - it was asked for
        while line := await stdout.readline():
            event: dict[str, Any] = json.loads(line)
            if event["event"] == wanted:
                return event
            if event["event"] == "error":
                msg = f"sandbox {self._name}: {event['message']}"
                raise SandboxError(msg, cause=event["cause"])
        code = await self._keeper.wait()
        said = (await self._errors).decode("utf-8", "replace").strip()
        msg = f"sandbox {self._name}: its keeper ended with {code} before '{wanted}': {said or 'it said nothing'}"
        raise SandboxError(msg, cause="sandbox_keeper")


def explain(message: str) -> str:
    """Return a keeper's failure with the setting to change, where the reason is known."""
    low = message.lower()
    if "root may not make a mount namespace" in low:
        reason = "this root has no CAP_SYS_ADMIN, as in most containers: grant it, or run as an ordinary user who may make user namespaces"
        return f"bubblewrap sandboxes do not work on this machine: {reason}. What failed: {message}"
    if os.strerror(errno.ENOSPC).lower() in low:
        reason = (
            "user namespaces are used up or switched off: raise the sysctl user.max_user_namespaces "
            "(for example: sysctl -w user.max_user_namespaces=15000), also in any outer container or sandbox"
        )
    elif any(
        text in low for text in (os.strerror(errno.EPERM).lower(), "permission denied", "no permissions to create")
    ):
        reason = (
            "this user may not make user namespaces: set the sysctl kernel.unprivileged_userns_clone=1 (Debian), "
            f"kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu) or an AppArmor profile with 'userns,' for {host.bwrap()}"
        )
    else:
        return f"bubblewrap sandboxes do not work on this machine: {message}"
    return f"bubblewrap sandboxes do not work on this machine: {reason}. What failed: {message}"


def _refused_words(environment: Environment) -> list[str]:
    found = []
    if environment.image and not environment.requires:
        found.append(
            "image: bubblewrap honours no image; list the programs that the task needs beside it: requires: [NAME, …]"
        )
    if environment.build:
        found.append(
            "build: bubblewrap builds no image; take it out and list the programs that the task needs: requires: [NAME, …]"
        )
    if not isinstance(environment.workspace, str):
        kind = "repository" if hasattr(environment.workspace, "repository") else "image_path"
        found.append(f"workspace.{kind}: not built for bubblewrap; put the files into a folder of the task")
    if environment.isolation != "container":
        found.append(
            f"isolation {environment.isolation}: bubblewrap gives namespaces on a shared kernel (container) and nothing stronger"
        )
    if environment.user == "root":
        found.append("user root: bubblewrap sandboxes run as an unprivileged user; use user: agent")
    if environment.now is not None:
        found.append("now: the frozen clock is not built yet; leave it out")
    return found


def _check(spec: SandboxSpec) -> None:
    if not _NAME.fullmatch(spec.name):
        msg = f"sandbox name {spec.name!r}: use 1 to 100 letters, digits, dots, dashes or underscores"
        raise SandboxError(msg, cause="sandbox_spec")
    if not spec.command:
        msg = f"sandbox {spec.name}: there is no command to run"
        raise SandboxError(msg, cause="sandbox_spec")
    bad = [name for name in spec.env if not _ENV_NAME.fullmatch(name)]
    if bad:
        msg = f"sandbox {spec.name}: environment variables need names of letters, digits and underscores, not {', '.join(map(repr, bad))}"
        raise SandboxError(msg, cause="sandbox_spec")
    words = [*spec.command, *spec.env.values(), spec.workdir, *(item.target for item in spec.inputs)]
    if any("\0" in word for word in words):
        msg = f"sandbox {spec.name}: a zero byte in command, environment or paths"
        raise SandboxError(msg, cause="sandbox_spec")
    if "=" in spec.command[0]:
        msg = f"sandbox {spec.name}: a program's name cannot have '=': {spec.command[0]!r}"
        raise SandboxError(msg, cause="sandbox_spec")
    problem = host.workdir_problem(spec.workdir)
    if problem:
        raise SandboxError(f"sandbox {spec.name}: {problem}", cause="sandbox_spec")
    for item in spec.inputs:
        if not item.target.startswith("/") or os.path.normpath(item.target) == "/":
            msg = f"sandbox {spec.name}: input target {item.target!r} must be an absolute path below /"
            raise SandboxError(msg, cause="sandbox_spec")


def _sink(sink: RelaySink | FolderSink | None) -> dict[str, str] | None:
    if isinstance(sink, RelaySink):
        return {"type": "relay", "socket": sink.socket, "token": sink.token}
    return None if sink is None else {"type": "folder", "folder": str(sink.folder.absolute())}


async def _start_keeper(line: bytes, channel: int | None, python: host.Interpreter) -> asyncio.subprocess.Process:
    try:
        keeper = await asyncio.create_subprocess_exec(
            str(python.program),
            *("-I", "-S", "-X", "utf8", "-c", _KEEPER, str(_ROOT)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
            env={},
            pass_fds=() if channel is None else (channel,),
            start_new_session=True,
        )
    except OSError as error:
        msg = f"cannot start the keeper with {python.program}: {error.strerror}"
        raise SandboxError(msg, cause="sandbox_keeper") from error
    assert keeper.stdin is not None  # noqa: S101 - it was asked for
    with contextlib.suppress(ConnectionError):
        keeper.stdin.write(line)
        await keeper.stdin.drain()
    return keeper


async def _tail(keeper: asyncio.subprocess.Process) -> bytes:
    stderr = keeper.stderr
    assert stderr is not None  # noqa: S101 - it was asked for
    kept = b""
    while chunk := await stderr.read(1 << 16):
        kept = (kept + chunk)[-4000:]
    return kept
