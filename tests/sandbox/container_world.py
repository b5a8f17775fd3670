"""An image for the tests, made of this machine's own files: no registry is needed. Made once; later sessions find it by its content."""

from __future__ import annotations

import asyncio
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import RefusedError
from orchestrator.interfaces import Sandbox, SandboxSpec
from orchestrator.sandbox.container.backend import ContainerBackend
from orchestrator.sandbox.container.engine import Engine, find_engine
from orchestrator.sandbox.interpreter import interpreter
from orchestrator.sandbox.kept import OnThisMachine
from orchestrator.settings import load_settings
from orchestrator.spec.task import Environment

PROGRAMS = (
    "sh cat chmod cp date dd echo env false grep head id ln ls mkdir mkfifo mknod mv printf pwd readlink rm rmdir sed seq setsid sleep "
    "sort stat tail tar test touch tr true truncate uname wc yes"
)
LEFT_OUT = re.compile(
    r"/(test|tests|idlelib|tkinter|turtledemo|ensurepip|lib2to3|site-packages|config-[^/]*|pkgconfig)(/|$)"
)


@functools.cache
def engine() -> Engine:
    """The engine of this machine; tests are skipped, with the reason, where none is installed."""
    try:
        return find_engine(load_settings(Path("/")).container_engine)
    except RefusedError as error:
        pytest.skip(str(error))


class WithImage(OnThisMachine):
    """The container backend, which takes the tests' image where a test names none."""

    name = "container"

    def __init__(self, folder: Path) -> None:
        self.inner = ContainerBackend(folder, engine())
        self.image = image()
        self.engine = self.inner.engine

    def refusals(self, environment: Environment) -> list[str]:
        return self.inner.refusals(environment.model_copy(update={"image": environment.image or "sha256:" + "0" * 64}))

    async def preflight(self) -> Mapping[str, str]:
        return await self.inner.preflight()

    async def lacking(self, environments: Iterable[Environment], mounted: Iterable[str] = ()) -> list[str]:
        return await self.inner.lacking(environments)

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        return self.inner.open(self.with_image(spec))

    async def _specification(self, spec: SandboxSpec):
        return await self.inner._specification(self.with_image(spec))

    def with_image(self, spec: SandboxSpec) -> SandboxSpec:
        return replace(spec, image=spec.image or self.image)


@functools.cache
def image() -> str:
    """The id of the tests' image, which is made when it is not there."""
    files = dict(sorted(_files()))
    listed = "\n".join(
        f"{inside} {path} {os.stat(path).st_size} {os.stat(path).st_mtime_ns}" for inside, path in files.items()
    )
    reference = f"localhost/orchestrate-test:{hashlib.sha256(listed.encode()).hexdigest()[:16]}"
    with open(Path(tempfile.gettempdir(), "orchestrate-test-image.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return asyncio.run(_made(reference, files))


async def _made(reference: str, files: Mapping[str, str]) -> str:
    found = await engine().image(reference)
    if found is None:
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder, "root.tar")
            with tarfile.open(archive, "w") as tar:
                for name in ("tmp", "etc"):
                    member = tarfile.TarInfo(name)
                    member.type, member.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(member)
                for inside, path in files.items():
                    tar.add(os.path.realpath(path), inside, recursive=False, filter=_plain)
                for name in ("python3", "python"):
                    member = tarfile.TarInfo(f"usr/local/bin/{name}")
                    member.type, member.linkname = tarfile.SYMTYPE, str(interpreter().program)
                    tar.addfile(member)
            found = await engine().load(archive, reference)
    return found.id


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.mode = 0o755 if member.mode & 0o100 else 0o644
    return member


def _files() -> Iterable[tuple[str, str]]:
    """Path inside and path here of every file."""
    python = interpreter()
    binaries = []
    for name in PROGRAMS.split():
        path = shutil.which(name)
        assert path is not None
        binaries.append(path)
        yield f"bin/{name}", path
    for path in [python.program, *python.prefix.glob("lib/libpython*"), *python.prefix.glob("lib/python3*/**/*")]:
        if path.is_file() and not LEFT_OUT.search(str(path)):
            yield str(path).lstrip("/"), str(path)
            if os.access(path, os.X_OK) or path.suffix == ".so":
                binaries.append(str(path))
    said = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout
    for library in set(re.findall(r"(/\S+)(?= \(0x)", said)):
        yield library.lstrip("/"), library
