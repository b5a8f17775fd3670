"""A run's rows as files of other tools."""

import asyncio
import csv
import importlib.util
import json

import pyarrow.parquet as pq
import pytest
from dataset_world import ask, commit, lay_run

from orchestrator.dataset.columns import TABLES
from orchestrator.dataset.compact import compact
from orchestrator.dataset.export import check_format, export_run
from orchestrator.errors import RefusedError, SpecError
from orchestrator.storage.file import FileStore


async def world(folder):
    store = FileStore(folder / "store")
    for number in range(2):
        await lay_run(store, f"r{number}", number)
        await commit(store, f"r{number}", folder)
    await compact(store, folder, due=2)
    return store


def test_parquet_has_the_rows_of_the_run_alone_with_their_schema(folder):
    async def story():
        store = await world(folder)
        counts = await export_run(store, "r1", "parquet", folder / "out", folder)
        assert sorted(path.name for path in (folder / "out").iterdir()) == sorted(f"{name}.parquet" for name in TABLES)
        for name, table in TABLES.items():
            found = pq.read_table(folder / "out" / f"{name}.parquet")
            assert set(found["run"].to_pylist()) == {"r1"}
            assert found.schema.names == table.schema().names
            assert found.schema.metadata[b"orchestrate.schema_digest"].decode() == table.digest()
            assert await ask(store, f"SELECT count(*) FROM {name} WHERE run = 'r1'", folder) == [(counts[name],)]
            assert found.num_rows == counts[name] > 0

    asyncio.run(story())


def test_csv_has_lists_as_json_bytes_as_hex_and_null_as_nothing(folder):
    async def story():
        store = await world(folder)
        await export_run(store, "r0", "csv", folder / "out", folder)
        with (folder / "out/trials.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        sql = "SELECT lower(hex(trial_id)), task, cost_nano_usd, findings FROM trials WHERE run = 'r0' ORDER BY task, agent, sample"
        wanted = await ask(store, sql, folder)
        found = [
            (row["trial_id"], row["task"], int(row["cost_nano_usd"] or -1), json.loads(row["findings"])) for row in rows
        ]
        assert found == [(key, task, -1 if cost is None else cost, findings) for key, task, cost, findings in wanted]

    asyncio.run(story())


def test_nothing_is_overwritten_and_an_unknown_run_has_no_rows(folder):
    async def story():
        store = await world(folder)
        (folder / "out").mkdir()
        (folder / "out/mine").write_text("mine")
        with pytest.raises(SpecError, match="is not empty"):
            await export_run(store, "r0", "csv", folder / "out", folder)
        with pytest.raises(SpecError, match="orchestrate rebuild other"):
            await export_run(store, "other", "csv", folder / "new", folder)
        assert not (folder / "new").exists()

    asyncio.run(story())


def test_formats_are_known_by_name():
    assert check_format("csv") == "csv"
    with pytest.raises(SpecError, match="no format 'xlsx'; there are parquet, csv, delta"):
        check_format("xlsx")


@pytest.mark.skipif(importlib.util.find_spec("deltalake") is not None, reason="deltalake is installed")
def test_delta_is_refused_without_its_package():
    with pytest.raises(RefusedError, match=r"deltalake>=1.6,<2.*or export parquet"):
        check_format("delta")


@pytest.mark.skipif(importlib.util.find_spec("deltalake") is None, reason="deltalake is not installed")
def test_delta_has_the_rows(folder):
    from deltalake import DeltaTable

    async def story():
        store = await world(folder)
        counts = await export_run(store, "r0", check_format("delta"), folder / "out", folder)
        for name in TABLES:
            table = DeltaTable(str(folder / "out" / name))
            assert table.to_pyarrow_table().num_rows == counts[name]

    asyncio.run(story())
