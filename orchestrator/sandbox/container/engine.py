"""Podman or Docker by its command line: the only module that knows the engine's words.

Everything that an engine says wrong comes out as an EngineError with its last lines. Nothing here starts a process of an agent; the
argument list that starts a container is made here (``run_words``) and used by the keeper.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import shlex
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from orchestrator.errors import RefusedError, SandboxError
from orchestrator.sandbox.container.owner import owner
from orchestrator.spec.image_lock import FILE_TIME

RUN_LABEL = "orchestrate.run"
"""Container label: what the container belongs to."""
LAUNCH_LABEL = "orchestrate.launch"
"""Container label: the name of the sandbox."""
OWNER_LABEL = "orchestrate.owner"
"""Container label: process id and start time of the keeper, ``PID.START``, to tell live containers from abandoned ones."""
_CALL_SECONDS = 120.0
_PULL_SECONDS = 3600.0
_BUILD_SECONDS = 3600.0
_SAID_LINES = 12
_SAID_BYTES = 64 << 10
_BUILD_RLIMIT = 16384
"""Podman lowers the limits of a build's processes before it sets those that were asked for."""
_FIRST_RLIMIT = 1024
"""For a container's first process, which needs next to nothing; the agent's program gets the keeper's."""
RECIPES = ("Dockerfile", "Containerfile")
"""What a build looks for in its folder, in this order."""
_HYBRID = Path("/sys/fs/cgroup/unified")
_SYSTEMD = Path("/run/systemd/system")


class EngineError(SandboxError):
    """The engine refused or failed. ``cause``: ``engine_missing``, ``engine_timeout``, ``image_missing``, ``image_pull`` or ``engine``."""

    def __init__(self, message: str, *, cause: str = "engine") -> None:
        super().__init__(message, cause=cause)


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image that is on this machine."""

    id: str
    """``sha256:…`` of its configuration: the same on every machine that has the image."""
    digests: tuple[str, ...]
    """References ``name@sha256:…`` by which a registry gives the same image; none for an image that was built or imported here."""
    env: Mapping[str, str]
    """The variables that the image sets, PATH among them."""
    user: str
    """The user that the image asks for; empty: root. Not honoured."""
    platform: str
    """``linux/amd64`` and so on."""
    size: int
    """Bytes."""


@dataclass(frozen=True, kw_only=True)
class Container:
    """What is asked of a container that only holds namespaces, limits and an image's files."""

    name: str
    image: str
    """Pinned reference or id of an image that is here."""
    labels: Mapping[str, str]
    user: str
    """``UID:GID`` of its first process."""
    memory_bytes: int
    processes: int
    cpu: float
    command: tuple[str, ...]
    """Of its first process; the image's own entry point is not used."""
    pidfile: str
    """Where Podman writes the process id of the first process; Docker has to be asked."""


