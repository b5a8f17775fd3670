"""Write the rows of a run into a folder, for other tools."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from orchestrator.dataset import parts as part_io
from orchestrator.dataset.columns import TABLES
from orchestrator.dataset.commits import load_snapshot
from orchestrator.dataset.files import PartFiles
from orchestrator.dataset.parts import arrange
from orchestrator.errors import RefusedError, SpecError, StoreError, nearest
from orchestrator.interfaces import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa

Format = Literal["parquet", "csv", "delta"]
FORMATS: tuple[Format, ...] = get_args(Format)
_OF_TRIALS = ("otel", "atif", "inspect")  # named in an error only: what writes them is no layer below


def check_format(name: str) -> Format:
    """Return the format of that name. Raises SpecError for another one, RefusedError when its package is not installed."""
    for known in FORMATS:
        if name == known:
            if known == "delta" and importlib.util.find_spec("deltalake") is None:
                msg = (
                    "format 'delta' needs the package deltalake; install it beside orchestrate "
                    f"(uv pip install --python {sys.executable} 'deltalake>=1.6,<2'), or export parquet"
                )
                raise RefusedError(msg)
            return known
    guess = nearest(name, (*FORMATS, *_OF_TRIALS))
    msg = f"no format {name!r}{guess}; there are {', '.join(FORMATS)} for rows and {', '.join(_OF_TRIALS)} for trials"
    raise SpecError(msg)


def file_of(folder: Path, table: str, kind: Format) -> Path:
    """Return where the rows of a table are written: a file, for delta a folder."""
    return folder / (table if kind == "delta" else f"{table}.{kind}")


async def export_run(store: ObjectStore, run: str, kind: Format, folder: Path, cache: Path) -> dict[str, int]:
    """Write every table's rows of a run, one file (for delta: one folder) a table, and return the numbers of rows.

    ``folder`` is new or empty. Raises SpecError for a run that is not in the dataset and a folder that cannot be used, and
    StoreError.
    """
    snapshot = await load_snapshot(store)
    if run not in snapshot.runs:
        msg = f"run {run} is not in the dataset; put it there with: orchestrate rebuild {run}"
        raise SpecError(msg)
    prepare_folder(folder)
    files = PartFiles(store, cache)
    counts = {}
    for name in TABLES:
        parts = [part for part in snapshot.of_table(name) if run in part.runs]
        paths = await files.paths(parts)
        tables = [part_io.only_run(part_io.decode(p, path), run) for p, path in zip(parts, paths, strict=True)]
        rows = part_io.concat(tables) if tables else TABLES[name].plain_schema().empty_table()
        await asyncio.to_thread(_write, arrange(TABLES[name], rows), kind, folder, name)
        counts[name] = rows.num_rows
    return counts


def prepare_folder(folder: Path) -> None:
    """Make the folder, or take it when it is empty. Raises SpecError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            msg = f"{folder} is not empty; name a new folder, nothing is ever overwritten"
            raise SpecError(msg)
    except OSError as error:
        msg = f"{folder} cannot be used as a folder: {error.strerror}"
        raise SpecError(msg) from error


def _write(rows: pa.Table, kind: Format, folder: Path, name: str) -> None:
    try:
        if kind == "parquet":
            import pyarrow.parquet as pq

            pq.write_table(rows, file_of(folder, name, kind), compression="zstd")
        elif kind == "csv":
            import pyarrow.csv as pc

            pc.write_csv(_flat(rows), file_of(folder, name, kind))
        else:
            _write_delta(rows, file_of(folder, name, kind))
    except OSError as error:
        msg = f"{folder} cannot be written: {error.strerror or error}"
        raise StoreError(msg, cause="export") from error


def _flat(rows: pa.Table) -> pa.Table:
    """Return rows whose lists are JSON and whose bytes are hex, since CSV has neither."""
    import pyarrow as pa

    columns = []
    for values in rows.columns:
        if pa.types.is_list(values.type):
            columns.append(
                pa.array([json.dumps(value, ensure_ascii=False) for value in values.to_pylist()], pa.string())
            )
        elif pa.types.is_fixed_size_binary(values.type):
            columns.append(pa.array([None if v is None else v.hex() for v in values.to_pylist()], pa.string()))
        elif pa.types.is_dictionary(values.type):
            columns.append(values.cast(pa.string()))
        else:
            columns.append(values)
    return pa.Table.from_arrays(columns, names=rows.column_names)


def _write_delta(rows: pa.Table, folder: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    # Delta has neither dictionaries nor bytes of a fixed length.
    def plain(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_dictionary(kind):
            return pa.string()
        return pa.binary() if pa.types.is_fixed_size_binary(kind) else kind

    write_deltalake(str(folder), rows.cast(pa.schema([f.with_type(plain(f.type)) for f in rows.schema])))
