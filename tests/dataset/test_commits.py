"""The dataset under repetition, crashes and races: every run once, whole, or not at all."""

import asyncio
import itertools
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dataset_world import CrashError, Dying, Remote, Silent, ask, commit, content, event_reader, lay_run

from orchestrator.dataset.commits import CHECKPOINT_EVERY, Change, Part, append, load_snapshot
from orchestrator.dataset.compact import compact
from orchestrator.dataset.write import rebuild
from orchestrator.errors import StoreError
from orchestrator.records import keys
from orchestrator.storage.file import FileStore

TRIALS = 18  # of lay_run: 3 tasks x 2 agents x 3 samples

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))]
"""One of them by default, all with ``make test-slow``."""


def test_a_run_is_there_once_however_often_it_is_committed(folder):
    async def story():
        store = FileStore(folder / "store")
        await lay_run(store, "r1")
        first = await commit(store, "r1", folder)
        again = await commit(store, "r1", folder)
        assert (first.added, again.added) == (True, False)
        assert first.rows == again.rows
        assert await ask(store, "SELECT count(*), count(DISTINCT trial_id) FROM trials", folder) == [(TRIALS, TRIALS)]
        assert await ask(store, "SELECT run FROM runs", folder) == [("r1",)]
        assert len(await store.list("datasets/_commits/")) == 1

    asyncio.run(story())


def test_more_records_replace_the_rows_and_fewer_do_not(folder):
    async def story():
        partial, whole = FileStore(folder / "partial"), FileStore(folder / "whole")
        await lay_run(whole, "r1", 3)
        await commit(whole, "r1", folder)
        wanted = await content(whole, folder)
        for key in await whole.list(""):
            if not key.startswith(("outcomes/", "grades/", "datasets/")):
                assert await partial.create(key, await whole.get(key))
        await commit(partial, "r1", folder)
        assert ("missing",) in await ask(partial, "SELECT DISTINCT result FROM trials", folder)
        await _copy_records(whole, partial)
        assert (await commit(partial, "r1", folder)).added
        assert await content(partial, folder) == wanted
        # A process that read the run before the rest was known comes last: it changes nothing.
        assert not (await commit(_Blind(partial), "r1", folder)).added
        assert await content(partial, folder) == wanted

    asyncio.run(story())


async def _copy_records(source, target):
    for key in await source.list(""):
        if key.startswith(("outcomes/", "grades/")):
            assert await target.create(key, await source.get(key))


class _Blind(Remote):
    """A reader that saw no outcome and no verdict."""

    def __init__(self, store):
        super().__init__(store)
        self.list = self._list

    async def _list(self, prefix):
        return [] if prefix.startswith(("outcomes/", "grades/")) else await self._store.list(prefix)


def test_a_lost_reply_after_the_commit_doubles_nothing(folder):
    async def story():
        store = FileStore(folder / "store")
        await lay_run(store, "r1")
        silent = Silent(store)
        with pytest.raises(StoreError, match="connection was reset"):
            await commit(silent, "r1", folder)
        assert not (await commit(silent, "r1", folder)).added
        assert await ask(store, "SELECT count(*) FROM trials", folder) == [(TRIALS,)]

    asyncio.run(story())