@dataclass(frozen=True)
class Engine:
    """A container engine. Methods raise EngineError and nothing else."""

    kind: Literal["podman", "docker"]
    command: tuple[str, ...]
    """The program with its global options."""

    def __str__(self) -> str:
        return shlex.join(self.command)

    async def call(self, *words: str, seconds: float = _CALL_SECONDS, stdin: bytes | None = None) -> str:
        """Run one command of the engine and return what it wrote. Raises EngineError with its last lines when it fails."""
        process = await self._start(*words, stdin=stdin is not None)
        try:
            async with asyncio.timeout(seconds):
                out, err = await process.communicate(stdin)
        except TimeoutError:
            msg = f"{self} {words[0]} had not ended after {seconds:g} s"
            raise EngineError(msg, cause="engine_timeout") from None
        finally:
            await _end(process)
        if process.returncode:
            raise EngineError(self._failure(words, process.returncode, err or out))
        return out.decode("utf-8", "replace")

    async def version(self) -> str:
        """Return the engine's version, once it answers: with Docker, the daemon's."""
        field = "{{.Client.Version}}" if self.kind == "podman" else "{{.Server.Version}}"
        return (await self.call("version", "--format", field)).strip()

    async def image(self, reference: str) -> Image | None:
        """Return an image that is on this machine by name, digest or id; None when it is not. Nothing is pulled."""
        try:
            text = await self.call("image", "inspect", "--", reference)
        except EngineError as error:
            if error.cause == "engine" and re.search(r"image not known|no such image|not found", str(error), re.I):
                return None
            raise
        return _image(json.loads(text)[0])

    async def pull(self, reference: str) -> Image:
        """Fetch an image from its registry. Raises EngineError: cause ``image_pull``, with the registry's reason."""
        try:
            await self.call("pull", "--quiet", "--", reference, seconds=_PULL_SECONDS)
        except EngineError as error:
            msg = f"image {reference} cannot be pulled: {error}"
            raise EngineError(msg, cause="image_pull") from error
        return await self.present(reference)

    async def present(self, reference: str) -> Image:
        """Return an image that must be here. Raises EngineError: cause ``image_missing``."""
        image = await self.image(reference)
        if image is None:
            msg = f"image {reference} is not on this machine"
            raise EngineError(msg, cause="image_missing")
        return image

    async def build(self, context: Path, *, tag: str | None = None, again: bool = False) -> Image:
        """Build the Dockerfile (or Containerfile) of a folder and return the image, named ``tag``; ``again``: without the engine's cache.

        Files and image get one fixed time, so that equal folders over equal base images give equal images, as far as the engine can.
        Nothing of this machine's environment enters the build. Raises EngineError with the end of what the build said: its cause is
        ``image_build``.
        """
        recipe = next((name for name in RECIPES if (context / name).is_file()), RECIPES[0])
        with tempfile.TemporaryDirectory(prefix="orchestrate-build-") as folder:
            words = ["build", "--iidfile", f"{folder}/id", "--file", str(context / recipe), *self._build_options()]
            words += [] if tag is None else ["--tag", tag]
            words += ["--no-cache"] if again else []
            await self._build([*words, str(context)])
            text = await asyncio.to_thread(Path(folder, "id").read_text)
        return await self.present(_id(text))

    async def _build(self, words: list[str]) -> None:
        process = await self._start(*words, together=True)
        assert process.stdout is not None  # noqa: S101 - it was asked for
        said = b""
        try:
            async with asyncio.timeout(_BUILD_SECONDS):
                while piece := await process.stdout.read(1 << 16):
                    said = (said + piece)[-_SAID_BYTES:]
                code = await process.wait()
        except TimeoutError:
            msg = f"{self} build had not ended after {_BUILD_SECONDS:g} s; it said last: {_last_lines(said)}"
            raise EngineError(msg, cause="engine_timeout") from None
        finally:
            await _end(process)
        if code:
            raise EngineError(self._failure(("build",), code, said), cause="image_build")

    def _build_options(self) -> list[str]:
        if self.kind == "docker":
            return ["--build-arg", f"SOURCE_DATE_EPOCH={FILE_TIME}"]
        return ["--timestamp", str(FILE_TIME), "--http-proxy=false", *_rlimits(_BUILD_RLIMIT)]

    async def load(self, archive: Path, reference: str) -> Image:
        """Make an image of one layer from a tar file and name it. Raises EngineError."""
        text = await self.call("import", str(archive), reference)
        return await self.present(_id(text.split()[-1]))

    async def tag(self, image: str, reference: str) -> None:
        """Give an image of this machine another name."""
        await self.call("tag", image, reference)

    async def create(self, image: str, labels: Mapping[str, str] | None = None) -> str:
        """Make a container that is never started, to read its files, and return its id; without ``labels`` it is labelled as ours."""
        words = ["create", "--network", "none", *self._never_pull()]
        for name, value in ({OWNER_LABEL: owner()} if labels is None else labels).items():
            words += ["--label", f"{name}={value}"]
        return (await self.call(*words, image, "/nothing")).split()[-1]

    @asynccontextmanager
    async def archive(self, container: str, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Give the pieces of a tar of one path of a container (members below the path's last name), as long as the context is open.

        Raises EngineError when the stream ends early, at the end of the pieces; its cause is ``image_path`` for a path that is not there.
        """
        process = await self._start("cp", f"{container}:{path}", "-")
        assert process.stdout is not None  # noqa: S101 - it was asked for
        assert process.stderr is not None  # noqa: S101 - it was asked for
        stdout, errors = process.stdout, asyncio.create_task(process.stderr.read())

        async def pieces() -> AsyncIterator[bytes]:
            while piece := await stdout.read(1 << 18):
                yield piece
            if await process.wait():
                msg = self._failure(("cp",), process.returncode, await errors)
                missing = re.search(r"could not be found|could not find the file|no such file", msg, re.IGNORECASE)
                raise EngineError(msg, cause="image_path" if missing else "engine")

        try:
            yield pieces()
        finally:
            await _end(process)
            await asyncio.gather(errors, return_exceptions=True)

    async def remove(self, container: str) -> None:
        """Kill and remove a container; harmless when there is none."""
        try:
            await self.call("rm", "--force", "--volumes", "--", container)
        except EngineError as error:
            if not re.search(r"no such container|no container with", str(error), re.I):
                raise

    async def containers(self, label: str) -> dict[str, str]:
        """Return all containers that carry a label, running or not: id to the label's value."""
        words = ("ps", "--all", "--no-trunc", "--filter", f"label={label}")
        value = f'{{{{.Label "{label}"}}}}' if self.kind == "docker" else f'{{{{index .Labels "{label}"}}}}'
        lines = (await self.call(*words, "--format", f"{{{{.ID}}}} {value}")).splitlines()
        return {name: value for name, _, value in (line.strip().partition(" ") for line in lines) if name}

    def run_words(self, wanted: Container) -> list[str]:
        """Return the command that starts a container without network, without capabilities, and with nothing of the machine in it."""
        words = [*self._found(), "run", "--rm", "--name", wanted.name, "--network", "none", "--read-only"]
        words += [
            "--cap-drop",
            "all",
            "--security-opt",
            "no-new-privileges",
            "--cgroupns",
            "private",
            "--ipc",
            "private",
        ]
        words += ["--no-healthcheck", "--entrypoint", wanted.command[0], "--user", wanted.user, "--workdir", "/"]
        words += ["--hostname", "sandbox", *self._never_pull(), *_rlimits(_FIRST_RLIMIT)]
        words += ["--memory", str(wanted.memory_bytes), "--memory-swap", str(wanted.memory_bytes)]
        words += ["--pids-limit", str(wanted.processes), "--cpus", f"{wanted.cpu:.3f}"]
        for name, value in wanted.labels.items():
            words += ["--label", f"{name}={value}"]
        if self.kind == "podman":
            # The container's standard streams are then those of whoever started it: no process between them and the keeper.
            words += ["--detach", "--log-driver", "passthrough", "--pidfile", wanted.pidfile]
            words += ["--image-volume", "ignore", "--read-only-tmpfs=false", "--passwd=false"]
        else:
            words += ["--interactive", "--log-driver", "none"]
        return [*words, wanted.image, *wanted.command[1:]]

    def state_words(self, container: str) -> list[str]:
        """Return the command that writes the process id of a running container's first process."""
        return [*self._found(), "inspect", "--type", "container", "--format", "{{.State.Pid}}", container]

    def remove_words(self, container: str) -> list[str]:
        """Return the command that kills and removes a container."""
        return [*self._found(), "rm", "--force", "--volumes", container]

    def _found(self) -> list[str]:
        """Return the command for a process without a PATH."""
        program, *options = self.command
        return [shutil.which(program) or program, *options]

    def _never_pull(self) -> list[str]:
        return ["--pull", "never"]

    async def _start(self, *words: str, stdin: bool = False, together: bool = False) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                *self.command,
                *words,
                stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT if together else asyncio.subprocess.PIPE,
            )
        except OSError as error:
            msg = f"cannot start {self.command[0]}: {error.strerror}"
            raise EngineError(msg, cause="engine_missing") from error

    def _failure(self, words: tuple[str, ...], code: int | None, said: bytes) -> str:
        return f"{self} {words[0]} ended with {code}: {_last_lines(said)}"


def find_engine(setting: str | None) -> Engine:
    """Return the engine that a setting names, with its global options, or the first of podman and docker that is installed.

    Raises RefusedError when there is none.
    """
    if setting:
        words = shlex.split(setting)
        kind = _kind(words[0])
        if shutil.which(words[0]) is None:
            msg = f"container_engine {setting!r}: there is no program {words[0]}; install it, or name another one"
            raise RefusedError(msg)
        return Engine(kind, tuple(words) if len(words) > 1 else (*words, *_usual_options(kind)))
    for name in ("podman", "docker"):
        if shutil.which(name) is not None:
            return Engine(_kind(name), (name, *_usual_options(_kind(name))))
    msg = "the container backend needs podman or docker, and neither is installed (Debian, Ubuntu: apt-get install podman)"
    raise RefusedError(msg)


def _kind(program: str) -> Literal["podman", "docker"]:
    return "docker" if "docker" in os.path.basename(program) else "podman"  # noqa: PTH119 - a word, maybe no path


def _usual_options(kind: str) -> list[str]:
    """Return the options without which podman fails where nothing has configured it."""
    if kind != "podman" or os.geteuid() != 0:
        return []
    options = [] if _SYSTEMD.is_dir() else ["--cgroup-manager=cgroupfs"]  # no systemd, nobody to ask for a group
    runc = shutil.which("runc", path=f"{os.defpath}:/usr/local/sbin:/usr/sbin:/sbin")
    if _HYBRID.is_dir() and runc is not None:
        options += ["--runtime", runc]  # crun refuses machines with both versions of control groups
    return options


def _rlimits(most: int) -> list[str]:
    """Return resource limits that the engine's runtime can set: it fails where it would have to raise one of ours."""
    words = []
    for name, kind in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        soft, hard = (
            most if value == resource.RLIM_INFINITY else min(value, most) for value in resource.getrlimit(kind)
        )
        words += ["--ulimit", f"{name}={min(soft, hard)}:{hard}"]
    return words


def _last_lines(said: bytes) -> str:
    """Return the end of what an engine said; its notes on what it tries again are left out where it said more."""
    lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    plain = [line for line in lines if not re.match(r'time="\S+" level=\w+ msg=', line)]
    return "\n".join((plain or lines)[-_SAID_LINES:]) or "it said nothing"


def _id(text: str) -> str:
    text = text.strip()
    return text if text.startswith("sha256:") else f"sha256:{text}"


def _image(found: dict[str, Any]) -> Image:
    config = found.get("Config") or {}
    variables = dict(word.partition("=")[::2] for word in config.get("Env") or ())
    return Image(
        id=_id(found["Id"]),
        digests=tuple(each for each in found.get("RepoDigests") or () if not each.startswith("localhost/")),
        env=variables,
        user=config.get("User") or found.get("User") or "",
        platform=f"{found.get('Os', 'linux')}/{found.get('Architecture', '')}",
        size=int(found.get("Size") or 0),
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    """Leave no command of the engine behind, whatever happened."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
