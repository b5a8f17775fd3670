"""Parts of older and newer versions beside ours."""

import asyncio
from dataclasses import replace

import pyarrow as pa
import pytest
from dataset_world import ask, commit, content, lay_run

from orchestrator.dataset.columns import RESULTS, TABLES
from orchestrator.dataset.commits import Change, append, load_snapshot
from orchestrator.dataset.compact import compact
from orchestrator.dataset.files import PartFiles
from orchestrator.dataset.parts import decode, encode, put
from orchestrator.dataset.query import query
from orchestrator.dataset.schema import Column
from orchestrator.errors import StoreError
from orchestrator.storage.file import FileStore

TRIALS = TABLES["trials"]
OLDER = replace(TRIALS, columns=tuple(c for c in TRIALS.columns if c.name not in {"confidence", "ended_as"}))
NEWER = replace(
    TRIALS,
    version=TRIALS.version + 1,
    columns=(
        *(replace(c, words=(*RESULTS, "deferred", "vetoed")) if c.name == "result" else c for c in TRIALS.columns),
        Column("mood", "text", "What nobody here knows.", nullable=True, since=TRIALS.version + 1),
    ),
)


async def swap_trials(store, folder, run, table, change):
    """Replace the trials of a run by what another version of the program would have written."""
    (part,) = [part for part in (await load_snapshot(store)).of_table("trials") if part.runs == (run,)]
    rows = decode(part, await PartFiles(store, folder).path(part))
    other = encode(table, change(rows), part.suite, part.month)
    await put(store, other)

    async def propose(_):
        return Change(type="run", added=[other.part], removed=[part.key])

    await append(store, propose)


async def two_runs(folder):
    store = FileStore(folder / "store")
    for number in range(2):
        await lay_run(store, f"r{number}", number)
        await commit(store, f"r{number}", folder)
    return store


def older(rows):
    return rows.drop_columns(["confidence", "ended_as"])


def newer(rows):
    words = ["deferred", "vetoed", *rows["result"].to_pylist()[2:]]
    rows = rows.set_column(rows.column_names.index("result"), rows.field("result"), pa.array(words, pa.string()))
    return rows.append_column(pa.field("mood", pa.string()), pa.array(["glad"] * rows.num_rows))


def test_columns_that_older_parts_do_not_have_are_null(folder):
    async def story():
        store = await two_runs(folder)
        await swap_trials(store, folder, "r0", OLDER, older)
        sql = "SELECT run, count(confidence) > 0, count(ended_as) > 0, count(*) FROM trials GROUP BY 1 ORDER BY 1"
        assert await ask(store, sql, folder) == [("r0", False, False, 18), ("r1", True, False, 18)]
        # Merging brings old rows into the present schema, with the same nulls.
        rows = await content(store, folder)
        assert await compact(store, folder, due=2) is not None
        assert await content(store, folder) == rows
        assert {part.schema_digest for part in (await load_snapshot(store)).of_table("trials")} == {TRIALS.digest()}

    asyncio.run(story())


def test_words_and_columns_of_newer_parts_are_unknown_counted_and_kept(folder):
    async def story():
        store = await two_runs(folder)
        await swap_trials(store, folder, "r0", NEWER, newer)
        found = await query(store, "SELECT count(*) FROM trials WHERE result = 'unknown'", folder)
        assert found.rows == [(2,)]
        assert found.notes == ("trials.result: 2 values are of a newer version and shown as 'unknown'",)
        described = await ask(store, "SELECT column_name FROM (DESCRIBE trials)", folder)
        assert [name for (name,) in described] == [column.name for column in TRIALS.columns]
        # A program that does not know the columns merges nothing that has them, and loses none.
        before = {part.key for part in (await load_snapshot(store)).of_table("trials")}
        await compact(store, folder, due=2)
        snapshot = await load_snapshot(store)
        assert {part.key for part in snapshot.of_table("trials")} == before
        assert len(snapshot.of_table("grades")) == 1

    asyncio.run(story())


def test_the_rows_of_one_run_in_a_newer_merged_part_are_not_touched(folder):
    async def story():
        store = await two_runs(folder)
        await compact(store, folder, due=2)
        (part,) = (await load_snapshot(store)).of_table("trials")
        rows = decode(part, await PartFiles(store, folder).path(part))
        other = encode(NEWER, newer(rows), part.suite, part.month)
        await put(store, other)

        async def propose(_):
            return Change(type="run", added=[other.part], removed=[part.key])

        await append(store, propose)
        await lay_more(store)
        await commit(store, "r0", folder)

    async def lay_more(store):
        from test_commits import _another_verdict

        await _another_verdict(store, "r0")

    with pytest.raises(StoreError, match="written by a newer version"):
        asyncio.run(story())
