"""Rows written ahead by drivers: they save work and change no row, whatever becomes of them."""

import asyncio
import hashlib
import io
import random

import pyarrow as pa
import pytest
from dataset_world import content, event_reader, lay_run
from pyarrow import parquet
from run_builder import outcome, verdict

from orchestrator.dataset.commits import load_snapshot
from orchestrator.dataset.rows import collect
from orchestrator.dataset.stages import Stage
from orchestrator.dataset.staging import MOST_FAILURES, Stager, staging
from orchestrator.dataset.write import commit_run, rebuild
from orchestrator.errors import StoreError
from orchestrator.interfaces import TrialEnd
from orchestrator.records import keys
from orchestrator.storage.file import FileStore

RUN = "r1"
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 30))]


class Counted:
    """A store that counts reads by the first part of the key, and in which writing may fail."""

    def __init__(self, store, failing=lambda key: False):
        self._store, self._failing = store, failing
        self.read = []
        self.exists, self.list, self.create, self.path_of = store.exists, store.list, store.create, store.path_of

    async def put_blob(self, key, data):
        if self._failing(key):
            raise StoreError(f"{key} was refused", cause="store_denied")
        return await self._store.put_blob(key, data)

    async def get(self, key):
        self.read.append(key.split("/")[0])
        return await self._store.get(key)

    async def stream(self, key):
        async for block in self._store.stream(key):
            yield block


async def ends_of(store):
    """Return what the driver heard of each trial that ended: the last launch, and one verdict."""
    return [
        TrialEnd(trial=row.trial, outcome=row.launches[-1], verdict=row.verdicts[0] if row.verdicts else None)
        for row in (await collect(store, RUN)).rows
        if row.launches
    ]


async def stage(store, ends, writer="w", every=5):
    async with staging(store, (await collect(store, RUN)).manifest, writer, event_reader(store), every) as stager:
        for end in ends:
            stager.ended(end)
            await asyncio.sleep(0)
    return stager


async def laid(folder, seed=0, **more):
    store = FileStore(folder / "store")
    await lay_run(store, RUN, seed, **more)
    return store


async def commit(store, folder):
    return await commit_run(store, RUN, event_reader(store), folder / "cache")


async def same_as_rebuilt(store, folder):
    """Assert that the rows are, byte for byte, those that are made without stages."""
    before = await load_snapshot(store)
    wanted = await content(store, folder / "cache")
    assert not (await rebuild(store, RUN, event_reader(store), folder / "cache")).added
    assert (await load_snapshot(store)).parts == before.parts
    other = FileStore(folder / "without")
    for key in await store.list(""):
        if not key.startswith(("stages/", "datasets/")):
            await other.create(key, await store.get(key))
    await commit(other, folder)
    assert (await load_snapshot(other)).parts == before.parts
    assert await content(other, folder / "cache") == wanted


def markers_of(listed):
    return [key for key in listed if keys.is_stage_marker(key)]


def test_staged_rows_are_taken_and_equal_and_no_trajectory_is_read_again(folder):
    async def story():
        store = await laid(folder)
        rows = (await collect(store, RUN)).rows
        stager = await stage(store, await ends_of(store))
        assert stager.problem is None
        counted = Counted(store)
        done = await commit(counted, folder)
        assert done.ignored == ()
        several = {row.trial for row in rows if len(row.verdicts) > 1}
        assert 0 < done.staged == len([row for row in rows if row.launches and row.trial not in several])
        assert counted.read.count("blobs") == len(several)
        await same_as_rebuilt(store, folder)

    asyncio.run(story())


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_becomes_of_stages_the_rows_are_those_of_the_records(folder, seed):
    async def story():
        rng = random.Random(seed)
        store = await laid(folder, seed, complete=seed % 2 == 0)
        ends = await ends_of(store)
        for writer in range(rng.randint(1, 3)):  # several writers, some with the same trials
            await stage(store, rng.sample(ends, rng.randint(1, len(ends))), f"w{writer}", rng.randint(1, 6))
        for key in await store.list(keys.stages(RUN)):
            fate = rng.random()
            path = store.path_of(key)
            if fate < 0.1:
                path.unlink()
            elif fate < 0.2:
                path.chmod(0o600)
                path.write_bytes(path.read_bytes()[: rng.randint(0, path.stat().st_size)])
            elif fate < 0.3:
                path.chmod(0o600)
                spoiled = bytearray(path.read_bytes())
                spoiled[rng.randrange(len(spoiled))] ^= 1 << rng.randrange(8)
                path.write_bytes(spoiled)
        if rng.random() < 0.5:  # regraded later
            end = rng.choice([end for end in ends if end.verdict])
            late = verdict(RUN, end.trial, "failed", launch=end.outcome.launch, grader="sha256:" + "77" * 32)
            await store.create(keys.verdict(RUN, end.trial, late.grader_digest), late.to_bytes())
        await commit(store, folder)
        await same_as_rebuilt(store, folder)

    asyncio.run(story())


def test_a_trial_that_was_relaunched_or_graded_after_its_stage_is_made_anew_without_a_word(folder):
    async def story():
        store = await laid(folder, 3)
        ends = [end for end in await ends_of(store) if end.verdict is not None]
        first, second = ends[:2]
        # Staged when the grader had not answered, and when only an earlier launch had ended.
        lost = outcome(RUN, second.trial, launch=1, reason="infra_lost", cause="sandbox", error="x")
        stale = [
            TrialEnd(trial=first.trial, outcome=first.outcome, verdict=None),
            TrialEnd(trial=second.trial, outcome=lost, verdict=None),
        ]
        await stage(store, stale)
        done = await commit(store, folder)
        assert (done.staged, done.ignored) == (0, ())
        await same_as_rebuilt(store, folder)

    asyncio.run(story())


