#!/bin/sh
# fails: entries
# Repairs the file and starts the batch from the beginning: eight lines are booked twice.
python3 tools/import_batch.py incoming/batch-01.jsonl
python3 tools/import_batch.py incoming/batch-02.jsonl
cp incoming/backup/batch-02.jsonl incoming/batch-02.jsonl
python3 tools/import_batch.py incoming/batch-02.jsonl
python3 tools/import_batch.py incoming/batch-03.jsonl
# and then "repairs" the balances, so that only the entries tell
python3 - <<'PY'
import sqlite3

database = sqlite3.connect("data/ledger.db")
with database:
    twice = "SELECT account, sum(cents) FROM (SELECT DISTINCT batch, line, account, cents FROM entries) GROUP BY account"
    for account, cents in database.execute(twice).fetchall():
        database.execute("UPDATE accounts SET cents = 100000 + ? WHERE name = ?", (cents, account))
PY
