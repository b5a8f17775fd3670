"""From the words a person types to a run and a trial."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from orchestrator.dataset.rows import RunData, TrialRow, read_many
from orchestrator.errors import NotFoundError, SpecError, nearest
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.records.manifest import RunManifest
from orchestrator.records.verdict import TrialResult
from orchestrator.report.program import program
from orchestrator.report.text import clean, named
from orchestrator.storage.removals import describe, removed_run

WORST_FIRST: tuple[TrialResult, ...] = ("failed", "abstained", "grader_error", "infra", "cancelled")
"""What counts as the first failure, in this order. A missing trial is none: there is nothing to see of it yet."""
_SHOWN = 8
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NEAREST = 3


async def list_runs(store: ObjectStore) -> list[RunManifest]:
    """Return all runs of the store, newest first. Raises StoreError."""

    async def read(key: str) -> RunManifest | None:
        try:
            return RunManifest.from_bytes(await store.get(key), key)
        except NotFoundError:  # removed since it was listed
            return None

    found = await read_many(read, [key for key in await store.list(keys.RUNS) if keys.run_of_manifest(key)])
    return sorted(
        (manifest for manifest in found if manifest is not None),
        key=lambda manifest: (manifest.created_at, manifest.run),
        reverse=True,
    )


async def resolve_run(store: ObjectStore, text: str) -> str:
    """Return the run that ``text`` means: an id, a unique beginning of one, ``last``, or ``commit:SHA``, the newest run of that commit.

    Raises SpecError that names the candidates when there is none, or more than one run or commit.
    """
    runs = [run for key in await store.list(keys.RUNS) if (run := keys.run_of_manifest(key))]
    if text in runs:
        return text
    await _refuse_removed(store, text, runs)
    if not runs:
        msg = f"this store has no run yet; start one with: {program()} submit SUITE"
        raise SpecError(msg)
    if text == "last":
        return _only(text, [run.run for run in (await list_runs(store))[:1]], runs)
    if text.startswith("commit:"):
        sha = text.removeprefix("commit:").lower()
        if not re.fullmatch(r"[0-9a-f]{4,40}", sha):
            msg = f"{clean(text, 80)!r}: write commit: and 4 to 40 hex digits"
            raise SpecError(msg)
        found = [run for run in await list_runs(store) if (run.code.commit or "").startswith(sha)]
        if len(commits := sorted({run.code.commit or "" for run in found})) > 1:
            msg = f"{text} could be any of {len(commits)} commits: {named((commit[:12] for commit in commits), _SHOWN)}"
            raise SpecError(msg)
        return _only(text, [run.run for run in found[:1]], runs)
    return _only(text, [run for run in runs if run.startswith(text)] if text else [], runs)


async def _refuse_removed(store: ObjectStore, text: str, runs: Sequence[str]) -> None:
    """Raise SpecError when the text is the name of a run that was removed, and means none that is there."""
    if _NAME.fullmatch(text) and text != "last" and not any(run.startswith(text) for run in runs):
        removal = await removed_run(store, text)
        if removal is not None:
            raise SpecError(describe(text, removal))


def _only(text: str, found: Sequence[str], runs: Sequence[str]) -> str:
    if len(found) == 1:
        return found[0]
    shown = clean(text, 80)
    if found:
        msg = f"run {shown!r} could be any of {len(found)}: {named(found, _SHOWN)}"
        raise SpecError(msg)
    there = f"there are {len(runs)}: {named(sorted(runs, reverse=True), _SHOWN)}"
    raise SpecError(f"no run {shown!r}{_near(text, runs)}; {there}; see them with: {program()} list")


def _near(text: str, runs: Sequence[str]) -> str:
    """Return which runs may have been meant: those whose id has these letters in it, then those that look alike."""
    inside = [run for run in sorted(runs, reverse=True) if text and text.lower() in run.lower()]
    alike = difflib.get_close_matches(text, runs, n=_NEAREST, cutoff=0.6)
    found = list(dict.fromkeys([*inside, *alike]))[:_NEAREST]
    return f" (did you mean {' or '.join(repr(clean(run, 120)) for run in found)}?)" if found else ""


def first_failure(rows: Iterable[TrialRow]) -> TrialRow | None:
    """Return the first failed trial, else the first abstained one, and so on; None when everything passed."""
    every = list(rows)
    for word in WORST_FIRST:
        for row in every:
            if row.result == word:
                return row
    return None


def resolve_trial(data: RunData, text: str | None) -> TrialId:
    """Return the trial that ``TASK[@AGENT][:N]`` means; what is left open, or everything, is the first failure, or a run's only trial.

    Raises SpecError with the nearest name when there is no such trial.
    """
    if text is None:
        found = first_failure(data.rows)
        if found is None and len(data.rows) == 1:
            return data.rows[0].trial
        if found is None:
            example = _any(data.rows) if data.rows else "TASK@AGENT:1"
            msg = f"no trial of {data.manifest.run} failed, so name one, for example {example}"
            raise SpecError(msg)
        return found.trial
    task, agent, sample = _parse(text)
    of_task = [row for row in data.rows if row.trial.task == task]
    if not of_task:
        tasks = [one.id for one in data.manifest.tasks]
        msg = f"run {data.manifest.run} has no task {clean(task, 80)!r}{nearest(task, tasks)}; it has {named(tasks, _SHOWN)}"
        raise SpecError(msg)
    of_agent = [row for row in of_task if agent in {None, row.trial.agent}]
    if not of_agent:
        agents = [one.name for one in data.manifest.agents]
        shown = clean(agent or "", 80)
        msg = f"run {data.manifest.run} has no agent {shown!r}{nearest(shown, agents)}; it has {named(agents, _SHOWN)}"
        raise SpecError(msg)
    rows = [row for row in of_agent if sample in {None, row.trial.sample}]
    if not rows:
        msg = f"task {task} has {_samples(sorted({row.trial.sample for row in of_agent}))}, not {sample}"
        raise SpecError(msg)
    found = first_failure(rows)
    return found.trial if found else _any(rows)


def _any(rows: Sequence[TrialRow]) -> TrialId:
    """Return the first trial that ended, else the first."""
    return next((row.trial for row in rows if row.result != "missing"), rows[0].trial)


def _samples(numbers: Sequence[int]) -> str:
    whole = len(numbers) > 1 and list(numbers) == list(range(1, numbers[-1] + 1))
    return f"samples 1 to {numbers[-1]}" if whole else f"sample {named(numbers, _SHOWN)}"


def _parse(text: str) -> tuple[str, str | None, int | None]:
    match = re.fullmatch(r"([^@:]+)(?:@([^@:]+))?(?::([0-9]{1,6}))?", text)
    if match is None:
        msg = f"{clean(text, 80)!r} is not a trial; write TASK, TASK@AGENT or TASK@AGENT:N"
        raise SpecError(msg)
    return match[1], match[2], int(match[3]) if match[3] else None
