"""Retention: what goes, what stays, and what is seen in between."""

from __future__ import annotations

import asyncio
import functools
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from gc_world import DAY, Killed, KilledError, Meddling, age, as_seen, gc, lay, task
from run_builder import GRADER, agent, manifest
from s3_world import Seaweed, session_of

from orchestrator.dataset.rows import RunData, collect
from orchestrator.driver.gc import runs
from orchestrator.driver.gc.runs import Criteria, Known, choose
from orchestrator.driver.lease import Timing, drive_run, take_run
from orchestrator.errors import RefusedError, SpecError, StoreError
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.storage.file import FileStore
from orchestrator.storage.open import open_store
from orchestrator.storage.removals import announce, removed_run, watch
from orchestrator.storage.s3 import S3Store
from orchestrator.storage.s3_place import parse_place

NOW = datetime(2026, 3, 20, tzinfo=UTC)
ALL = Criteria(keep=0)


def sync(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


@pytest.fixture
def store(memory: Path) -> FileStore:
    return FileStore(memory / "store")


def known(*runs: tuple[str, int, str]) -> dict[str, Known]:
    """Runs by id, day of March and suite."""
    made = {}
    for run, day, suite in runs:
        one = manifest([task("t")], [agent("a")], run=run, created_at=datetime(2026, 3, day, tzinfo=UTC))
        made[run] = Known(run=run, data=b"", manifest=one.model_copy(update={"suite": suite}))
    return made


RUNS = known(("a1", 1, "a"), ("a5", 5, "a"), ("a9", 9, "a"), ("b2", 2, "b"), ("b19", 19, "b"))


@pytest.mark.parametrize(
    ("criteria", "gone"),
    [
        (Criteria(older_than_s=12 * DAY), ["a1", "b2", "a5"]),
        (Criteria(older_than_s=30 * DAY), []),
        (Criteria(keep=1), ["a1", "b2", "a5"]),
        (Criteria(keep=2), ["a1"]),
        (Criteria(keep=0), ["a1", "b2", "a5", "a9", "b19"]),
        (Criteria(keep=2, older_than_s=10 * DAY), ["a1"]),
        (Criteria(keep=1, older_than_s=16 * DAY), ["a1", "b2"]),
        (Criteria(runs=("b19", "a1")), ["a1", "b19"]),
        (Criteria(runs=()), []),
    ],
)
def test_runs_are_chosen_by_age_and_by_number_in_their_suite(criteria: Criteria, gone: list[str]) -> None:
    assert choose(RUNS, criteria, NOW) == gone


def test_what_names_no_run_is_refused_and_an_unreadable_manifest_stays() -> None:
    with pytest.raises(SpecError, match="--older-than 30d, --keep N or --run RUN"):
        choose(RUNS, Criteria(), NOW)
    with pytest.raises(SpecError, match="no run 'c1'"):
        choose(RUNS, Criteria(runs=("c1", "a1")), NOW)
    newer = {"n": Known(run="n", data=b'{"schema_version":9}', manifest=None)}
    assert choose(newer, Criteria(keep=0), NOW) == []
    assert choose(newer, Criteria(runs=("n",)), NOW) == ["n"]


async def _two_runs(store: FileStore) -> tuple[RunData, RunData]:
    await lay(store, "gone", tasks=("common", "lonely"), day=1)
    await lay(store, "kept", tasks=("common",), day=2)
    age(store.root, 2 * DAY)
    return await collect(store, "gone"), await collect(store, "kept")


async def _all_is_removed(store: FileStore, kept: RunData) -> None:
    """Assert that nothing of the run that went is left, and all of the other one."""
    assert await as_seen(store, "kept") == kept
    assert await as_seen(store, "gone") == "run gone was removed by gc"
    left = [key for key in await store.list("") if not key.startswith("removed/")]
    assert [key for key in left if "gone" in key] == []
    assert [key for key in left if "lost-launch" in key] == []
    digest = task("common").digest.removeprefix("sha256:")
    assert sorted(await store.list("bundles/")) == [
        f"bundles/{name}/{digest}" for name in ("graders", "sandbox", "world")
    ]
    assert await store.exists(keys.removal("runs", "gone", "done"))


@pytest.mark.parametrize("when", ["before", "half", "after"])
@sync
async def test_killed_at_any_change_a_run_is_whole_or_gone_and_the_next_gc_finishes(memory: Path, when: str) -> None:
    criteria, changes = Criteria(keep=1), 0
    for at in range(100):
        store = FileStore(memory / f"{at}")
        gone, kept = await _two_runs(store)
        killed = Killed(store, at, when)
        try:
            await gc(killed, criteria)
        except KilledError:
            changes += 1
        else:
            await _all_is_removed(store, kept)
            break
        assert await as_seen(store, "kept") == kept
        assert await as_seen(store, "gone") in (gone, "run gone was removed by gc")
        await gc(store, Criteria(older_than_s=10_000 * DAY))  # whatever its criteria are
        if await as_seen(store, "gone") == gone:
            assert await removed_run(store, "gone") is None
            await gc(store, criteria)
        await _all_is_removed(store, kept)
    assert changes >= 10


@sync
async def test_a_dry_run_counts_what_a_run_then_does_and_changes_nothing(store: FileStore) -> None:
    await _two_runs(store)
    before = await store.list("")
    would = await gc(store, Criteria(keep=1), dry=True)
    assert await store.list("") == before
    did = await gc(store, Criteria(keep=1))
    assert did == would
    ((run,), kept, garbage) = did
    assert (run.run, run.suite, run.why, run.finished, kept) == (
        "gone",
        "starter",
        "not among the newest 1 of its suite",
        False,
        [],
    )
    assert len(before) == run.amount.objects + sum(garbage.values()) + len(
        [k for k in await store.list("") if "removed/" not in k]
    )
    assert garbage["bundles"] == 3
    assert garbage["blobs"] == 1
    assert await gc(store, Criteria(keep=1)) == ([], [], dict.fromkeys(garbage, 0))


@sync
async def test_what_is_young_or_not_ended_stays(store: FileStore) -> None:
    await lay(store, "young")
    await lay(store, "begun", ended=False)
    age(store.root, 2 * DAY, "begun")
    await store.put_blob(keys.bundle("sandbox", "0" * 64), b"of a submission without a manifest yet")
    await store.create(keys.probe("p", "0"), b"x")
    before = await store.list("")
    _, _, garbage = await gc(store, Criteria(keep=9))
    assert set(garbage.values()) == {0}
    assert await store.list("") == before
    age(store.root, 2 * DAY)
    _, _, garbage = await gc(store, Criteria(keep=9))
    assert {what: count for what, count in garbage.items() if count} == {
        "blobs": 1,
        "bundles": 1,
        "probes": 1,
    }
    assert [key for key in await store.list("blobs/begun/") if "lost" in key]


@sync
async def test_segments_go_once_their_run_has_ended(store: FileStore) -> None:
    """By then the whole trajectories are there, or their launches are lost."""
    trial = TrialId("common", "a", 1)
    for run, ended in (("over", True), ("begun", False)):
        await lay(store, run, ended=ended)
        for number in range(3):
            await store.create(keys.segment(run, trial, 1, 1, number, number), b"x")
    age(store.root, 2 * DAY)
    whole = await as_seen(store, "over")
    await gc(store, Criteria(keep=9))
    assert await store.list(keys.segments("over", trial)) == []
    assert len(await store.list(keys.segments("begun", trial))) == 3
    assert await as_seen(store, "over") == whole


@sync
async def test_a_run_without_outcomes_is_left_alone_while_it_is_young(store: FileStore) -> None:
    made = await lay(store, "r")
    await store.delete(await store.list("outcomes/r/"))
    _, (kept,), _ = await gc(store, Criteria(runs=("r",)))
    assert (kept.run, kept.why.partition(" is only ")[0]) == ("r", "it")
    assert await removed_run(store, "r") is None
    age(store.root, 2 * DAY)
    (removed,), _, _ = await gc(store, Criteria(runs=("r",)))
    assert removed.run == made.run


@sync
async def test_a_run_that_is_driven_stays_until_its_driver_lets_go(store: FileStore) -> None:
    await lay(store, "r", ended=False)
    age(store.root, 2 * DAY)
    async with drive_run(store, "r", "driver"):
        removed, (kept,), _ = await gc(store, ALL)
        assert removed == []
        assert "is driven by process" in kept.why
        assert "orchestrate stop r" in kept.why
    (gone,), kept_now, _ = await gc(store, ALL)
    assert (gone.run, kept_now) == ("r", [])
    assert await store.list("leases/") == []


@sync
async def test_a_driver_is_heard_though_a_clock_makes_its_signs_of_life_look_old(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lay(store, "r", ended=False)
    quick = Timing(term_s=0.6)
    monkeypatch.setattr(runs, "Timing", lambda: quick)
    now = time.time
    async with drive_run(store, "r", "driver", timing=quick):
        monkeypatch.setattr(time, "time", lambda: now() + 30 * DAY)
        removed, (kept,), _ = await gc(store, ALL)
    assert removed == []
    assert "is driven by process" in kept.why
    assert await removed_run(store, "r") is None
    (gone,), _, _ = await gc(store, ALL)
    assert gone.run == "r"


@sync
async def test_a_file_that_is_being_written_stays_whatever_grace_was_asked_for(store: FileStore) -> None:
    await lay(store, "r")

    async def pieces():
        yield b"x" * 2_000_000
        await gc(store, Criteria(runs=("r",), grace_s=0))
        yield b"y"

    assert (await store.put_blob("blobs/other/b", pieces())).size == 2_000_001


@sync
async def test_a_driver_and_a_gc_at_one_moment_never_both_go_on(store: FileStore) -> None:
    await lay(store, "r", ended=False)
    age(store.root, 2 * DAY)

    async def claim() -> None:
        await take_run(store, "r", "driver", Timing(), lambda holder: None)

    # The driver claims after gc has looked and before gc says what it does: gc lets the run be.
    removed, (kept,), _ = await gc(Meddling(store, "removed/runs/r", claim), ALL)
    assert removed == []
    assert "is driven by" in kept.why
    assert await as_seen(store, "r") == await collect(store, "r")
    # The next driver comes after gc has said it: the driver lets go.
    for key in await store.list("leases/"):
        await store.delete([key])
    with pytest.raises(RefusedError, match="was removed by gc"):
        await claim()
    (gone,), _, _ = await gc(store, Criteria(keep=9))
    assert (gone.run, gone.finished) == ("r", True)


@sync
async def test_a_submission_at_one_moment_with_gc_keeps_or_restores_its_bundles(store: FileStore) -> None:
    await lay(store, "old", tasks=("shared",))
    age(store.root, 2 * DAY)
    await gc(store, Criteria(runs=("old",), grace_s=3 * DAY))
    key = keys.bundle("sandbox", task("shared").digest)
    assert await store.exists(key)

    async def submit() -> None:  # it finds the bundles there and publishes none
        await lay(store, "new", tasks=("shared",))

    # The manifest comes after gc has read all and before its notice: gc reads again.
    await gc(Meddling(store, "removed/objects/", submit), Criteria(keep=9))
    assert isinstance(await as_seen(store, "new"), RunData)
    # The manifest comes after the notice: the writer hears of it, waits for its end, and looks again.
    watching = await watch(store)
    assert not await watching.disturbed()
    notice = await announce(store, "gc", "test")
    told: list[str] = []
    waiting = asyncio.create_task(watching.disturbed(told.append))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await notice.done(0, 0)
    assert await waiting
    assert len(told) == 1
    assert not await (await watch(store)).disturbed()


@sync
async def test_a_reader_never_sees_a_run_with_a_part_missing(store: FileStore) -> None:
    await lay(store, "r")

    class Slow(FileStore):
        reads = 0

        async def get(self, key: str) -> bytes:
            data = await super().get(key)
            self.reads += 1
            if self.reads == at:
                await store.delete(
                    [keys.manifest("r"), *await store.list("outcomes/r/"), *await store.list("grades/r/")]
                )
            return data

    for at in range(1, 9):
        slow = Slow(store.root)
        cause = None
        try:
            await collect(slow, "r")
        except StoreError as error:
            cause = error.cause
        if slow.reads < at:
            break
        assert cause == "run_removed"
        await store.delete(await store.list(""))
        await lay(store, "r")
    assert at > 3


@sync
async def test_what_a_sleeping_driver_wrote_about_a_removed_run_goes_too(store: FileStore) -> None:
    await lay(store, "r")
    age(store.root, 2 * DAY)
    await gc(store, ALL)
    await store.create(keys.outcome("r", TrialId("t", "a", 1), 3), b"{}")
    await store.create(keys.verdict("r", TrialId("t", "a", 1), GRADER), b"{}")
    assert await as_seen(store, "r") == "run r was removed by gc"
    await gc(store, Criteria(keep=9))
    assert {key.split("/")[0] for key in await store.list("")} == {"removed"}


@sync
async def test_signs_of_life_go_but_for_the_last_of_each_driver(store: FileStore) -> None:
    await lay(store, "r")
    for _ in range(2):
        async with drive_run(store, "r", "driver") as lease:
            for _ in range(3):
                await lease.beat()
    before = await store.list("leases/")
    await gc(store, Criteria(keep=9))
    assert await store.list("leases/") == before
    age(store.root, 2 * DAY)
    _, _, garbage = await gc(store, Criteria(keep=9))
    after = await store.list("leases/")
    assert garbage["beats"] == len(before) - len(after) > 0
    assert [key for key in after if "/beats/" not in key] == [key for key in before if "/beats/" not in key]
    assert len([key for key in after if "/beats/" in key]) == 2


@sync
async def test_random_runs_keep_what_any_record_names(memory: Path) -> None:
    """Whatever is chosen, what stays is whole, twice in a row."""
    for seed in range(5):
        rng = random.Random(seed)
        store = FileStore(memory / str(seed))
        names = [f"r{number}" for number in range(5)]
        for number, run in enumerate(names):
            tasks = rng.sample(["x", "y", "z"], rng.randint(1, 3))
            await lay(store, run, tasks=sorted(tasks), ended=rng.random() < 0.7, day=number + 1)
        age(store.root, 2 * DAY)
        data = {run: await collect(store, run) for run in names}
        gone = set(rng.sample(names, rng.randint(0, 5)))
        for _ in range(2):
            await gc(store, Criteria(runs=tuple(gone)))
            for run in names:
                assert await as_seen(store, run) == ("run " + run + " was removed by gc" if run in gone else data[run])
            gone = set()
            names = [run for run in names if await store.exists(keys.manifest(run))]


@sync
async def test_the_rights_of_the_identity_gc_are_enough_and_no_other_s(seaweed: Seaweed, s3_url: str) -> None:
    place = parse_place(seaweed.shared_url)
    run = f"gc-{random.randbytes(4).hex()}"
    everybody = open_store(seaweed.shared_url)  # as the administrator, whose credentials ``s3_url`` set
    await lay(everybody, run)
    before = await collect(everybody, run)
    with pytest.raises(StoreError) as caught:
        await gc(S3Store(place, session=session_of("reader")), Criteria(runs=(run,), grace_s=DAY))
    assert caught.value.cause == "store_denied"
    assert await collect(everybody, run) == before
    (removed,), kept, _ = await gc(S3Store(place, session=session_of("gc")), Criteria(runs=(run,), grace_s=DAY))
    assert (removed.run, kept) == (run, [])
    assert {key.split("/")[0] for key in await everybody.list("") if run in key} == {"removed"}


def test_an_age_is_told_in_words() -> None:
    from orchestrator.driver.gc.runs import spell_age

    told = [
        spell_age(timedelta(**each).total_seconds())
        for each in ({"days": 30}, {"hours": 36}, {"minutes": 5}, {"seconds": 0})
    ]
    assert told == ["30 d", "1.5 d", "5 min", "0 s"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_gc_that_is_really_killed_leaves_a_whole_run_or_none(memory: Path) -> None:
    rng, interrupted = random.Random(4), 0
    for number in range(25):
        store = FileStore(memory / str(number))
        gone, kept = asyncio.run(_two_runs(store))
        command = [
            sys.executable,
            "-m",
            "orchestrator",
            "gc",
            "--keep",
            "1",
            "--yes",
            "--store",
            f"file://{store.root}",
        ]
        process = subprocess.Popen(command, cwd=memory, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        notice = store.path_of(keys.removal("runs", "gone", "begun"))
        while process.poll() is None and not notice.exists():
            time.sleep(0.0005)
        time.sleep(rng.uniform(0, 0.01))
        process.kill()
        process.communicate()
        seen = asyncio.run(as_seen(store, "gone"))
        assert seen in (gone, "run gone was removed by gc")
        assert asyncio.run(as_seen(store, "kept")) == kept
        interrupted += not store.path_of(keys.removal("runs", "gone", "done")).exists()
        asyncio.run(gc(store, Criteria(keep=1)))
        asyncio.run(_all_is_removed(store, kept))
        shutil.rmtree(store.root)
    assert interrupted > 0
