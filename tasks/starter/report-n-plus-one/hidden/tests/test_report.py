from subject import script

HEAD = """
from dataclasses import asdict
from warehouse.report import StockReport
from warehouse.store import Store
calls = []
class Counted(Store):
    def fetch(self, table, row_id):
        calls.append(table)
        return super().fetch(table, row_id)
    def fetch_many(self, table, row_ids):
        calls.append(table)
        return super().fetch_many(table, row_ids)
def make():
    items = {"i%d" % n: {"name": "n%d" % n, "stock": n, "place": "p%d" % (n % 7), "supplier": "s%d" % (n % 90)} for n in range(300)}
    items["bare"] = {"name": "bare", "stock": None, "place": "p1"}
    items["empty"] = {"name": "empty", "stock": 12, "place": "p1", "supplier": ""}
    items["gone"] = {"name": "gone", "place": "p99", "supplier": "s999", "stock": 10}
    places = {"p%d" % n: {"name": "Hall %d" % n} for n in range(7)}
    suppliers = {"s%d" % n: {"name": "Supplier %d" % n} for n in range(90)}
    suppliers["s5"] = {"name": "Five", "short": "5"}
    suppliers["s6"] = {"name": "Six", "short": ""}
    return Counted({"items": items, "places": places, "suppliers": suppliers})
store = make()
report = StockReport(store)
def rows(ids, r=None):
    return [list(asdict(line).values()) for line in (r or report).build(ids)]
"""


def test_few_queries():
    code = """
used = []
for ids in (["i%d" % n for n in range(300)], ["i1"], ["x", "y"], ["gone"], ["i%d" % n for n in range(300)] + ["m%d" % n for n in range(700)]):
    before = len(calls)
    lines = report.build(ids)
    used.append([len(calls) - before <= 3, len(lines) == len(ids)])
result = used
"""
    assert script(HEAD + code) == [[True, True]] * 5


def test_nothing_costs_nothing():
    assert script(HEAD + "result = [report.build([]), len(calls)]") == [[], 0]


def test_same_lines():
    ids = ["i5", "i6", "nope", "bare", "i5", "gone", "empty", "i96", "i9", "i10"]
    assert script(HEAD + f"result = rows({ids!r})") == [
        ["i5", "n5", 5, "Hall 5", "5", True],
        ["i6", "n6", 6, "Hall 6", "Six", True],
        ["nope", "unknown", 0, "-", "-", False],
        ["bare", "bare", 0, "Hall 1", "-", True],
        ["i5", "n5", 5, "Hall 5", "5", True],
        ["gone", "gone", 10, "unknown", "unknown", False],
        ["empty", "empty", 12, "Hall 1", "-", False],
        ["i96", "n96", 96, "Hall 5", "Six", False],
        ["i9", "n9", 9, "Hall 2", "Supplier 9", True],
        ["i10", "n10", 10, "Hall 3", "Supplier 10", False],
    ]


def test_every_report_is_fresh():
    code = """
first = rows(["i5", "bare"])
store.put("items", "i5", {"name": "new", "stock": 50, "place": "p1", "supplier": "s6"})
store.put("places", "p1", {"name": "Yard"})
store.delete("suppliers", "s6")
store.delete("items", "bare")
result = [first, rows(["i5", "bare"]), rows(["i5"], StockReport(store, low_below=51))]
"""
    assert script(HEAD + code) == [
        [["i5", "n5", 5, "Hall 5", "5", True], ["bare", "bare", 0, "Hall 1", "-", True]],
        [["i5", "new", 50, "Yard", "unknown", False], ["bare", "unknown", 0, "-", "-", False]],
        [["i5", "new", 50, "Yard", "unknown", True]],
    ]


def test_ids_may_come_from_a_generator():
    assert script(HEAD + "result = rows(i for i in ['i9', 'i9'])") == [["i9", "n9", 9, "Hall 2", "Supplier 9", True]] * 2
