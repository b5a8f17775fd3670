"""Book a refund: ``python3 bin/refund.py ORDER CENTS [NOTE]``."""

import json
import sys

from orders import DATA, find, refunded, total


def main(order_id, cents, note=""):
    order = find(order_id)
    amount = int(cents)
    open_cents = total(order) - refunded(order_id)
    if not 0 < amount <= open_cents:
        raise SystemExit(f"{amount} is not between 1 and {open_cents}")
    with (DATA / "refunds.jsonl").open("a") as file:
        file.write(json.dumps({"order": order_id, "cents": amount, "note": note}) + "\n")
    print(f"refunded {amount} of {order_id}")


if __name__ == "__main__":
    main(*sys.argv[1:])