def test_a_commit_that_finds_itself_has_won(folder):
    class Twice(Remote):
        """A store that repeats a request whose reply it lost, and finds the key taken: by itself."""

        def __init__(self, store):
            super().__init__(store)
            self.create = self._create

        async def _create(self, key, data):
            await self._store.create(key, data)
            return await self._store.create(key, data)

    async def story():
        store = FileStore(folder / "store")
        await lay_run(store, "r1")
        assert (await commit(Twice(store), "r1", folder)).added
        assert len(await store.list("datasets/_commits/")) == 1

    asyncio.run(story())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_crash_at_any_step_leaves_all_or_nothing_and_the_next_try_makes_it_whole(folder, seed):
    async def story():
        await lay_run(FileStore(folder / "records"), "r1", seed, tasks=1, samples=2, complete=False)
        shutil.copytree(folder / "records", folder / "clean")
        clean = FileStore(folder / "clean")
        counted = Dying(clean, -1, after=False)
        await commit(counted, "r1", folder)
        wanted = await load_snapshot(clean)
        assert {"list _commits", "put trials", "create _commits"} <= set(counted.steps)
        for at, after in itertools.product(range(len(counted.steps)), (False, True)):
            shutil.copytree(folder / "records", folder / f"{at}{after}")
            store = FileStore(folder / f"{at}{after}")
            with pytest.raises(CrashError):
                await commit(Dying(store, at, after), "r1", folder)
            done = (await load_snapshot(store)).number
            assert done == (counted.steps[at] == "create _commits" and after)
            assert (await commit(store, "r1", folder)).added != bool(done)
            found = await load_snapshot(store)
            assert (found.parts, found.runs) == (wanted.parts, wanted.runs)
        assert await content(store, folder) == await content(clean, folder)

    asyncio.run(story())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_crash_of_the_compactor_loses_no_row(folder, seed):
    async def story():
        store = FileStore(folder / "store")
        for number in range(3):
            await lay_run(store, f"r{number}", seed + number, tasks=1, samples=1)
            await commit(store, f"r{number}", folder)
        wanted = await content(store, folder)
        died_at = set()
        for at in itertools.count():
            try:
                assert await compact(Dying(store, at, after=bool(seed % 2)), folder, due=3) is not None
                break
            except CrashError as crash:
                died_at.add(str(crash))
                assert await content(store, folder) == wanted
                if (await load_snapshot(store)).number == 4:
                    break
        assert {"list _commits", "put trials"} <= died_at
        assert await compact(store, folder, due=3) is None
        assert await content(store, folder) == wanted
        snapshot = await load_snapshot(store)
        assert [part.runs for part in snapshot.of_table("trials")] == [("r0", "r1", "r2")]

    asyncio.run(story())


def test_eight_writers_at_one_time_lose_and_double_nothing(folder):
    async def story():
        root = folder / "store"
        for run in (*(f"w{writer}" for writer in range(8)), "shared"):
            await lay_run(FileStore(root), run, tasks=1, samples=1)

        async def write(writer):
            store = FileStore(root)
            await commit(store, f"w{writer}", folder)
            shared = await commit(store, "shared", folder)
            if writer % 4 == 0:
                await compact(store, folder, due=3)
            return shared.added

        assert sum(await asyncio.gather(*map(write, range(8)))) == 1
        store = FileStore(root)
        assert await ask(store, "SELECT count(*), count(DISTINCT run) FROM runs", folder) == [(9, 9)]
        assert await ask(store, "SELECT count(*), count(DISTINCT trial_id) FROM trials", folder) == [(18, 18)]
        assert len(await store.list("datasets/_commits/")) == (await load_snapshot(store)).number

    asyncio.run(story())


@pytest.mark.slow
def test_processes_killed_at_random_moments_lose_and_double_nothing(folder):
    runs = [f"r{number}" for number in range(8)]
    clean, store = FileStore(folder / "clean"), FileStore(folder / "store")
    for number, run in enumerate(runs):
        asyncio.run(lay_run(clean, run, number, tasks=2, samples=2))
    shutil.copytree(folder / "clean", folder / "store")
    for run in runs:
        asyncio.run(commit(clean, run, folder))
    rng = random.Random(7)
    child = Path(__file__).parent / "committing_child.py"
    killed = 0
    for _ in range(200):
        words = [sys.executable, str(child), str(folder / "store"), str(folder / "cache"), *runs]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            try:
                process.wait(timeout=rng.uniform(1, 4))
            except subprocess.TimeoutExpired:
                process.kill()
                killed += 1
            if process.wait() == 0:
                break
    assert killed > 0
    assert asyncio.run(content(store, folder)) == asyncio.run(content(clean, folder))


def _part(number):
    sha = f"{number:064x}"
    key = keys.dataset_part("runs", "s", "2026-03", sha)
    facts = {"schema_version": 1, "schema_digest": "d", "runs": (f"r{number}",)}
    return Part(key=key, table="runs", suite="s", month="2026-03", rows=1, size=1, sha256=sha, **facts)


