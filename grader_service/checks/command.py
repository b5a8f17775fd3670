"""The ``command`` check with ``isolation: process``: hidden tests here, the agent's files there, JSON values between them.

Two sandboxes without a network start at the same time. The runner has pytest, the hidden files and the module ``subject``; the subject has
the frozen workspace and our server, in the task's image when the agent worked in one.
A line joins them. Nothing of the agent is loaded where the result is decided.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from grader_service.checks.case import Case, Pair, PairEnd, PermanentError, Tools
from grader_service.checks.junit import judge, read_report
from grader_service.checks.limited import prove_state, without_state
from grader_service.programs import LIB, PACKAGES, RUNNER, runner_packages
from orchestrator.interfaces import Input, SandboxLimits, SandboxSpec
from orchestrator.records.verdict import CheckResult, GradingError
from orchestrator.spec.checks import CommandCheck

_EVIDENCE_EXIT = 70
_SUBJECT_GRACE_SECONDS = 120
_SUBJECT = f"import sys; sys.path.insert(0, {LIB!r}); from grader_service.subject.server import main; main()"


async def run_commands(checks: Sequence[CommandCheck], case: Case, tools: Tools) -> list[CheckResult]:
    """Evaluate the ``command`` checks of a trial, in order.

    Raises SandboxError when a sandbox could not be made, PermanentError when a check itself cannot run.
    """
    state = case.state
    if not checks:
        return []
    if state is None:
        return [without_state(check.id, check.type) for check in checks]
    pairs = [Pair(runner=_runner(check, case, tools), subject=_subject(check, case, state, tools)) for check in checks]
    ends = await tools.pairs.run(case.name, case.planned, pairs)
    if any(end.subject is not None and end.subject.exit.code == _EVIDENCE_EXIT for end in ends):
        await prove_state(case, state, tools)  # the agent's code ran there too, and may have made that exit code
    return [_result(check, case, end) for check, end in zip(checks, ends, strict=True)]


def _result(check: CommandCheck, case: Case, end: PairEnd) -> CheckResult:
    report = read_report(end.frozen.final)
    result = judge(check, end.runner, report, _expected_ids(check, case.graders), end.frozen.output)
    evidence = result.evidence
    if end.subject is not None and end.subject.cause != "exited":
        evidence = (*evidence, f"the subject's sandbox was ended: {end.subject.cause}")
    seconds = max(0.0, end.runner.ended - end.runner.started)
    return result.model_copy(update={"seconds": round(seconds, 3), "evidence": evidence})


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
        waits=case.waits,
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
