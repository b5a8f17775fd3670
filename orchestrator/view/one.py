"""One trial: what is known of it, what it left, what it printed. Its files are parsed in a child without credentials alone."""

from __future__ import annotations

import asyncio
import tempfile
from collections import OrderedDict
from typing import IO, Any

import orjson

from orchestrator.dataset.rows import RunData, TrialRow
from orchestrator.errors import NotFoundError, SpecError
from orchestrator.interfaces import BundleSource, ObjectStore
from orchestrator.records.base import BlobRef
from orchestrator.records.ids import TrialId
from orchestrator.report.following import TrialLog
from orchestrator.report.show import find_row, is_by_product
from orchestrator.report.state import fetch_blob, read_state
from orchestrator.view.runs import Fresh
from orchestrator.view.texts import PIECE_CHARS
from orchestrator.view.transcript import Transcript

CHILDREN = 2
"""States that are compared at one time."""
MOST_STATES = 8
"""Comparisons that are kept: a state never changes."""
MOST_TRANSCRIPTS = 6


def row_of(data: RunData, trial: str) -> TrialRow:
    """Return the row of a trial by its name. Raises SpecError."""
    try:
        return find_row(data, TrialId.parse(trial))
    except ValueError as error:
        raise SpecError(str(error)) from error


def trial_json(data: RunData, row: TrialRow) -> dict[str, Any]:
    """Return what the records say of a trial."""
    task, agent = row.task, row.agent
    return {
        "run": data.manifest.run,
        "trial": str(row.trial),
        "result": row.result,
        "graded_as": row.graded_as,
        "task": {
            "id": task.id,
            "tier": task.tier,
            "kind": task.kind,
            "expect": task.expect,
            "image": task.environment.image,
        },
        "agent": {"name": agent.name, "type": agent.agent.type, "models": dict(agent.agent.models)},
        "budgets": None if data.manifest.is_imported else task.budgets.model_dump(mode="json"),
        "outcome": row.outcome.model_dump(mode="json", exclude={"output", "trajectory", "state", "writer_id"})
        if row.outcome
        else None,
        "spent_nano_usd": row.spent_nano_usd if row.launches else None,
        "failed_checks": list(row.failed_checks),
        "verdict": row.verdict.model_dump(mode="json") if row.verdict else None,
        "verdicts": [
            {"grader_digest": one.grader_digest, "grader_version": one.grader_version, "result": one.result}
            for one in row.verdicts
        ],
        "launches": [
            {
                "launch": one.launch,
                "class": one.outcome_class,
                "ending": one.termination_reason,
                "cause": one.cause,
                "error": one.error,
                "cost_nano_usd": one.usage.cost_nano_usd,
                "working_s": one.working_s,
                "trajectory": one.trajectory is not None,
            }
            for one in row.launches
        ],
        "has": {
            "trajectory": bool(row.outcome and row.outcome.trajectory),
            "state": bool(row.outcome and row.outcome.state),
            "output": row.outcome.output.size if row.outcome and row.outcome.output else None,
        },
    }


class _Live:
    """The trajectory of a launch that runs, as far as the store has it."""

    def __init__(self, store: ObjectStore, run: str, trial: TrialId) -> None:
        self._log = TrialLog(store, run, trial)
        self._name = f"trajectory of {trial}"
        self._launch: int | None = None
        self._file: IO[bytes] | None = None
        self._transcript: Transcript | None = None

    async def read(self) -> Transcript:
        look = await self._log.look()
        if look.launch is None:
            msg = f"{self._name}, so far"
            raise NotFoundError(msg)
        if self._file is None or self._transcript is None or look.launch != self._launch:
            self._launch, self._file = look.launch, tempfile.TemporaryFile()  # noqa: SIM115 - the transcript keeps it
            self._transcript = Transcript(self._file, self._name)
        for event in look.events:
            self._file.write(orjson.dumps({**event.data, **event.model_dump(exclude={"data"})}) + b"\n")
        self._file.flush()
        return await read_on(self._transcript)


