"""The container backend: sandboxes with the files of an image, in containers of Podman or Docker on this Linux machine.

The engine makes the container (namespaces, the image's root, control groups with the limits) without a network; its first process is a
shell of ours. The agent's program is a child of the keeper that enters the container; user, capabilities and system calls are set
there, as strictly as for bubblewrap, and the only way out is the gateway's listening socket on the container's own loopback.

Not covered: the kernel is shared with the machine, the agent's user id is one of the machine too (no user namespace), though no other
sandbox has it, and a security profile that the engine has for its containers (AppArmor, SELinux) holds for the first process, not for the
agent's.
"""

from __future__ import annotations

import asyncio
import base64
import os
import platform
import sys
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from orchestrator.errors import RefusedError, SandboxError
from orchestrator.interfaces import Sandbox, SandboxLimits, SandboxSpec
from orchestrator.sandbox import seccomp
from orchestrator.sandbox.container.engine import (
    LAUNCH_LABEL,
    OWNER_LABEL,
    RUN_LABEL,
    Container,
    Engine,
    EngineError,
    Image,
)
from orchestrator.sandbox.container.explain import explain
from orchestrator.sandbox.container.owner import owner
from orchestrator.sandbox.container.probe import probe_image
from orchestrator.sandbox.container.sweep import sweep
from orchestrator.sandbox.inside import HOME, SYSTEM_PATH, is_below
from orchestrator.sandbox.interpreter import interpreter
from orchestrator.sandbox.kept import OnThisMachine, common_specification, kept
from orchestrator.settings import engine_variables
from orchestrator.spec.task import Environment, RepositoryWorkspace, is_pinned

_KEEPER = "orchestrator.sandbox.container.keeper"
_HOLD = "exec 3<&0; { read -r x <&3; } & exec 3<&-; wait"
"""What the container's first process does: wait for the end of its input, and reap."""
_NOBODY = "65534:65534"
_OLDEST_KERNEL = (5, 12)
_TAKEN = ("/proc", "/sys", "/dev", "/etc", "/run", "/output", "/tmp", HOME)  # noqa: S108 - the sandbox's own
_PROBE_LIMITS = SandboxLimits(cpu=1, memory_bytes=256 << 20, disk_bytes=4 << 20, processes=16, wall_seconds=30)
_LOOK = 'for name; do command -v "$name" >/dev/null || echo "$name"; done'


