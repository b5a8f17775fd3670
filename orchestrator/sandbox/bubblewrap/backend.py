"""The bubblewrap backend: sandboxes on one Linux machine, without a daemon or an image.

Not covered: the kernel is shared with the machine, no image is honoured, CPU caches and load are shared, and everything runs for one user
of the machine, so a grader on the same machine is separated by convention only.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import platform
import stat
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from orchestrator.errors import RefusedError, SandboxError
from orchestrator.interfaces import Sandbox, SandboxLimits, SandboxSpec
from orchestrator.sandbox import clock, seccomp
from orchestrator.sandbox.bubblewrap import host
from orchestrator.sandbox.bubblewrap.start import kept_name
from orchestrator.sandbox.inside import AGENT_ID, HOME, SYSTEM_PATH, etc_files
from orchestrator.sandbox.interpreter import interpreter
from orchestrator.sandbox.kept import OnThisMachine, common_specification, kept
from orchestrator.spec.task import Environment, ImageWorkspace

_CONTAINERS = "run it in containers (podman or docker, --backend container)"


class BubblewrapBackend(OnThisMachine):
    """Makes sandboxes with bubblewrap."""

    name = "bubblewrap"

    def __init__(self) -> None:
        self._libraries: tuple[Path | None, ...] = ()
        """What shows programs another clock, once it was looked for."""

    def refusals(self, environment: Environment) -> list[str]:
        """Return one sentence for each thing that the environment asks and this backend cannot give."""
        found = _refused_words(environment)
        problem = host.workdir_problem(environment.workdir)
        if problem:
            found.append(problem)
        missing = [
            name for name in environment.requires if name not in {"python3", "python"} and host.find(name) is None
        ]
        if missing:
            found.append(
                f"requires {', '.join(missing)}: not found on this machine in {SYSTEM_PATH}; install it, or take it out of 'requires'"
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

    async def lacking(self, environments: Iterable[Environment], mounted: Iterable[str] = ()) -> list[str]:
        """Return nothing: sandboxes are made from this machine, where ``refusals`` has looked for what is required."""
        return []

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        """Lay the inputs and start the command. Leaving the context kills and removes everything. Raises SandboxError."""
        python = interpreter()
        library = None if spec.now is None else await self._library()
        specification = self._specification(spec, library)
        async with kept(spec, "orchestrator.sandbox.bubblewrap.keeper", python.program, specification) as sandbox:
            if library is not None:
                sandbox.labels = {**sandbox.labels, "clock": "frozen"}
            yield sandbox

    async def _library(self) -> Path | None:
        """Return what shows programs another clock, looked for once; None: nothing here does."""
        if not self._libraries:
            self._libraries = (await asyncio.to_thread(clock.library, time.time()),)
        return self._libraries[0]

    def _specification(self, spec: SandboxSpec, library: Path | None = None) -> dict[str, Any]:
        common = common_specification(spec)
        problem = host.workdir_problem(spec.workdir)
        if problem:
            raise SandboxError(f"sandbox {spec.name}: {problem}", cause="sandbox_spec")
        path = SYSTEM_PATH
        binds, links = host.binds(), host.links()
        masks = host.private_folders(interpreter())
        if "python3" in spec.requires or "python" in spec.requires:
            python = interpreter()
            shown, named = host.python_parts(python)
            masks += host.packages_of(python)
            binds, links, path = binds + shown, links + named, f"{host.BIN}:{path}"
        env = {"PATH": path, "HOME": HOME, "LANG": "C.UTF-8", "TMPDIR": "/tmp"}  # noqa: S108 - the sandbox's own
        own = dict(spec.env)
        if spec.now is not None and library is not None:
            own |= clock.shown(spec.now.timestamp() - time.time())
            binds = [*binds, [str(library), clock.INSIDE]]
        env |= {kept_name(number): value for number, value in enumerate(own.values())}
        return common | {
            "env": list(own),
            "flags": [*host.FLAGS, *(word for name, value in env.items() for word in ("--setenv", name, value))],
            "bwrap": str(host.bwrap()),
            "binds": binds,
            "links": links,
            "masks": masks,
            "etc": etc_files(AGENT_ID),
            "watch": None if not spec.watched else _watch(spec.watched),
            "seccomp": base64.b64encode(seccomp.program(platform.machine())).decode(),
        }


def _watch(places: Iterable[str]) -> dict[str, Any] | None:
    """Return what the keeper needs to see attempts to write there; None: it cannot, since bwrap has to gain rights here."""
    if host.bwrap().stat().st_mode & stat.S_ISUID:
        return None
    shown = seccomp.watched(platform.machine())
    code = base64.b64encode(shown.code).decode()
    return {"filter": code, "calls": shown.calls, "seccomp": shown.seccomp, "places": [*places]}


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
            f"image: bubblewrap honours no image; {_CONTAINERS}, or list the programs that the task needs beside it: requires: [NAME, …]"
        )
    if environment.build:
        found.append(
            f"build: bubblewrap builds no image; {_CONTAINERS}, or take it out and list what the task needs: requires: [NAME, …]"
        )
    if not isinstance(environment.workspace, str):
        files = "put the files into a folder of the task"
        found.append(
            f"workspace.image_path: bubblewrap has no images; {_CONTAINERS}, or {files}"
            if isinstance(environment.workspace, ImageWorkspace)
            else f"workspace.repository: not built yet; {files}"
        )
    if environment.isolation != "container":
        found.append(
            f"isolation {environment.isolation}: bubblewrap gives namespaces on a shared kernel (container) and nothing stronger"
        )
    if environment.user == "root":
        found.append("user root: bubblewrap sandboxes run as an unprivileged user; use user: agent")
    return found