class Files:
    """The blobs of trials, fetched when somebody looks at them."""

    def __init__(self, store: ObjectStore, bundles: BundleSource) -> None:
        self._store = store
        self._bundles = bundles
        self._children = asyncio.Semaphore(CHILDREN)
        self._states: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._transcripts: OrderedDict[str, Transcript] = OrderedDict()
        self._live: OrderedDict[tuple[str, str], Fresh[Transcript]] = OrderedDict()
        self._opening = asyncio.Lock()

    async def changes(self, row: TrialRow) -> dict[str, Any]:
        """Return what the final state of a trial has that its task's files do not. Raises StoreError."""
        state = row.outcome.state if row.outcome else None
        if state is None:
            return {"counts": None, "paths": [], "problem": "no state was frozen"}
        key = f"{state.sha256} {row.task.bundles.sandbox}"
        async with self._children:
            if key not in self._states:
                self._states[key] = await self._compare(row)
                while len(self._states) > MOST_STATES:
                    self._states.popitem(last=False)
            return self._states[key]

    async def _compare(self, row: TrialRow) -> dict[str, Any]:
        answers, problem = await read_state(self._store, self._bundles, row)
        head = next((answer for answer in answers if "counts" in answer), {})
        return {
            "counts": head.get("counts"),
            "paths": [answer | {"by_product": is_by_product(answer)} for answer in answers if "path" in answer],
            "problem": problem,
        }

    async def output(self, row: TrialRow, begin: int | None) -> dict[str, Any]:
        """Return a piece of the last output of the agent's process, from a byte on; its end, where none is named.

        Raises NotFoundError when it left none, and StoreError.
        """
        blob = row.outcome.output if row.outcome else None
        if blob is None:
            msg = f"output of {row.trial}"
            raise NotFoundError(msg)
        begin = max(0, blob.size - PIECE_CHARS) if begin is None else begin
        with tempfile.TemporaryFile() as file:
            await fetch_blob(self._store, blob, file)
            file.seek(begin)
            data = file.read(PIECE_CHARS)
        return {
            "text": data.decode("utf-8", "backslashreplace"),
            "from": begin,
            "bytes": blob.size,
            "end": begin + len(data),
        }

    async def live(self, run: str, row: TrialRow) -> Transcript:
        """Return what the store has of a trial that is not at its end. Raises NotFoundError when that is nothing, and StoreError."""
        key = run, str(row.trial)
        if key not in self._live:
            self._live[key] = Fresh(_Live(self._store, run, row.trial).read)
        self._live.move_to_end(key)
        while len(self._live) > MOST_TRANSCRIPTS:
            self._live.popitem(last=False)
        return await self._live[key].get()

    async def transcript(self, row: TrialRow, launch: int | None) -> Transcript:
        """Return the trajectory of a launch that has ended; of the winner, where none is named. Raises NotFoundError and StoreError."""
        outcome = row.outcome if launch is None else next((one for one in row.launches if one.launch == launch), None)
        blob = outcome.trajectory if outcome else None
        if blob is None:
            msg = f"trajectory of {row.trial}"
            raise NotFoundError(msg)
        async with self._opening:
            if blob.key not in self._transcripts:
                self._transcripts[blob.key] = await self._fetch(blob)
            self._transcripts.move_to_end(blob.key)
            while len(self._transcripts) > MOST_TRANSCRIPTS:
                # Not closed here: another request may be reading it. Its file goes with the last of them.
                self._transcripts.popitem(last=False)
            return self._transcripts[blob.key]

    async def _fetch(self, blob: BlobRef) -> Transcript:
        file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - the transcript keeps it
        await fetch_blob(self._store, blob, file)
        file.flush()
        return await read_on(Transcript(file, blob.key))


async def read_on(transcript: Transcript) -> Transcript:
    """Read what is new in a file, beside the loop. Raises StoreError."""
    await asyncio.to_thread(transcript.read_on)
    return transcript
