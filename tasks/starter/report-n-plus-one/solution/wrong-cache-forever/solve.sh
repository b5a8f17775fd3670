#!/bin/sh
# fails: hidden_tests
# Remembers rows between reports, so a later report shows what was true at the first one.
python3 - <<'PY'
from pathlib import Path

path = Path("warehouse/report.py")
text = path.read_text()
head = text[: text.index("        return [self._line(item_id)")]
head = head.replace("        self.low_below = low_below\n", "        self.low_below = low_below\n        self._seen = {}\n")
body = text[text.index("    def _line(self, item_id):") :].replace("self.store.fetch(", "self._fetch(")
path.write_text(
    head
    + '''        ids = list(item_ids)
        self._load("items", ids)
        items = [self._seen["items", i] for i in ids if self._seen["items", i]]
        self._load("places", [item["place"] for item in items])
        self._load("suppliers", [item["supplier"] for item in items if item.get("supplier")])
        return [self._line(item_id) for item_id in ids]

    def _load(self, table, ids):
        missing = [i for i in ids if (table, i) not in self._seen]
        rows = self.store.fetch_many(table, missing) if missing else {}
        for i in missing:
            self._seen[table, i] = rows.get(i)

    def _fetch(self, table, row_id):
        return self._seen[table, row_id]

'''
    + body
)
PY