def test_checkpoints_make_no_difference_but_to_the_reading(folder):
    async def story():
        store = FileStore(folder)
        count = 2 * CHECKPOINT_EVERY + 5
        for number in range(1, count + 1):

            async def change(_, number=number):
                return Change(type="run", added=[_part(number)])

            await append(store, change)
        points = await store.list(keys.DATASET_CHECKPOINTS)
        assert [keys.dataset_number(key) for key in points] == [CHECKPOINT_EVERY, 2 * CHECKPOINT_EVERY]
        with_them = await load_snapshot(store)
        assert (with_them.number, len(with_them.parts)) == (count, count)
        # The second checkpoint was never written, because its writer died: the first and more commits give the same.
        (folder / points[1]).unlink()
        assert await load_snapshot(store) == with_them
        (folder / points[0]).unlink()
        assert await load_snapshot(store) == with_them

    asyncio.run(story())


def test_a_commit_that_was_taken_away_is_missed_and_not_guessed(folder):
    async def story():
        store = FileStore(folder / "store")
        for number in range(3):
            await lay_run(store, f"r{number}", tasks=1, samples=1)
            await commit(store, f"r{number}", folder)
        (folder / "store" / keys.dataset_commit(2)).unlink()
        await load_snapshot(store)

    with pytest.raises(StoreError, match=r"_commits/0+2\.json is missing although there are later commits"):
        asyncio.run(story())


def test_rebuild_from_the_records_gives_identical_parts_and_rows(folder):
    async def story():
        store = FileStore(folder / "store")
        await lay_run(store, "r1", 5)
        await commit(store, "r1", folder)
        before, rows = await load_snapshot(store), await content(store, folder)
        other = FileStore(folder / "other")
        for key in await store.list(""):
            if not key.startswith("datasets/"):
                assert await other.create(key, await store.get(key))
        done = await rebuild(other, "r1", event_reader(other), folder)
        assert done.added
        assert (await load_snapshot(other)).parts == before.parts
        assert await content(other, folder) == rows
        again = await rebuild(other, "r1", event_reader(other), folder)
        assert (again.added, again.restored) == (False, ())

    asyncio.run(story())


def test_rebuild_replaces_a_run_inside_a_merged_part_and_leaves_the_others(folder):
    async def story():
        store = FileStore(folder / "store")
        for number in range(3):
            await lay_run(store, f"r{number}", number, tasks=1, samples=2, complete=False)
            await commit(store, f"r{number}", folder)
        await compact(store, folder, due=2)
        others = await ask(store, "SELECT * FROM trials WHERE run <> 'r1' ORDER BY ALL", folder)
        late = keys.grading_try("r1", next(iter(await _trials(store))), "x")
        assert await store.create(late, b"{}")  # no verdict: nothing changes
        assert not (await commit(store, "r1", folder)).added
        await _another_verdict(store, "r1")
        assert (await commit(store, "r1", folder)).added
        assert await ask(store, "SELECT * FROM trials WHERE run <> 'r1' ORDER BY ALL", folder) == others
        graders = await ask(store, "SELECT DISTINCT grader_digest FROM grades WHERE run = 'r1'", folder)
        assert ("sha256:" + "77" * 32,) in graders
        assert await ask(store, "SELECT count(*), count(DISTINCT run) FROM runs", folder) == [(3, 3)]

    asyncio.run(story())


async def _trials(store):
    return [keys.parse_outcome(key)[1] for key in await store.list(keys.outcomes("r1"))]


async def _another_verdict(store, run):
    from orchestrator.records.verdict import Verdict

    key = next(key for key in await store.list(keys.verdicts(run)) if keys.parse_verdict(key))
    found = Verdict.from_bytes(await store.get(key))
    other = found.model_copy(update={"grader_digest": "sha256:" + "77" * 32})
    assert await store.create(keys.verdict(run, keys.parse_verdict(key), other.grader_digest), other.to_bytes())


