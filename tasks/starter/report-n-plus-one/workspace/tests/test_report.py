import unittest

from warehouse.report import Line, StockReport
from warehouse.store import Store
from warehouse.text import render


def store():
    return Store(
        {
            "items": {"i1": {"name": "rope", "stock": 4, "place": "p1", "supplier": "s1"}, "i2": {"name": "hook", "stock": 40, "place": "p1"}},
            "places": {"p1": {"name": "Hall 1"}},
            "suppliers": {"s1": {"name": "Seil & Co", "short": "Seil"}},
        }
    )


class Report(unittest.TestCase):
    def test_lines(self):
        lines = StockReport(store()).build(["i2", "i1"])
        self.assertEqual(lines[0], Line("i2", "hook", 40, "Hall 1", "-", False))
        self.assertEqual(lines[1], Line("i1", "rope", 4, "Hall 1", "Seil", True))

    def test_unknown_item(self):
        self.assertEqual(StockReport(store()).build(["x"]), [Line("x", "unknown", 0, "-", "-", False)])

    def test_text(self):
        self.assertIn("i1    rope  4      Hall 1  Seil  low", render(StockReport(store()).build(["i1"])))
