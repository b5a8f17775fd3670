"""The only module that spells keys of the object store."""

from __future__ import annotations

from typing import Literal, get_args
from urllib.parse import quote, unquote

from orchestrator.records.ids import TrialId

Audience = Literal["sandbox", "world", "graders", "solutions"]


def _part(text: str) -> str:
    return quote(text, safe="@:+=,._-")


def bundle(audience: Audience, digest: str) -> str:
    """Key of a bundle: a tar, named by its tree digest."""
    return f"bundles/{audience}/{digest.removeprefix('sha256:')}"


BUNDLES = tuple(f"bundles/{audience}/" for audience in get_args(Audience))
"""Prefixes of all bundles: one for each audience, since nobody may list them all at once."""


def parse_bundle(key: str) -> tuple[Audience, str]:
    """Return audience and tree digest, in hex, of a bundle's key. Raises ValueError for any other key."""
    parts = key.split("/")
    for audience in get_args(Audience):
        if len(parts) == 3 and parts[:2] == ["bundles", audience]:
            return audience, parts[2]
    msg = f"{key!r} is not the key of a bundle"
    raise ValueError(msg)


def manifest(run: str) -> str:
    """Key of the run manifest, create-only."""
    return f"{run_files(run)}manifest.json"


RUNS = "runs/"
"""Prefix of all run manifests."""


def run_files(run: str) -> str:
    """Prefix of a run's manifest and of what people want of it."""
    return f"runs/{_part(run)}/"


def run_of_manifest(key: str) -> str | None:
    """Return the run of a manifest key, or None for any other key."""
    parts = key.split("/")
    return unquote(parts[1]) if len(parts) == 3 and parts[0] == "runs" and parts[2] == "manifest.json" else None


def record(run: str, trial: TrialId, launch: int, epoch: int, name: str) -> str:
    """Key of a record that gateway or relay write about a launch: ``seal.json``, ``state.json``, ``delivered.json``.

    A launch that died with its driver, before its outcome, is made again under the next epoch: what was noted of the first
    one must not be taken for the second one's. A launch in a pod outlives its driver and keeps the epoch of its registration.
    """
    return f"{launch_records(run, trial, launch)}{epoch}/{name}"


def launch_records(run: str, trial: TrialId, launch: int) -> str:
    """Prefix of all records of a launch, under whatever epoch."""
    return f"{trial_records(run, trial)}{launch}/"


def trial_records(run: str, trial: TrialId) -> str:
    """Prefix of all records of a trial's launches."""
    return f"{records(run)}{_part(str(trial))}/"


def parse_record(key: str) -> tuple[int, str]:
    """Return epoch and name of a launch's record. Raises ValueError for any other key."""
    _, epoch, name = parse_launch_record(key)
    return epoch, name


def parse_launch_record(key: str) -> tuple[int, int, str]:
    """Return launch, epoch and name of a launch's record. Raises ValueError for any other key."""
    parts = key.split("/")
    if len(parts) != 6 or parts[0] != "records":
        msg = f"{key!r} is not the key of a record of a launch"
        raise ValueError(msg)
    return int(parts[3]), int(parts[4]), parts[5]


def records(run: str) -> str:
    """Prefix of all records of a run."""
    return f"records/{_part(run)}/"


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
    return f"{blobs(run)}{unique}"


def blobs(run: str) -> str:
    """Prefix of all blobs of a run."""
    return f"blobs/{_part(run)}/"


def segment(run: str, trial: TrialId, launch: int, epoch: int, number: int, offset: int) -> str:
    """Key of a range of a trajectory's bytes that was stored while it was written, create-only. Segments count from 0 without gaps;
    ``offset`` is where the range begins.
    """
    return f"{segments(run, trial)}{launch}/{epoch}/{number:06d}-{offset:015d}"


def segments(run: str, trial: TrialId) -> str:
    """Prefix of all segments of a trial."""
    return f"{blobs(run)}segments/{_part(str(trial))}/"


def parse_segment(key: str) -> tuple[int, int, int, int]:
    """Return launch, epoch, number and offset of a segment. Raises ValueError for any other key."""
    parts = key.split("/")
    if len(parts) != 7 or (parts[0], parts[2]) != ("blobs", "segments"):
        msg = f"{key!r} is not the key of a segment"
        raise ValueError(msg)
    number, _, offset = parts[6].partition("-")
    return int(parts[4]), int(parts[5]), int(number), int(offset)


def leases(run: str) -> str:
    """Prefix of everything that says who drives a run."""
    return f"leases/{_part(run)}/"


def claim(run: str, epoch: int) -> str:
    """Key of a driver's claim, create-only; epochs count from 1 without gaps."""
    return f"{claims(run)}{epoch:06d}.json"


def claims(run: str) -> str:
    """Prefix of the claims of a run."""
    return f"{leases(run)}claims/"