def test_a_lost_part_is_named_and_rebuild_puts_it_back(folder):
    async def story():
        store = FileStore(folder / "store")
        await lay_run(store, "r1")
        await commit(store, "r1", folder)
        rows = await content(store, folder)
        (part,) = (await load_snapshot(store)).of_table("trials")
        (folder / "store" / part.key).unlink()
        with pytest.raises(StoreError, match="orchestrate rebuild r1"):
            await ask(store, "SELECT count(*) FROM trials", folder)
        done = await rebuild(store, "r1", event_reader(store), folder)
        assert done.restored == (part.key,)
        assert await content(store, folder) == rows

    asyncio.run(story())


def test_a_lost_merged_part_is_dropped_and_the_other_runs_are_named(folder):
    async def story():
        store = FileStore(folder / "store")
        for number in range(2):
            await lay_run(store, f"r{number}", number, tasks=1, samples=1)
            await commit(store, f"r{number}", folder)
        rows = await content(store, folder)
        await compact(store, folder, due=2)
        (part,) = (await load_snapshot(store)).of_table("grades")
        (folder / "store" / part.key).unlink()
        done = await rebuild(store, "r0", event_reader(store), folder)
        assert done.also_lost == ("r1",)
        assert await ask(store, "SELECT DISTINCT run FROM grades", folder) == [("r0",)]
        # A plain commit of the other run is enough: its rows are known to be gone.
        assert (await commit(store, "r1", folder)).added
        assert await content(store, folder) == rows

    asyncio.run(story())


def test_a_damaged_part_is_never_taken_for_the_rows(folder):
    async def story():
        store = FileStore(folder / "store")
        await lay_run(store, "r1")
        await commit(store, "r1", folder)
        (part,) = (await load_snapshot(store)).of_table("trials")
        path = folder / "store" / part.key
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.chmod(0o644)
        path.write_bytes(data)
        with pytest.raises(StoreError, match="has other bytes than its name says"):
            await rebuild(store, "r1", event_reader(store), folder)
        with pytest.raises(StoreError, match="has other bytes than were committed"):
            await ask(Remote(store), "SELECT count(*) FROM trials", folder)

    asyncio.run(story())


def test_a_run_whose_trajectories_are_gone_keeps_the_steps_it_has(folder):
    async def story():
        store = FileStore(folder / "store")
        await lay_run(store, "r1")
        await commit(store, "r1", folder)
        steps = await ask(store, "SELECT count(*) FROM steps", folder)
        keys_ = await ask(store, "SELECT trajectory_key FROM launches WHERE trajectory_key IS NOT NULL", folder)
        (folder / "store" / keys_[0][0]).unlink()
        with pytest.raises(StoreError, match="would lose their steps"):
            await rebuild(store, "r1", event_reader(store), folder)
        assert await ask(store, "SELECT count(*) FROM steps", folder) == steps
        # In a new dataset there is nothing to lose: the rest is added and what is gone is named.
        fresh = FileStore(folder / "fresh")
        for key in await store.list(""):
            if not key.startswith("datasets/"):
                assert await fresh.create(key, await store.get(key))
        done = await commit(fresh, "r1", folder)
        assert len(done.gone) == 1
        assert (await ask(fresh, "SELECT count(*) FROM steps", folder)) < steps

    asyncio.run(story())


def test_a_store_that_is_not_a_folder_is_read_through_a_cache_once(folder):
    async def story():
        store = FileStore(folder / "store")
        await lay_run(store, "r1")
        await commit(store, "r1", folder)
        remote = Remote(store)
        assert await content(remote, folder / "cache") == await content(store, folder)
        assert len(remote.fetched) == len(set(remote.fetched)) == 6
        # Merging and replacing read through the same cache.
        await lay_run(store, "r2", 1)
        await commit(remote, "r2", folder / "cache")
        assert await compact(remote, folder / "cache", due=2) is not None
        assert await ask(remote, "SELECT count(*) FROM trials", folder / "cache") == [(2 * TRIALS,)]

    asyncio.run(story())