class ContainerBackend(OnThisMachine):
    """Makes sandboxes in containers."""

    name = "container"

    def __init__(self, folder: Path, engine: Engine) -> None:
        """Take a folder of this program's own, which need not exist yet, and the engine."""
        self.folder = folder
        self.engine = engine
        self._images: dict[str, Image] = {}

    def refusals(self, environment: Environment) -> list[str]:
        """Return one sentence for each thing that the environment asks and this backend cannot give."""
        found = _image_refusals(environment)
        if isinstance(environment.workspace, RepositoryWorkspace):
            found.append("workspace.repository: not built yet; put the files into a folder of the task")
        if environment.isolation != "container":
            found.append(
                f"isolation {environment.isolation}: containers share the machine's kernel; this backend gives nothing stronger"
            )
        if environment.user == "root":
            found.append("user root: the agent runs as an unprivileged user in its container; use user: agent")
        path = os.path.normpath(environment.workdir)
        if path == "/" or any(is_below(path, taken) for taken in _TAKEN):
            found.append(
                f"workdir {environment.workdir}: sandboxes keep that place for themselves; use /workspace or another folder of its own"
            )
        return found

    async def preflight(self) -> Mapping[str, str]:
        """Make one small container and return the labels that all will carry. Raises RefusedError with what to change."""
        _check_machine()
        try:
            version = await self.engine.version()
            await sweep(self.engine)
            image = await probe_image(self.engine)
        except EngineError as error:
            raise RefusedError(explain(self.engine, str(error))) from error
        spec = SandboxSpec(name="preflight", command=("/bin/sh", "-c", "exit 42"), limits=_PROBE_LIMITS, image=image.id)
        try:
            async with self.open(spec) as sandbox:
                ending = await sandbox.ended()
                labels = dict(sandbox.labels)
        except SandboxError as error:
            raise RefusedError(explain(self.engine, str(error))) from error
        if ending.exit.code != 42:
            msg = f"a first container was made, but its program ended with {ending.exit} ({ending.cause}) instead of exit code 42"
            raise RefusedError(msg)
        return {**labels, "kernel": "shared", "engine": f"{self.engine.kind} {version}"}

    async def lacking(self, environments: Iterable[Environment], mounted: Iterable[str] = ()) -> list[str]:
        """Start each image once and look for what is required in it; an image that cannot be started here is named, too."""
        wanted: dict[str, set[str]] = {}
        for environment in environments:
            if environment.image is not None:
                wanted.setdefault(environment.image, set()).update(environment.requires)
        problems = []
        for image, programs in sorted(wanted.items()):
            try:
                problems += await self._missing(image, sorted(programs))
            except SandboxError as error:
                problems.append(f"image {image} cannot be used: {error}")
        return problems

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        """Lay the inputs and start the command. Leaving the context kills and removes everything. Raises SandboxError."""
        specification = await self._specification(spec)
        async with kept(spec, _KEEPER, interpreter().program, specification) as sandbox:
            yield sandbox

    async def _specification(self, spec: SandboxSpec) -> dict[str, Any]:
        common = common_specification(spec)
        if spec.image is None:
            msg = f"sandbox {spec.name}: it names no image, and containers are made from one"
            raise SandboxError(msg, cause="sandbox_spec")
        image = await self._image(spec.image)
        token = uuid.uuid4().hex[:12]
        name = f"orchestrate-{spec.name}-{token}"
        container = Container(
            name=name,
            image=image.id,
            labels={RUN_LABEL: "sandbox", LAUNCH_LABEL: spec.name, OWNER_LABEL: owner()},
            user=_NOBODY,
            memory_bytes=common["limits"]["memory_total"],
            processes=spec.limits.processes + 2,
            cpu=spec.limits.cpu,
            command=("/bin/sh", "-c", _HOLD, token),
            pidfile=str(self.folder / f"{name}.pid"),
        )
        await asyncio.to_thread(self.folder.mkdir, parents=True, exist_ok=True)
        base = {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8", **image.env}
        own = {"HOME": HOME, "TMPDIR": "/tmp"}  # noqa: S108 - the sandbox's own
        return common | {
            "env": base | own | dict(spec.env),
            "seccomp": base64.b64encode(seccomp.program(platform.machine())).decode(),
            "engine": {
                "name": name,
                "token": token,
                "folder": str(self.folder),
                "env": engine_variables(),
                "run": self.engine.run_words(container),
                "state": self.engine.state_words(name),
                "remove": self.engine.remove_words(name),
                "pidfile": container.pidfile if self.engine.kind == "podman" else None,
            },
        }

    async def _image(self, reference: str) -> Image:
        if reference not in self._images:
            self._images[reference] = await self.engine.present(reference)
        return self._images[reference]

    async def _missing(self, image: str, programs: list[str]) -> list[str]:
        """Start a container of the image, which must have a shell, and ask it for programs."""
        command = ("/bin/sh", "-c", _LOOK, "sh", *programs)
        spec = SandboxSpec(name="requires", command=command, limits=_PROBE_LIMITS, image=image)
        async with self.open(spec) as sandbox:
            ending = await sandbox.ended()
            said = (await sandbox.freeze()).output.decode("utf-8", "replace")
        if ending.exit.code != 0:
            return [f"image {image}: its /bin/sh does not work: {said.strip() or ending.exit}"]
        missing = said.split()
        if not missing:
            return []
        why = " (command checks and agents of type react need python3)" if "python3" in missing else ""
        return [
            f"requires {', '.join(missing)}: not found in image {image}; add it there, or take it out of 'requires'{why}"
        ]


def _check_machine() -> None:
    """Raise RefusedError where containers of this backend cannot be made at all."""
    if sys.platform != "linux":
        msg = (
            f"the container backend needs Linux, this is {sys.platform}; run orchestrate inside of the engine's own Linux machine "
            "(podman machine, Lima, Colima)"
        )
        raise RefusedError(msg)
    if os.geteuid() != 0:
        msg = "the container backend needs root, to enter the containers; run orchestrate with sudo, or use --backend bubblewrap"
        raise RefusedError(msg)
    if platform.machine() not in seccomp.machines():
        msg = f"the container backend has no system call filter for {platform.machine()}, only for {', '.join(seccomp.machines())}"
        raise RefusedError(msg)
    release = platform.release().split("-")[0].split(".")
    if tuple(int(word) for word in release[:2] if word.isdigit()) < _OLDEST_KERNEL:
        msg = f"the container backend needs Linux 5.12 or later, this is {platform.release()}; use --backend bubblewrap"
        raise RefusedError(msg)


def _image_refusals(environment: Environment) -> list[str]:
    if environment.image is None and environment.build is not None:
        return [
            f"build {environment.build}: its image is not pinned yet; build and pin it with: orchestrate images lock SUITE"
        ]
    if environment.image is None:
        way = "add image: or build:, or run the task without: --backend bubblewrap"
        return [f"image: containers are made from an image, and there is none; {way}"]
    if not is_pinned(environment.image):
        return [
            f"image {environment.image}: its tag can mean another image tomorrow; pin it with: orchestrate images lock SUITE"
        ]
    return []
