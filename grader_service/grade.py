"""Grade one trial. Read this first.

evidence found and verified -> bundles -> checks -> invariants -> one word -> written once.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from grader_service.checks.asked import check_asked
from grader_service.checks.case import Case, PermanentError, Tools
from grader_service.checks.command import run_commands
from grader_service.checks.final import check_final
from grader_service.checks.limited import LimitedCheck, run_limited
from grader_service.combine import combine, group, refusals
from grader_service.evidence import (
    Committed,
    fetch_state,
    fetch_task,
    find_trial,
    permanent,
    prove_relayed,
    prove_world,
)
from grader_service.room import Room
from orchestrator.interfaces import BundleSource, ObjectStore
from orchestrator.interfaces.waits import unheard
from orchestrator.records import keys
from orchestrator.records.ids import TrialId, launch_id
from orchestrator.records.manifest import ManifestTask, RunManifest
from orchestrator.records.state import FrozenState
from orchestrator.records.usage import NOTHING_USED
from orchestrator.records.verdict import CheckResult, GradingError, Verdict
from orchestrator.spec.base import digest
from orchestrator.spec.checks import AnyOfCheck, AskedCheck, Check, CommandCheck, FinalCheck, Invariant
from orchestrator.spec.task import Task, flat_checks


@dataclass(frozen=True, kw_only=True)
class Grading:
    """What grading needs, the same for every trial."""

    store: ObjectStore
    bundles: BundleSource
    tools: Tools
    folder: Path
    """Scratch folder."""
    version: str
    """Version of this service with the digest of its sources."""
    room: Room = field(default_factory=Room)
    """For states in that folder."""
    shared: bool = False
    """The group of the scratch folder may read what is in it: a checker with another user does."""
    relayed: bool = False
    """States came through a relay: what a driver says of them is compared with its records."""
    manifests: dict[str, RunManifest] = field(default_factory=dict)
    """Of the last runs, by run."""


async def grade(grading: Grading, run: str, trial: TrialId, waits: Callable[[str], None] = unheard) -> Verdict:
    """Return the trial's verdict, the stored one when there is one; ``waits`` is told why that takes longer, as ``Case.waits``.

    Raises NothingToGradeError, StoreError and SandboxError; the last two may pass.
    """
    committed = await find_trial(grading.store, run, trial, grading.manifests)
    grader = grader_digest(grading, committed.planned)
    key = keys.verdict(run, trial, grader)
    if await grading.store.exists(key):
        return Verdict.from_bytes(await grading.store.get(key), key)
    verdict = await _evaluate(grading, run, trial, committed, grader, waits)
    data = verdict.to_bytes()
    if await grading.store.create(key, data):
        return Verdict.from_bytes(data, key)
    return Verdict.from_bytes(await grading.store.get(key), key)


def grader_digest(grading: Grading, planned: ManifestTask) -> str:
    """Return the digest of everything on the grader's side that a verdict depends on."""
    settings = grading.tools.settings.model_dump(mode="json")
    return digest(
        {
            "graders": planned.bundles.graders,
            "service": grading.version,
            "settings": settings,
            "place": dict(grading.tools.pairs.identity(planned)),
        }
    )


async def _evaluate(
    grading: Grading, run: str, trial: TrialId, committed: Committed, grader: str, waits: Callable[[str], None]
) -> Verdict:
    outcome = committed.outcome
    verdict = Verdict(
        run=run,
        trial=str(trial),
        launch=outcome.launch,
        state_sha256=outcome.state.sha256 if outcome.state else None,
        grader_digest=grader,
        grader_version=grading.version,
        result="grader_error",
        judge_usage=NOTHING_USED,  # this version asks no judge
    )
    name = launch_id(run, trial, outcome.launch)
    try:
        if committed.problem is not None:
            raise permanent(committed.problem)
        if grading.relayed and outcome.state is not None:
            await prove_relayed(grading.store, outcome)
        if grading.relayed:
            await prove_world(grading.store, outcome)
        async with _scratch(grading, name, outcome.state) as scratch:
            state = await fetch_state(grading.store, outcome.state, scratch / "state") if outcome.state else None
            task, graders, sandbox = await fetch_task(grading.bundles, committed.planned)
            _refuse(task)
            case = Case(
                name=name,
                task=task,
                planned=committed.planned,
                outcome=outcome,
                sandbox=sandbox,
                graders=graders,
                state=state,
                waits=waits,
            )
            checks, invariants = await run_checks(case, grading.tools)
    except PermanentError as error:
        return verdict.model_copy(update={"error": error.error})
    result, problem = combine(checks, invariants)
    return verdict.model_copy(update={"result": result, "error": problem, "checks": checks, "invariants": invariants})


@contextlib.asynccontextmanager
async def _scratch(grading: Grading, name: str, state: FrozenState | None) -> AsyncIterator[Path]:
    """Give a folder with room for a state. Raises StoreError when it never has that."""
    parts = [] if state is None else [state.entries, state.changes, *([] if state.world is None else [state.world])]
    size = sum(blob.size for blob in parts)
    async with grading.room.taken(size):
        with tempfile.TemporaryDirectory(
            dir=grading.folder, prefix=f"{name[:8]}-", ignore_cleanup_errors=True
        ) as folder:
            if grading.shared:
                Path(folder).chmod(0o750)  # noqa: ASYNC240 - one entry
            yield Path(folder)


def _refuse(task: Task) -> None:
    if lines := refusals(task):
        raise PermanentError(GradingError(type="config", message="; ".join(lines)[:2000]))


async def run_checks(case: Case, tools: Tools) -> tuple[tuple[CheckResult, ...], tuple[CheckResult, ...]]:
    """Evaluate all checks and invariants; results come in the order of the task, whatever runs at the same time.

    Raises SandboxError, PermanentError.
    """
    singles: list[Check | Invariant] = [*flat_checks(case.task.checks), *case.task.invariants]
    limited = [check for check in singles if isinstance(check, LimitedCheck)]
    commands = [check for check in singles if isinstance(check, CommandCheck)]
    work = [
        asyncio.create_task(run_limited(limited, case, tools)),
        asyncio.create_task(run_commands(commands, case, tools)),
    ]
    try:
        results = [result for part in await asyncio.gather(*work) for result in part]
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
    found = {id(spec): result for spec, result in zip([*limited, *commands], results, strict=True)}
    found.update({id(spec): check_final(spec, case.outcome) for spec in singles if isinstance(spec, FinalCheck)})
    found.update({id(spec): check_asked(spec, case.outcome) for spec in singles if isinstance(spec, AskedCheck)})
    checks: list[CheckResult] = []
    for check in case.task.checks:
        parts = [found[id(part)] for part in (check.any_of if isinstance(check, AnyOfCheck) else (check,))]
        checks += group(check, parts) if isinstance(check, AnyOfCheck) else parts
    return tuple(checks), tuple(found[id(invariant)] for invariant in case.task.invariants)
