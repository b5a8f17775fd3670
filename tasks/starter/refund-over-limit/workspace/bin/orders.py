"""Show an order and what was refunded of it: ``python3 bin/orders.py ORDER``."""

import json
import sys
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "data"


def find(order_id):
    """Return the order. Raises SystemExit."""
    for order in json.loads((DATA / "orders.json").read_text()):
        if order["id"] == order_id:
            return order
    raise SystemExit(f"there is no order {order_id}")


def refunded(order_id):
    """Return what was refunded so far, in cents."""
    rows = map(json.loads, (DATA / "refunds.jsonl").read_text().splitlines())
    return sum(row["cents"] for row in rows if row["order"] == order_id)


def total(order):
    """Return what was paid, in cents."""
    return sum(line["cents"] for line in order["lines"]) + order["shipping"]


if __name__ == "__main__":
    found = find(sys.argv[1])
    print(json.dumps(found, indent=2))
    print(f"paid {total(found)}, refunded {refunded(found['id'])}")
