"""Print what is in the ledger."""

import sqlite3
from pathlib import Path

DATABASE = Path(__file__).resolve().parent.parent / "data" / "ledger.db"

database = sqlite3.connect(f"file:{DATABASE}?mode=ro", uri=True)
for name, cents in database.execute("SELECT name, cents FROM accounts ORDER BY name"):
    print(f"{name:6} {cents / 100:12.2f}")
for name, lines in database.execute("SELECT batch, count(*) FROM entries GROUP BY batch ORDER BY batch"):
    done = database.execute("SELECT 1 FROM batches WHERE name = ?", (name,)).fetchone()
    print(f"{name} {lines} lines{'' if done else ', not complete'}")
