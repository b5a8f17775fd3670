"""Build stock reports."""

from dataclasses import dataclass

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Line:
    """One item of a report."""

    item: str
    name: str
    stock: int
    place: str
    supplier: str
    low: bool


class StockReport:
    """Builds reports over a store with the tables ``items``, ``places`` and ``suppliers``."""

    def __init__(self, store, low_below=10):
        self.store = store
        self.low_below = low_below

    def build(self, item_ids):
        """Return one Line per id, in the order given."""
        return [self._line(item_id) for item_id in item_ids]

    def _line(self, item_id):
        item = self.store.fetch("items", item_id)
        if item is None:
            return Line(item_id, UNKNOWN, 0, "-", "-", False)
        place = self.store.fetch("places", item["place"])
        supplier = "-"
        if item.get("supplier"):
            row = self.store.fetch("suppliers", item["supplier"])
            supplier = row["name"] if row else UNKNOWN
            if row and row.get("short"):
                supplier = row["short"]
        stock = item.get("stock") or 0
        place_name = place["name"] if place else UNKNOWN
        return Line(item_id, item["name"], stock, place_name, supplier, stock < self.low_below)
