#!/bin/sh
python3 tools/import_batch.py incoming/batch-01.jsonl || exit 1
python3 tools/import_batch.py incoming/batch-02.jsonl # stops at line 10: lines 9 to 12 are rolled back, 1 to 8 are booked
set -e
cp incoming/backup/batch-02.jsonl incoming/batch-02.jsonl
python3 tools/import_batch.py incoming/batch-02.jsonl --from-line 9
python3 tools/import_batch.py incoming/batch-03.jsonl
python3 tools/balance.py
