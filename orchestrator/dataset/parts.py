"""From rows to the bytes of a part and back. Equal rows are equal bytes, whatever order they came in."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.dataset.columns import TABLES
from orchestrator.dataset.commits import Part
from orchestrator.dataset.files import lost
from orchestrator.dataset.schema import Table, refuse_bad_values
from orchestrator.errors import NotFoundError, StoreError
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 131_072
"""Rows of a row group: small enough to skip by, large enough to read in one go."""


@dataclass(frozen=True)
class Encoded:
    """A part and its bytes."""

    part: Part
    data: bytes


def encode(table: Table, rows: pa.Table, suite: str, month: str) -> Encoded:
    """Sort rows, check them and write them as Parquet: zstd, ``ROW_GROUP`` rows a group, schema and its digest in the metadata.

    ``rows`` has the plain schema of the table and at least one row. Raises StoreError for values that must not be.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    refuse_bad_values(table, rows)
    buffer = pa.BufferOutputStream()
    pq.write_table(
        arrange(table, rows),
        buffer,
        compression="zstd",
        row_group_size=ROW_GROUP,
        use_dictionary=[column.name for column in table.columns if column.type == "word"],
        write_statistics=True,
    )
    data = buffer.getvalue().to_pybytes()
    sha256 = hashlib.sha256(data).hexdigest()
    part = Part(
        key=keys.dataset_part(table.name, suite, month, sha256),
        table=table.name,
        suite=suite,
        month=month,
        rows=rows.num_rows,
        size=len(data),
        sha256=sha256,
        schema_version=table.version,
        schema_digest=table.digest(),
        runs=tuple(sorted(rows["run"].unique().to_pylist())),
    )
    return Encoded(part, data)


def arrange(table: Table, rows: pa.Table) -> pa.Table:
    """Return the rows in the order and schema of the table, words as dictionaries in the order in which they appear."""
    import pyarrow as pa

    whole = rows.combine_chunks().sort_by([(name, "ascending") for name in table.sort]).combine_chunks()
    schema = table.schema()
    columns = [
        values.combine_chunks().dictionary_encode() if pa.types.is_dictionary(field.type) else values
        for field, values in zip(schema, whole.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


async def put(store: ObjectStore, encoded: Encoded) -> None:
    """Write a part. One that is there already is the same, for its name is its digest; that is checked."""
    part = encoded.part
    try:
        await store.put_blob(part.key, encoded.data)
    except StoreError as error:
        if error.cause != "store_exists":
            raise
        if not await is_whole(store, part):
            raise lost(part, "has other bytes than its name says") from error


async def put_all(store: ObjectStore, encoded: Sequence[Encoded]) -> None:
    """Write parts, as ``put`` does each."""
    for one in encoded:
        await put(store, one)


async def is_whole(store: ObjectStore, part: Part) -> bool:
    """Return whether the bytes in the store are those of the part; a part that is not there is not whole."""
    digest = hashlib.sha256()
    try:
        async for block in store.stream(part.key):
            digest.update(block)
    except NotFoundError:
        return False
    return digest.hexdigest() == part.sha256


def decode(part: Part, path: Path) -> pa.Table:
    """Return the rows of a part, words as plain text, columns that it does not have as null.

    Raises StoreError for a file that cannot be read and for a part of a newer version, which may have columns that this
    one does not know and would lose.
    """
    import pyarrow as pa

    table = TABLES[part.table]
    if part.schema_version > table.version:
        msg = f"{part.key} was written by a newer version of this program; use that one to change these rows"
        raise StoreError(msg, cause="dataset_newer")
    try:
        return plain_rows(table, path)
    except (pa.ArrowException, OSError) as error:
        raise lost(part, f"cannot be read: {error}") from error


def plain_rows(table: Table, source: Path | pa.NativeFile) -> pa.Table:
    """Return the rows of a Parquet file of a table as ``decode`` does. Raises ArrowException and OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = pq.read_table(source)
    columns = [
        found[field.name].cast(field.type) if field.name in found.column_names else pa.nulls(found.num_rows, field.type)
        for field in table.plain_schema()
    ]
    return pa.Table.from_arrays(columns, schema=table.plain_schema())


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of several tables of one schema."""
    import pyarrow as pa

    return pa.concat_tables(tables)


def only_run(rows: pa.Table, run: str, *, others: bool = False) -> pa.Table:
    """Return the rows of one run, or with ``others`` all but those."""
    import pyarrow.compute as pc

    return rows.filter((pc.not_equal if others else pc.equal)(rows["run"], run))
