"""The ``command`` check with ``isolation: process``: hidden tests here, the agent's files there, JSON values between them.

Two sandboxes without a network start at the same time. The runner has pytest, the hidden files and the module ``subject``; the subject has
the frozen workspace and our server, in the task's image when the agent worked in one.
A socketpair joins them. Nothing of the agent is loaded where the result is decided.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from grader_service.checks.case import Case, Ending, Frozen, PermanentError, Tools
from grader_service.checks.junit import judge, read_report
from grader_service.checks.limited import prove_state, without_state
from grader_service.programs import LIB, PACKAGES, RUNNER, runner_packages
from orchestrator.errors import SandboxError
from orchestrator.interfaces import Input, Sandbox, SandboxBackend, SandboxLimits, SandboxSpec
from orchestrator.records.verdict import CheckResult, GradingError
from orchestrator.spec.checks import CommandCheck

log = logging.getLogger("grader_service")

_EVIDENCE_EXIT = 70
_SUBJECT_GRACE_SECONDS = 120
_SUBJECT = f"import sys; sys.path.insert(0, {LIB!r}); from grader_service.subject.server import main; main()"


async def run_command(check: CommandCheck, case: Case, tools: Tools) -> CheckResult:
    """Evaluate a ``command`` check.

    Raises SandboxError when a sandbox could not be made, PermanentError when the check itself cannot run.
    """
    if case.state is None:
        return without_state(check.id, check.type)
    started = time.monotonic()
    room = _subject(check, case, case.state, tools)
    ending, frozen, subject = await _run_pair(
        _Place(tools.backend, _runner(check, case, tools)), _Place(_backend_of(case, tools), room)
    )
    if subject is not None and subject.exit.code == _EVIDENCE_EXIT:
        await prove_state(case, case.state, tools)  # the agent's code ran there too, and may have made that exit code
    report = read_report(frozen.final)
    expected = _expected_ids(check, case.graders)
    result = judge(check, ending, report, expected, frozen.output)
    evidence = result.evidence
    if subject is not None and subject.cause != "exited":
        evidence = (*evidence, f"the subject's sandbox was ended: {subject.cause}")
    return result.model_copy(update={"seconds": round(time.monotonic() - started, 3), "evidence": evidence})


@dataclass(frozen=True)
class _Place:
    """One of the two sandboxes, and who makes it."""

    backend: SandboxBackend
    spec: SandboxSpec

    def open(self, channel: socket.socket) -> AbstractAsyncContextManager[Sandbox]:
        return self.backend.open(replace(self.spec, channel=channel.fileno()))


def _backend_of(case: Case, tools: Tools) -> SandboxBackend:
    """Return where the agent's work runs. Raises SandboxError when it was made in an image and this service runs none."""
    if case.image is None:
        return tools.backend
    if tools.containers is None:
        msg = f"image {case.image} is needed to grade {case.planned.id}, and this grader was started without a container engine"
        raise SandboxError(msg, cause="grader_engine")
    return tools.containers


