"""Make ledger and batches that agents start from: ``python3 make_data.py WORKSPACE``. Deterministic.

Line 10 of batch-02 has a digit turned over; the backup has the right one.
"""

import json
import random
import sqlite3
import sys
import zlib
from pathlib import Path

SCHEMA = """
CREATE TABLE accounts (name TEXT PRIMARY KEY, cents INTEGER NOT NULL);
CREATE TABLE entries (id INTEGER PRIMARY KEY, batch TEXT NOT NULL, line INTEGER NOT NULL, account TEXT NOT NULL REFERENCES accounts (name), cents INTEGER NOT NULL);
CREATE TABLE batches (name TEXT PRIMARY KEY);
"""
NAMES = ("bank", "fees", "sales", "tax")


def record(line, account, cents):
    return {"line": line, "account": account, "cents": cents, "crc": f"{zlib.crc32(f'{line}/{account}/{cents}'.encode()):08x}"}


def main(folder):
    chance = random.Random(11)
    root = Path(folder)
    for name, lines in (("batch-01", 14), ("batch-02", 19), ("batch-03", 11)):
        rows = [record(line, chance.choice(NAMES), chance.randint(-50000, 90000)) for line in range(1, lines + 1)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (root / "incoming" / "backup" / f"{name}.jsonl").write_text(text)
        if name == "batch-02":
            rows[9]["cents"] += 9000
        (root / "incoming" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = root / "data" / "ledger.db"
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    database.execute("PRAGMA page_size = 1024")
    database.executescript(SCHEMA)
    database.executemany("INSERT INTO accounts VALUES (?, ?)", [(name, 100_000) for name in NAMES])
    database.commit()
    database.execute("VACUUM")
    database.close()


if __name__ == "__main__":
    main(sys.argv[1])
