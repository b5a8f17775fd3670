python3 - <<'PY'
from pathlib import Path

path = Path("warehouse/report.py")
text = path.read_text()
head = text[: text.index("        return [self._line(item_id)")]
path.write_text(
    head
    + '''        ids = list(item_ids)
        items = self._rows("items", ids)
        places = self._rows("places", [item["place"] for item in items.values()])
        suppliers = self._rows("suppliers", [item["supplier"] for item in items.values() if item.get("supplier")])
        return [self._line(item_id, items.get(item_id), places, suppliers) for item_id in ids]

    def _rows(self, table, ids):
        return self.store.fetch_many(table, ids) if ids else {}

    def _line(self, item_id, item, places, suppliers):
        if item is None:
            return Line(item_id, UNKNOWN, 0, "-", "-", False)
        place = places.get(item["place"])
        supplier = "-"
        if item.get("supplier"):
            row = suppliers.get(item["supplier"])
            supplier = (row.get("short") or row["name"]) if row else UNKNOWN
        stock = item.get("stock") or 0
        place_name = place["name"] if place else UNKNOWN
        return Line(item_id, item["name"], stock, place_name, supplier, stock < self.low_below)
'''
)
PY