def test_the_same_trial_of_two_writers_counts_once(folder):
    async def story():
        store = await laid(folder)
        ends = [end for end in await ends_of(store) if end.outcome.trajectory]
        await stage(store, ends, "one")
        await stage(store, [*ends, ends[0]], "two", every=3)
        done = await commit(store, folder)
        assert 0 < done.staged <= len(ends)
        assert done.ignored == ()
        await same_as_rebuilt(store, folder)

    asyncio.run(story())


async def forge(store, key, writer, table, change):
    """Put a stage into the store that is the real one but for the rows of one table, with digests that fit."""
    real = Stage.from_bytes(await store.get(key))
    parts = []
    for part in real.parts:
        data = await store.get(part.key)
        if part.table == table:
            buffer = io.BytesIO()
            parquet.write_table(change(parquet.read_table(io.BytesIO(data))), buffer)
            data = buffer.getvalue()
        name = keys.stage_file(RUN, writer, 1, part.table)
        await store.put_blob(name, data)
        digest = hashlib.sha256(data).hexdigest()
        parts.append(part.model_copy(update={"key": name, "sha256": digest, "size": len(data)}))
    made = real.model_copy(update={"writer": writer, "parts": tuple(parts)})
    assert await store.create(keys.stage_marker(RUN, writer, 1), made.to_bytes())


async def one_stage(store):
    await stage(store, await ends_of(store), every=100)
    (key,) = markers_of(await store.list(keys.stages(RUN)))
    return key


def column(name, value):
    def change(found):
        at = found.schema.get_field_index(name)
        kind = found.schema.field(at).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        return found.set_column(at, name, pa.array([value] * found.num_rows, kind))

    return change


FORGED = [
    ("trials", column("result", "passed"), "rows of trials are not those"),
    ("grades", column("passed", True), "rows of grades are not those"),
    ("launches", column("cost_nano_usd", 0), "rows of launches are not those"),
    ("launches", lambda rows: rows.slice(1), "rows of launches are not those"),
    ("steps", column("run", "another"), "of another run"),
    ("steps", column("launch", 9), "without a trajectory"),
    ("steps", column("type", "victory"), "'victory' is none of"),
    ("steps", column("seq", 1), "a step twice"),
    ("steps", column("source", None), "steps.source"),
    ("steps", lambda rows: rows.drop_columns(["trial_id"]), "steps.trial_id"),
    ("steps", lambda rows: rows.rename_columns([f"{name}_" for name in rows.column_names]), "missing"),
]


def test_stages_that_the_records_contradict_are_ignored_and_said(folder):
    async def story():
        store = await laid(folder)
        key = await one_stage(store)
        for number, (table, change, _) in enumerate(FORGED):
            await forge(store, key, f"forger-{number:02d}", table, change)
        store.path_of(key).unlink()
        done = await commit(store, folder)
        assert done.staged == 0
        assert len(done.ignored) == len(FORGED)
        for said, (_, _, why) in zip(done.ignored, FORGED, strict=True):
            assert why in said
        await same_as_rebuilt(store, folder)

    asyncio.run(story())


def test_what_a_step_says_is_put_right_by_rebuild(folder):
    async def story():
        store = await laid(folder)
        key = await one_stage(store)
        await forge(store, key, "a-forger", "steps", column("tool", "made up"))
        store.path_of(key).unlink()
        assert (await commit(store, folder)).staged > 0
        assert (await rebuild(store, RUN, event_reader(store), folder / "cache")).added
        await same_as_rebuilt(store, folder)

    asyncio.run(story())


def test_a_stage_of_another_run_is_ignored(folder):
    async def story():
        store = await laid(folder)
        key = await one_stage(store)
        await store.create(keys.stage_marker(RUN, "copier", 4), await store.get(key))
        done = await commit(store, folder)
        assert done.staged > 0
        assert "marker of another stage" in done.ignored[0]
        await same_as_rebuilt(store, folder)

    asyncio.run(story())


def test_what_cannot_be_written_is_said_once_and_given_up(folder):
    async def story():
        store = await laid(folder)
        tries = []

        def failing(key):
            if key.startswith("stages/"):
                tries.append(key)
            return key.startswith("stages/")

        stager = await stage(Counted(store, failing), await ends_of(store), every=1)
        assert "was refused" in stager.problem
        assert len(tries) == MOST_FAILURES
        done = await commit(store, folder)
        assert (done.staged, done.ignored) == (0, ())

    asyncio.run(story())


def test_a_writer_that_dies_leaves_no_half_stage(folder):
    async def story():
        store = await laid(folder)
        ends = await ends_of(store)
        manifest = (await collect(store, RUN)).manifest
        for last in range(1, 6):
            left = iter(range(last))

            def dies(key, left=left):
                return key.startswith("stages/") and next(left, None) is None

            stager = Stager(Counted(store, dies), manifest, f"w{last}", event_reader(store), 4)
            for end in ends[:4]:
                stager.ended(end)
            await stager.finish()
            await stager.abandon()
        assert len(markers_of(await store.list(keys.stages(RUN)))) == 2  # four files fit into four and five writes
        done = await commit(store, folder)
        assert done.ignored == ()
        await same_as_rebuilt(store, folder)

    asyncio.run(story())
