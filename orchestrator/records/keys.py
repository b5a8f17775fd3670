"""The only module that spells keys of the object store."""

from __future__ import annotations

from typing import Literal
from urllib.parse import quote, unquote

from orchestrator.records.ids import TrialId

Audience = Literal["sandbox", "world", "graders", "solutions"]


def _part(text: str) -> str:
    return quote(text, safe="@:+=,._-")


def bundle(audience: Audience, digest: str) -> str:
    """Key of a bundle: a tar, named by its tree digest."""
    return f"bundles/{audience}/{digest.removeprefix('sha256:')}"


def manifest(run: str) -> str:
    """Key of the run manifest, create-only."""
    return f"runs/{_part(run)}/manifest.json"


RUNS = "runs/"
"""Prefix of all run manifests."""


def run_of_manifest(key: str) -> str | None:
    """Return the run of a manifest key, or None for any other key."""
    parts = key.split("/")
    return unquote(parts[1]) if len(parts) == 3 and parts[0] == "runs" and parts[2] == "manifest.json" else None


def record(run: str, trial: TrialId, launch: int, name: str) -> str:
    """Key of a record that gateway or relay write about a launch: ``seal.json``, ``state.json``."""
    return f"records/{_part(run)}/{_part(str(trial))}/{launch}/{name}"


def outcome(run: str, trial: TrialId, launch: int) -> str:
    """Key of a launch's outcome marker; its presence commits the launch."""
    return f"outcomes/{_part(run)}/{_part(str(trial))}/{launch}.json"


def outcomes(run: str, trial: TrialId | None = None) -> str:
    """Prefix of all outcome markers of a run, or of one trial."""
    return f"outcomes/{_part(run)}/" + (f"{_part(str(trial))}/" if trial else "")


def parse_outcome(key: str) -> tuple[str, TrialId, int]:
    """Return run, trial and launch of an outcome key. Raises ValueError for any other key."""
    first, run, trial, name = key.split("/")
    if first != "outcomes" or not name.endswith(".json"):
        msg = f"{key!r} is not the key of an outcome"
        raise ValueError(msg)
    return unquote(run), TrialId.parse(unquote(trial)), int(name.removesuffix(".json"))


def blob(run: str, unique: str) -> str:
    """Key of a blob; ``unique`` is never used twice."""
    return f"blobs/{_part(run)}/{unique}"


def verdict(run: str, trial: TrialId, grader_digest: str) -> str:
    """Key of a verdict, write-once."""
    return f"grades/{_part(run)}/{_part(str(trial))}/{grader_digest.removeprefix('sha256:')}.json"


def verdicts(run: str, trial: TrialId | None = None) -> str:
    """Prefix of all verdicts of a run, or of one trial."""
    return f"grades/{_part(run)}/" + (f"{_part(str(trial))}/" if trial else "")


def parse_verdict(key: str) -> TrialId | None:
    """Return the trial of a verdict key, or None for anything else under ``grades/``."""
    parts = key.split("/")
    return (
        TrialId.parse(unquote(parts[2]))
        if len(parts) == 4 and parts[0] == "grades" and parts[3].endswith(".json")
        else None
    )


def grading_try(run: str, trial: TrialId, unique: str) -> str:
    """Key of the note about a passing failure of the grader."""
    return f"grades/{_part(run)}/{_part(str(trial))}/tries/{unique}.json"


def probe(unique: str, name: str) -> str:
    """Key of a marker that a probe of the store leaves."""
    return f"probes/{unique}/{name}"
