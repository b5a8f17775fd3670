"""Runs made by hand, in a real folder store."""

from __future__ import annotations

import hashlib
import io
import tarfile
from datetime import UTC, date, datetime

from made import made_prices

from orchestrator.records import keys
from orchestrator.records.base import BlobRef
from orchestrator.records.ids import TrialId
from orchestrator.records.manifest import Bundles, Code, ManifestAgent, ManifestTask, RunManifest
from orchestrator.records.outcome import Exit, Outcome, Times
from orchestrator.records.state import Entry, FinalAnswer, Finding, FrozenState
from orchestrator.records.termination import outcome_class
from orchestrator.records.usage import Usage
from orchestrator.records.verdict import CheckResult, Verdict
from orchestrator.spec.agent import Agent
from orchestrator.spec.suite import Quarantined
from orchestrator.spec.task import Budgets, Environment

__all__ = ["CheckResult", "Finding"]

GRADER = "sha256:" + "ab" * 32
OTHER_GRADER = "sha256:" + "01" * 32
NIGHT = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


def task(name, *, samples=5, tier=1, kind="capability", expect="complete", final_checked=None):
    digest = "sha256:" + hashlib.sha256(name.encode()).hexdigest()
    return ManifestTask(
        id=name,
        version=1,
        digest=digest,
        kind=kind,
        tier=tier,
        expect=expect,
        final_checked=final_checked,
        environment=Environment(),
        budgets=Budgets(),
        samples=samples,
        bundles=Bundles(sandbox=digest, world=digest, graders=digest),
    )


def agent(name, **fields):
    digest = "sha256:" + hashlib.sha256(name.encode()).hexdigest()
    made = Agent(type="nop", **fields)
    return ManifestAgent(name=name, digest=digest, agent=made, prices=made_prices(made))


def manifest(tasks, agents, *, run="run-1", quarantine=(), created_at=NIGHT, commit="24173cb" + "0" * 33, labels=None):
    return RunManifest(
        run=run,
        created_at=created_at,
        orchestrate_version="0.1.0",
        code=Code(commit=commit, dirty=False),
        suite="starter",
        suite_digest="sha256:" + "5" * 64,
        metric="pass_rate",
        k=1,
        quarantine=tuple(quarantine),
        tasks=tuple(tasks),
        agents=tuple(agents),
        seed=7,
        backend="bubblewrap",
        labels=labels or {},
        pool="inline",
        grader_version="0.1.0+b7b827",
    )


def quarantined(name, expires=date(2026, 12, 31)):
    return Quarantined(task=name, owner="kim", issue="FLAKE-1", expires=expires)


def outcome(
    run, trial, *, launch=1, reason="completed", ended_as=None, cost=0, state=None, working=2.0, steps=3, **more
):
    kind = outcome_class(reason)
    return Outcome(
        run=run,
        trial=str(trial),
        launch=launch,
        outcome_class=kind,
        termination_reason=reason,
        ended_as=ended_as,
        final=more.pop("final", None) or (FinalAnswer(status=ended_as) if ended_as else None),
        exit=Exit(code=0),
        state=state,
        usage=Usage(uncached_input=100, output=10, cost_nano_usd=cost),
        steps=steps,
        times=Times(started=1000.0, ended=1000.0 + working, working_s=working, waiting_s=0.0),
        writer_id="writer",
        **more,
    )


def verdict(run, trial, result="passed", *, launch=1, state=None, grader=GRADER, checks=None, **more):
    if checks is None:
        checks = (CheckResult(id="hidden_tests", type="command", passed=result == "passed"),)
    return Verdict(
        run=run,
        trial=str(trial),
        launch=launch,
        state_sha256=state.sha256 if state else None,
        grader_digest=grader,
        result=result,
        checks=checks,
        **more,
    )


async def save(store, made, outcomes=(), verdicts=()):
    """Write the records of a run where they belong."""
    assert await store.create(keys.manifest(made.run), made.to_bytes())
    for one in outcomes:
        assert await store.create(keys.outcome(one.run, TrialId.parse(one.trial), one.launch), one.to_bytes())
    for one in verdicts:
        assert await store.create(keys.verdict(one.run, TrialId.parse(one.trial), one.grader_digest), one.to_bytes())


def tar_of(members):
    """Return a tar from (name, bytes | TarInfo) pairs; a TarInfo is taken as it is."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in members:
            if isinstance(content, tarfile.TarInfo):
                content.name = name
                tar.addfile(content)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def entry(path, content=None, *, origin="added", kind="file", mode=0o644, **more):
    raw = content if content is not None else b""
    sha = hashlib.sha256(raw).hexdigest() if kind == "file" and content is not None else None
    return Entry(path=path, type=kind, mode=mode, size=len(raw), sha256=sha, origin=origin, **more)


async def freeze(store, run, unique, entries, tar):
    """Store a frozen state."""
    lines = b"".join(one.to_bytes() + b"\n" for one in entries)
    refs = [await put(store, run, f"{unique}-{name}", data) for name, data in (("entries", lines), ("changes", tar))]
    return FrozenState(entries=refs[0], changes=refs[1])


async def put(store, run, unique, data) -> BlobRef:
    return await store.put_blob(keys.blob(run, unique), data)