def release(run: str, epoch: int) -> str:
    """Key of the marker by which a driver lets go."""
    return f"{leases(run)}releases/{epoch:06d}.json"


def beat(run: str, epoch: int, number: int) -> str:
    """Key of a sign of life; they count from 1 without gaps."""
    return f"{beats(run, epoch)}{number:09d}.json"


def beats(run: str, epoch: int) -> str:
    """Prefix of the signs of life of a claim."""
    return f"{leases(run)}beats/{epoch:06d}/"


def reservation(run: str, trial: TrialId, launch: int, epoch: int) -> str:
    """Key of what was set aside for a launch, in a run with a spending limit."""
    return f"{reservations(run)}{_part(str(trial))}/{launch}/{epoch}.json"


def reservations(run: str) -> str:
    """Prefix of everything that was set aside in a run."""
    return f"{leases(run)}reserved/"


def wish(run: str, number: int) -> str:
    """Key of what a person wants of a run, create-only; numbers count from 1 without gaps."""
    return f"{wishes(run)}{number:06d}.json"


def wishes(run: str) -> str:
    """Prefix of what people want of a run."""
    return f"{run_files(run)}wishes/"


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


PROBES = "probes/"
"""Prefix of what probes of the store leave."""

Removed = Literal["runs", "objects"]
"""What is removed: a run, or objects that several runs may share."""
Step = Literal["begun", "done"]


def removal(kind: Removed, name: str, step: Step) -> str:
    """Key of a notice about a removal, create-only and never deleted; ``name`` is a run, or the removal's own name."""
    return f"removed/{kind}/{_part(name)}/{step}.json"


def removals(kind: Removed) -> str:
    """Prefix of all notices about removals of that kind."""
    return f"removed/{kind}/"


def parse_removal(key: str) -> tuple[str, Step]:
    """Return the name and step of a notice about a removal. Raises ValueError for any other key."""
    parts = key.split("/")
    if len(parts) != 4 or parts[0] != "removed" or parts[3] not in {"begun.json", "done.json"}:
        msg = f"{key!r} is not the key of a notice about a removal"
        raise ValueError(msg)
    return unquote(parts[2]), "begun" if parts[3] == "begun.json" else "done"


def stages(run: str) -> str:
    """Prefix of the rows of a run that its drivers wrote before its end."""
    return f"stages/{_part(run)}/"


def stage_marker(run: str, writer: str, number: int) -> str:
    """Key of what names the files of a stage, create-only; the stages of a writer count from 1. It sorts, and so goes, before its files."""
    return f"{stages(run)}{_part(writer)}/{number:06d}/_stage.json"


def is_stage_marker(key: str) -> bool:
    """Return whether a key is that of a stage's marker."""
    return key.startswith("stages/") and key.endswith("/_stage.json")


def stage_file(run: str, writer: str, number: int, table: str) -> str:
    """Key of a stage's rows of one table: a Parquet file."""
    return f"{stages(run)}{_part(writer)}/{number:06d}/{table}.parquet"


DATASETS = "datasets/"
"""Prefix of everything that the dataset is made of."""


def dataset_part(table: str, suite: str, month: str, sha256: str) -> str:
    """Key of a part of a table: a Parquet file, named by the digest of its bytes; ``month`` is ``YYYY-MM``."""
    return f"datasets/{table}/suite={_part(suite)}/month={month}/part-{sha256}.parquet"


def is_dataset_part(key: str) -> bool:
    """Return whether a key is that of a part of a table."""
    folder, _, name = key.rpartition("/")
    return folder.startswith(DATASETS) and name.startswith("part-") and name.endswith(".parquet")


DATASET_COMMITS = "datasets/_commits/"
"""Prefix of the commits of the dataset."""


def dataset_commit(number: int) -> str:
    """Key of a commit of the dataset, create-only. Commits are numbered from 1 without gaps."""
    return f"{DATASET_COMMITS}{number:020d}.json"


def dataset_commits(hundred: int) -> str:
    """Prefix of the commits ``100 * hundred`` to ``100 * hundred + 99``: at most 100 keys."""
    return f"{DATASET_COMMITS}{hundred:018d}"


def dataset_checkpoint(number: int) -> str:
    """Key of the fold of all commits up to this one, create-only: whoever writes it writes the same."""
    return f"{DATASET_CHECKPOINTS}{number:020d}.json"


DATASET_CHECKPOINTS = "datasets/_checkpoints/"
"""Prefix of the checkpoints of the dataset."""


def dataset_number(key: str) -> int:
    """Return the number in the key of a commit or checkpoint. Raises ValueError for any other key."""
    folder, _, name = key.rpartition("/")
    if folder not in {"datasets/_commits", "datasets/_checkpoints"}:
        msg = f"{key!r} is not the key of a commit or checkpoint"
        raise ValueError(msg)
    return int(name.removesuffix(".json"))
