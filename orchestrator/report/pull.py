"""Copy what a trial left into a folder, so that a person can look at it with their own tools, safely."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from orchestrator.dataset.rows import RunData, TrialRow
from orchestrator.errors import SpecError
from orchestrator.interfaces import BundleSource, ObjectStore
from orchestrator.records.base import Record
from orchestrator.records.ids import TrialId
from orchestrator.report.show import find_row
from orchestrator.report.state import fetch_blob, read_state
from orchestrator.report.table import say
from orchestrator.report.text import clean, plural


async def pull_trial(
    store: ObjectStore,
    bundles: BundleSource,
    data: RunData,
    trial: TrialId,
    folder: Path,
    console: Console | None = None,
) -> list[str]:
    """Write a trial's frozen files, trajectory, output, outcome and verdict into a new folder and return what was written.

    The folder may exist if it is empty. No link and no special file is ever made: they are listed in ``not-written.txt``. Files
    get mode 0644, or 0755 where they could be executed. Raises SpecError for a folder that cannot be used, and StoreError.
    """
    row = find_row(data, trial)
    _prepare(folder)
    written = []
    for name, record in (("outcome.json", row.outcome), ("verdict.json", row.verdict)):
        if record is not None:
            _write(folder / name, _pretty(record))
            written.append(name)
    written += await _blobs(store, row, folder)
    answers, problem = await read_state(store, bundles, row, folder)
    written += _state(folder, answers, problem)
    if console:
        say(console, f"{trial} of run {clean(data.manifest.run)} into {clean(str(folder))}", "bold")
        for line in written:
            say(console, f"  {line}")
        say(console, "  these files are an agent's: look at them, do not run them")
    return written


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if folder.is_symlink() or any(folder.iterdir()):
            msg = f"{clean(str(folder))} is not empty; name a new folder, nothing is ever overwritten"
            raise SpecError(msg)
    except OSError as error:
        msg = f"{clean(str(folder))} cannot be used as a folder: {error.strerror}"
        raise SpecError(msg) from error


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)


def _pretty(record: Record) -> bytes:
    # Escaped to ASCII: these texts are an agent's and may be looked at on a terminal.
    return (json.dumps(record.model_dump(mode="json"), indent=2) + "\n").encode()


async def _blobs(store: ObjectStore, row: TrialRow, folder: Path) -> list[str]:
    written: list[str] = []
    outcome = row.outcome
    if outcome is None:
        return written
    world = outcome.state.world if outcome.state else None
    for name, blob in (("trajectory.jsonl", outcome.trajectory), ("output.txt", outcome.output), ("world.db", world)):
        if blob is not None:
            with (folder / name).open("xb") as file:
                await fetch_blob(store, blob, file)
            written.append(f"{name}  {blob.size:,} bytes")
    return written


def _state(folder: Path, answers: list[dict[str, Any]], problem: str | None) -> list[str]:
    lines = []
    for answer in answers:
        if "link" in answer:
            target = f" -> {clean(str(answer['target']))}" if answer.get("target") else ""
            lines.append(f"{clean(str(answer['link']))}: {clean(str(answer.get('type')))}{target}")
        elif "skipped" in answer:
            lines.append(f"{clean(str(answer['skipped']))}: {clean(str(answer.get('reason')))}")
    total = next((answer for answer in answers if "files" in answer), {})
    written = [
        f"workspace/ and output/  {plural(int(total.get('files', 0)), 'file')}, {int(total.get('bytes', 0)):,} bytes"
    ]
    if lines:
        _write(folder / "not-written.txt", ("\n".join(lines) + "\n").encode())
        written.append(f"not-written.txt  {plural(len(lines), 'link')}, special files or unsafe names, listed only")
    if problem:
        written.append(f"the state is not complete: {clean(problem)}")
    return written