async def _run_pair(runner: _Place, subject: _Place) -> tuple[Ending, Frozen, Ending | None]:
    """Run both at once. The subject is killed when the runner has ended; its own ending is returned when it came first."""
    here, there = socket.socketpair()
    over = asyncio.Event()
    serving = asyncio.create_task(_serve(subject, there, over))
    try:
        running = asyncio.create_task(_run(runner, here))
        try:
            await asyncio.wait({running, serving}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done() and serving.exception() is not None:
                running.cancel()
            ending, frozen = await _settled(running, serving)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        over.set()
        return ending, frozen, await serving
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        here.close()
        there.close()


async def _settled(
    running: asyncio.Task[tuple[Ending, Frozen]], serving: asyncio.Task[Ending | None]
) -> tuple[Ending, Frozen]:
    try:
        return await running
    except asyncio.CancelledError:
        if serving.done() and (error := serving.exception()) is not None:
            raise error from None
        raise


async def _run(place: _Place, channel: socket.socket) -> tuple[Ending, Frozen]:
    async with place.open(channel) as sandbox:
        channel.close()
        ending = await sandbox.ended()
        return ending, await sandbox.freeze()


async def _serve(place: _Place, channel: socket.socket, over: asyncio.Event) -> Ending | None:
    async with place.open(channel) as sandbox:
        channel.close()
        ended = asyncio.create_task(sandbox.ended())
        waiting = asyncio.create_task(over.wait())
        try:
            await asyncio.wait({ended, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                return None
            ending = ended.result()
            if ending.exit.code != 0:  # 0: the runner closed the line first
                log.warning("a subject ended early with %s: %r", ending.exit, (await sandbox.freeze()).output[-500:])
            await waiting
            return ending
        finally:
            for task in (ended, waiting):
                task.cancel()
            await asyncio.gather(ended, waiting, return_exceptions=True)


def _runner(check: CommandCheck, case: Case, tools: Tools) -> SandboxSpec:
    hidden = case.graders / "hidden"
    inputs = [Input(source=tools.programs.runner, target=RUNNER)]
    if hidden.is_dir():
        inputs.append(Input(source=hidden, target="/workspace/hidden", writable=True))
    return SandboxSpec(
        name=f"{case.name}-{check.id}-runner"[:100],
        command=("sh", "-c", f"PATH={RUNNER}/bin:$PATH; export PATH\n{check.run}"),
        limits=SandboxLimits(
            cpu=1,
            memory_bytes=tools.settings.runner_memory_bytes,
            disk_bytes=(256 << 20) + 2 * _size(hidden),
            processes=tools.settings.runner_processes,
            wall_seconds=check.timeout_seconds,
            output_bytes=64 << 10,
        ),
        env={
            "PYTHONPATH": f"{RUNNER}:{PACKAGES}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": "-p orchestrate_results -p no:cacheprovider",
        },
        inputs=tuple(inputs),
        requires=("python3",),
        packages=runner_packages(),
    )


def _subject(check: CommandCheck, case: Case, state: Path, tools: Tools) -> SandboxSpec:
    environment = case.planned.environment
    workdir = environment.workdir
    folders = check.pythonpath or (".",)
    config = {
        "state": "/grader/state",
        "pristine": "/grader/pristine",
        "root": workdir,
        "limit_bytes": case.state_bytes,
        "pythonpath": [workdir if folder in {".", "./"} else f"{workdir}/{folder.rstrip('/')}" for folder in folders],
        "callee": f"{LIB}/grader_service/subject/callee.py",
    }
    inputs = [
        Input(source=tools.programs.lib, target=LIB),
        Input(source=state, target="/grader/state"),
        *case.pristine(),
    ]
    if (case.sandbox / "memory").is_dir():
        inputs.append(Input(source=case.sandbox / "memory", target="/memory"))
    resources = environment.resources
    return SandboxSpec(
        name=f"{case.name}-{check.id}-subject"[:100],
        command=("python3", "-I", "-S", "-c", _SUBJECT),
        limits=SandboxLimits(
            cpu=resources.cpu,
            memory_bytes=resources.memory + (64 << 20),
            disk_bytes=case.state_bytes + (64 << 20),
            processes=resources.processes + 8,
            wall_seconds=check.timeout_seconds + _SUBJECT_GRACE_SECONDS,
            output_bytes=8192,
        ),
        stdin=json.dumps(config).encode(),
        workdir=workdir,
        image=case.image,
        inputs=tuple(inputs),
        requires=tuple(dict.fromkeys(("python3", *environment.requires))),
    )


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*")) if folder.is_dir() else 0


def _expected_ids(check: CommandCheck, graders: Path) -> frozenset[str] | None:
    if check.expect is None:
        return None
    path = graders / check.expect
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        message = f"check {check.id}: {check.expect} cannot be read ({type(error).__name__})"
        raise PermanentError(GradingError(type="check", message=message)) from error
    ids = frozenset(text for line in lines if (text := line.strip()) and not text.startswith("#"))
    if not ids:
        raise PermanentError(GradingError(type="check", message=f"check {check.id}: {check.expect} names no test"))
    return ids
