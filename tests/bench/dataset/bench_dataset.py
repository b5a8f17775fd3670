"""A million trials: write, commit, merge, group by task with exact percentiles, filter one run; beside bare DuckDB on one file.

Usage: bench_dataset.py [RUNS] [TRIALS]. The default, 100 runs of 10,000 trials, is a million rows.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import duckdb
from synthetic import trials_of_run

from orchestrator.dataset.columns import TABLES
from orchestrator.dataset.commits import Change, RunEntry, append, load_snapshot
from orchestrator.dataset.compact import compact
from orchestrator.dataset.parts import encode, put
from orchestrator.dataset.query import query
from orchestrator.storage.file import FileStore

ROUNDS = 7
GROUP = (
    "SELECT task, count(passed), avg(passed::INT), quantile_cont(working_s, [0.5, 0.95]), "
    "quantile_cont(cost_nano_usd, [0.5, 0.95]) FROM trials GROUP BY task ORDER BY task"
)
ONE_RUN = "SELECT task, count(passed), avg(working_s) FROM trials WHERE run = 'run-00007' GROUP BY task ORDER BY task"


async def write(store: FileStore, number: int, trials: int) -> tuple[float, float]:
    """Add one run; returns seconds of encoding and of committing."""
    rows = trials_of_run(number, trials)
    began = time.perf_counter()
    encoded = encode(TABLES["trials"], rows, "synthetic", "2026-03")
    written = time.perf_counter()
    await put(store, encoded)

    async def change(_: object) -> Change:
        runs = {encoded.part.runs[0]: RunEntry(fingerprint=encoded.part.sha256, records=1)}
        return Change(type="run", added=[encoded.part], runs=runs)

    await append(store, change)
    return written - began, time.perf_counter() - written


async def ask(store: FileStore, folder: Path) -> dict[str, float]:
    found = {}
    for name, sql in (("group", GROUP), ("one_run", ONE_RUN)):
        times = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            await query(store, sql, folder)
            times.append(time.perf_counter() - began)
        found[name] = statistics.median(times)
    return found


def bare(path: Path) -> dict[str, float]:
    """The same questions to DuckDB alone, connection and view included."""
    found = {}
    for name, sql in (("group", GROUP), ("one_run", ONE_RUN)):
        times = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            with duckdb.connect(":memory:") as connection:
                connection.execute(f"CREATE VIEW trials AS SELECT * FROM read_parquet('{path}')")
                connection.execute(sql).fetchall()
            times.append(time.perf_counter() - began)
        found[name] = statistics.median(times)
    return found


async def main(runs: int, trials: int) -> dict[str, object]:
    """Measure everything once."""
    with tempfile.TemporaryDirectory(prefix="orch-bench-") as name:
        folder = Path(name)
        store = FileStore(folder / "store")
        times = [await write(store, number, trials) for number in range(runs)]
        many = await ask(store, folder)
        began = time.perf_counter()
        await compact(store, folder, due=2)
        merged = time.perf_counter() - began
        few = await ask(store, folder)
        (part,) = (await load_snapshot(store)).of_table("trials")
        alone = bare(store.path_of(part.key))
        return {
            "rows": part.rows,
            "bytes_of_the_merged_part": part.size,
            "encode_s": round(sum(encoding for encoding, _ in times), 2),
            "commit_s": round(sum(committing for _, committing in times), 2),
            "merge_s": round(merged, 2),
            f"query_{runs}_parts_s": {key: round(value, 4) for key, value in many.items()},
            "query_merged_s": {key: round(value, 4) for key, value in few.items()},
            "bare_duckdb_s": {key: round(value, 4) for key, value in alone.items()},
            "ratio_merged": {key: round(few[key] / alone[key], 2) for key in alone},
            f"ratio_{runs}_parts": {key: round(many[key] / alone[key], 2) for key in alone},
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*map(int, sys.argv[1:] or ["100", "10000"]))), indent=2))
