"""What a table is: typed, documented columns with closed sets of words, and their Arrow schema.

A schema changes by addition alone: a new version of a table has all columns of the one before, of the same types, and new
ones that may be null. A renamed column is a new column.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from orchestrator.errors import StoreError
from orchestrator.spec.base import canonical_json

if TYPE_CHECKING:
    import pyarrow as pa

Type = Literal["word", "text", "texts", "int8", "int32", "int64", "float64", "bool", "time", "bin12", "bin16", "bin32"]
"""``word``: text with few distinct values, dictionary encoded. ``texts``: a list of text. ``time``: microseconds, UTC.
``binN``: N bytes."""

SQL_TYPES: dict[Type, str] = {
    "word": "VARCHAR",
    "text": "VARCHAR",
    "texts": "VARCHAR[]",
    "int8": "TINYINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float64": "DOUBLE",
    "bool": "BOOLEAN",
    "time": "TIMESTAMP WITH TIME ZONE",
    "bin12": "BLOB",
    "bin16": "BLOB",
    "bin32": "BLOB",
}
"""The type of each column in SQL."""

UNKNOWN = "unknown"
"""What a reader shows for a word that a newer version wrote and this one does not know."""


@dataclass(frozen=True)
class Column:
    """One column."""

    name: str
    type: Type
    doc: str
    """Meaning, unit, and when it is null."""
    words: tuple[str, ...] = ()
    """The closed set of values; empty: any."""
    nullable: bool = False
    since: int = 1
    """Version of the table that first had it."""


@dataclass(frozen=True)
class Table:
    """One table. ``sort`` names the columns that identify a row, in the order of the rows of a part."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    sort: tuple[str, ...]
    version: int = field(default=1)

    def digest(self) -> str:
        """Return the digest of everything that a reader must know: names, types, words, in order."""
        facts = [[c.name, c.type, c.nullable, list(c.words)] for c in self.columns]
        return hashlib.sha256(canonical_json([self.name, self.version, facts])).hexdigest()

    def plain_schema(self) -> pa.Schema:
        """Return the Arrow schema with words as plain text, in which rows are put together and sorted."""
        import pyarrow as pa

        return pa.schema([pa.field(c.name, _plain(c.type), nullable=c.nullable) for c in self.columns])

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the parts. Its metadata name table, version and digest, and document each column."""
        import pyarrow as pa

        words = pa.dictionary(pa.int32(), pa.string())
        fields = [
            pa.field(
                c.name,
                words if c.type == "word" else _plain(c.type),
                nullable=c.nullable,
                metadata={"doc": c.doc},
            )
            for c in self.columns
        ]
        facts = {"table": self.name, "schema_version": str(self.version), "schema_digest": self.digest()}
        return pa.schema(fields, metadata={f"orchestrate.{name}": value for name, value in facts.items()})


def _plain(kind: Type) -> pa.DataType:
    import pyarrow as pa

    types: dict[Type, pa.DataType] = {
        "word": pa.string(),
        "text": pa.string(),
        "texts": pa.list_(pa.string()),
        "int8": pa.int8(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "bool": pa.bool_(),
        "time": pa.timestamp("us", tz="UTC"),
        "bin12": pa.binary(12),
        "bin16": pa.binary(16),
        "bin32": pa.binary(32),
    }
    return types[kind]


def refuse_bad_values(table: Table, rows: pa.Table) -> None:
    """Raise StoreError for a missing value where one must be, a word outside its closed set, NaN or infinity.

    ``rows`` has the plain schema of the table.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for column in table.columns:
        values = rows[column.name]
        where = f"{table.name}.{column.name}"
        if not column.nullable and values.null_count:
            raise _bad(where, f"{values.null_count} values are missing")
        if column.words:
            odd = set(pc.unique(values).to_pylist()) - {*column.words, None}
            if odd:
                raise _bad(where, f"{min(odd)!r} is none of {', '.join(column.words)}")
        if column.type == "float64" and not pc.all(pc.is_finite(values.drop_null()), min_count=0).as_py():
            raise _bad(where, "a value is NaN or infinite; an unknown value is null")
    if rows.schema.types != [_plain(column.type) for column in table.columns]:
        raise _bad(table.name, f"its columns are {pa.schema(rows.schema)}, not those of version {table.version}")


def _bad(where: str, what: str) -> StoreError:
    return StoreError(f"the rows cannot be written: {where}: {what}", cause="dataset_value")
