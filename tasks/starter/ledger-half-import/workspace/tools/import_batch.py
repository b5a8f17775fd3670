"""Import a batch of bookings: ``python3 tools/import_batch.py FILE [--from-line N] [--skip-bad]``."""

import argparse
import json
import sqlite3
import sys
import zlib
from pathlib import Path

DATABASE = Path(__file__).resolve().parent.parent / "data" / "ledger.db"
GROUP = 4


class Damaged(Exception):
    """The checksum of a line is wrong."""


def read_line(text):
    """Return the booking in a line. Raises Damaged."""
    row = json.loads(text)
    if f"{zlib.crc32('{line}/{account}/{cents}'.format(**row).encode()):08x}" != row["crc"]:
        raise Damaged(row["line"])
    return row


def book(database, batch, row):
    """Write one booking."""
    database.execute("INSERT INTO entries (batch, line, account, cents) VALUES (?, ?, ?, ?)", (batch, row["line"], row["account"], row["cents"]))
    database.execute("UPDATE accounts SET cents = cents + ? WHERE name = ?", (row["cents"], row["account"]))


def predecessor(batch):
    """Return the batch that has to be complete before."""
    stem, number = batch.rsplit("-", 1)
    return f"{stem}-{int(number) - 1:02d}" if int(number) > 1 else None


def run(database, path, first, skip_bad):
    """Import the lines from ``first`` on."""
    batch = path.stem
    before = predecessor(batch)
    if before and not database.execute("SELECT 1 FROM batches WHERE name = ?", (before,)).fetchone():
        raise SystemExit(f"{batch}: {before} is not complete")
    if database.execute("SELECT 1 FROM batches WHERE name = ?", (batch,)).fetchone():
        raise SystemExit(f"{batch} is complete already")
    lines = path.read_text().splitlines()[first - 1 :]
    for start in range(0, len(lines), GROUP):
        with database:
            for text in lines[start : start + GROUP]:
                try:
                    book(database, batch, read_line(text))
                except Damaged as error:
                    if not skip_bad:
                        raise SystemExit(f"{batch}: stopped at line {error}: wrong checksum (see docs/import.md)") from None
    with database:
        database.execute("INSERT INTO batches VALUES (?)", (batch,))
    print(f"{batch} is complete")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--from-line", type=int, default=1)
    parser.add_argument("--skip-bad", action="store_true")
    chosen = parser.parse_args()
    database = sqlite3.connect(DATABASE)
    try:
        run(database, chosen.file, chosen.from_line, chosen.skip_bad)
    finally:
        database.close()


if __name__ == "__main__":
    sys.exit(main())
