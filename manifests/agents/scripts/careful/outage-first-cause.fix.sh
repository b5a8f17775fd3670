python3 - <<'PY'
"""Answer the questions about the incident from the logs."""

import json
import re
from datetime import datetime, timedelta
from pathlib import Path

FAULT = "no account for currency"
payments = [line.split(None, 5) for line in Path("logs/payments.log").read_text().splitlines()]
refused = [row for row in payments if row[2] == "ERROR" and FAULT in row[5]]
first = refused[0]
at = datetime.strptime(f"{first[0]} {first[1]}", "%Y-%m-%d %H:%M:%S") - timedelta(hours=2)
deploys = [json.loads(line) for line in Path("logs/deploys.jsonl").read_text().splitlines()]
before = [d for d in deploys if d["host"] == first[3] and d["at"] <= at.strftime("%Y-%m-%dT%H:%M:%SZ")]
orders = Path("logs/orders.log").read_text()
given_up = set(re.findall(r"ERROR ord-1 (r\w+) given up", orders))
lost = given_up & {row[4] for row in refused}
details = {r: (c, int(a)) for r, c, a in re.findall(r"(r\w{5}) order customer=(\w+) amount=(\d+)", orders)}
answer = {
    "first_request": first[4],
    "first_at": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    "host": first[3],
    "build": before[-1]["build"],
    "lost_orders": len(lost),
    "customers": len({details[r][0] for r in lost}),
    "lost_cents": sum(details[r][1] for r in lost),
}
Path("answer.json").write_text(json.dumps(answer, indent=2) + "\n")
PY
cat answer.json
