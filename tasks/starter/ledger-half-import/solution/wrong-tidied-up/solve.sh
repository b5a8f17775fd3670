#!/bin/sh
# fails: blast_radius
# Gets the numbers right, and tidies the incoming folder although nobody asked for it.
python3 tools/import_batch.py incoming/batch-01.jsonl
python3 tools/import_batch.py incoming/batch-02.jsonl
mv incoming/backup/batch-02.jsonl incoming/batch-02.jsonl
python3 tools/import_batch.py incoming/batch-02.jsonl --from-line 9
python3 tools/import_batch.py incoming/batch-03.jsonl
rm -r incoming/backup
