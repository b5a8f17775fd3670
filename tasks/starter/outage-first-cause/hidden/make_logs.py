"""Make the logs that agents start from: ``python3 make_logs.py FOLDER``. Deterministic; prints the answer.

Orders begin to fail when payments worker pay-3 gets build 7f3c (its configuration lost the currency CHF). The clock of payments
is two hours ahead of the others. Failed orders are tried again, some of them succeed on another worker.
"""

import json
import random
import sys
from datetime import datetime, timedelta
from pathlib import Path

START = datetime(2024, 10, 7, 8, 0, 0)
DEPLOYS = [
    ("08:12:31", "gateway", "gw-1", "b61e"),
    ("08:41:07", "orders", "ord-1", "9d20"),
    ("08:55:40", "payments", "pay-3", "7f3c"),
    ("08:57:02", "gateway", "gw-2", "b61e"),
    ("09:10:15", "payments", "pay-1", "66aa"),
    ("09:31:00", "payments", "pay-3", "66aa"),
]


def stamp(moment, hours=0):
    return (moment + timedelta(hours=hours)).strftime("%Y-%m-%d %H:%M:%S")


def main(folder):
    chance = random.Random(71)
    gateway, orders, payments, used = [], [], [], set()
    lost, cause, first = {}, None, None
    bad_from, bad_to = datetime(2024, 10, 7, 8, 55, 40), datetime(2024, 10, 7, 9, 31, 0)
    for number in range(420):
        moment = START + timedelta(seconds=15 * number + chance.randint(0, 9))
        request = f"r{chance.randint(0x10000, 0xFFFFF):05x}"
        assert request not in used
        used.add(request)
        customer = f"c{chance.randint(100, 111)}"
        currency = chance.choices(("EUR", "CHF", "SEK"), (5, 4, 1))[0]
        cents = chance.randint(500, 60000)
        gateway.append((moment, f"{stamp(moment)} INFO  {chance.choice(('gw-1', 'gw-2'))} {request} POST /orders customer={customer}"))
        if chance.random() < 0.04:
            gateway.append((moment + timedelta(seconds=1), f"{stamp(moment + timedelta(seconds=1))} WARN  gw-2 {request} 400 no such article"))
            continue
        orders.append((moment, f"{stamp(moment)} INFO  ord-1 {request} order customer={customer} amount={cents} currency={currency}"))
        tries = 0
        while True:
            tries += 1
            at = moment + timedelta(seconds=tries)
            worker = chance.choices(("pay-1", "pay-2", "pay-3"), (2, 2, 3))[0]
            bad = worker == "pay-3" and currency == "CHF" and bad_from <= at < bad_to
            if bad:
                cause, first = cause or request, first or at
                payments.append((at, f"{stamp(at, 2)} ERROR {worker} {request} charge refused: no account for currency {currency}"))
            elif chance.random() < 0.15:
                payments.append((at, f"{stamp(at, 2)} ERROR {worker} {request} charge refused: bank did not answer in 800 ms"))
                bad = True
            else:
                payments.append((at, f"{stamp(at, 2)} INFO  {worker} {request} charged {cents} {currency}"))
                orders.append((at, f"{stamp(at)} INFO  ord-1 {request} paid"))
                break
            if tries == 2:
                orders.append((at, f"{stamp(at)} ERROR ord-1 {request} given up after 2 tries"))
                if any("no account" in line for _, line in payments[-2:]):
                    lost[request] = (customer, cents)
                break
            orders.append((at, f"{stamp(at)} WARN  ord-1 {request} try again"))
    for name, lines in (("gateway", gateway), ("orders", orders), ("payments", payments)):
        text = "".join(line + "\n" for _, line in sorted(lines, key=lambda pair: pair[0]))
        (Path(folder) / f"{name}.log").write_text(text)
    rows = [{"at": f"2024-10-07T{at}Z", "service": service, "host": host, "build": build} for at, service, host, build in DEPLOYS]
    (Path(folder) / "deploys.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "first_request": cause,
        "first_at": f"{first:%Y-%m-%dT%H:%M:%SZ}",
        "host": "pay-3",
        "build": "7f3c",
        "lost_orders": len(lost),
        "customers": len({customer for customer, _ in lost.values()}),
        "lost_cents": sum(cents for _, cents in lost.values()),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
