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

ROUNDS = 9
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


async def ask(store: FileStore, folder: Path, file: Path | None = None) -> dict[str, dict[str, float]]:
    """Ask each question some times, in turn with bare DuckDB on one file, so that both see the same noise. Seconds, medians."""
    found = {}
    for name, sql in (("group", GROUP), ("one_run", ONE_RUN)):
        ours, alone = [], []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            await query(store, sql, folder)
            ours.append(time.perf_counter() - began)
            if file is not None:
                alone.append(bare(file, sql))
        found[name] = {"query_s": round(statistics.median(ours), 4)}
        if alone:
            found[name] |= {
                "bare_duckdb_s": round(statistics.median(alone), 4),
                "ratio": round(statistics.median(ours) / statistics.median(alone), 2),
                "ratio_of_best": round(min(ours) / min(alone), 2),
            }
    return found


def bare(path: Path, sql: str) -> float:
    """Return the seconds of DuckDB alone, connection and view included."""
    began = time.perf_counter()
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"CREATE VIEW trials AS SELECT * FROM read_parquet('{path}')")
        connection.execute(sql).fetchall()
    return time.perf_counter() - began


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
        (part,) = (await load_snapshot(store)).of_table("trials")
        few = await ask(store, folder, store.path_of(part.key))
        return {
            "rows": part.rows,
            "bytes_of_the_merged_part": part.size,
            "encode_s": round(sum(encoding for encoding, _ in times), 2),
            "commit_s": round(sum(committing for _, committing in times), 2),
            "merge_s": round(merged, 2),
            f"{runs}_parts": many,
            "merged": few,
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*map(int, sys.argv[1:] or ["100", "10000"]))), indent=2))
