#!/bin/sh
# fails: hidden_tests
# Loads the items in one query, but still asks for place and supplier item by item.
python3 - <<'PY'
from pathlib import Path

path = Path("warehouse/report.py")
text = path.read_text()
text = text.replace(
    "        return [self._line(item_id) for item_id in item_ids]",
    "        ids = list(item_ids)\n        items = self.store.fetch_many(\"items\", ids) if ids else {}\n        return [self._line(i, items.get(i)) for i in ids]",
)
text = text.replace('    def _line(self, item_id):\n        item = self.store.fetch("items", item_id)\n', "    def _line(self, item_id, item):\n")
path.write_text(text)
PY
