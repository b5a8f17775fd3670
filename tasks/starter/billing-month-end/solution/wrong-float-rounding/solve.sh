#!/bin/sh
# fails: hidden_tests
# Rounds half up with floats, and lets divmod handle the credits.
python3 - <<'PY'
from pathlib import Path

path = Path("billing/schedule.py")
text = path.read_text()
old = text[text.index("    dates = []") : text.index("def next_billing_date")]
text = text.replace(old, "    return [add_months(start, plan.months * period) for period in range(count)]\n\n\n")
text = text.replace(
    "    current = start\n    while current < today:\n        current = add_months(current, plan.months)\n    return current",
    "    period = 0\n    while add_months(start, plan.months * period) < today:\n        period += 1\n    return add_months(start, plan.months * period)",
)
path.write_text(text)
path = Path("billing/money.py")
text = path.read_text()
text = text.replace("return round(amount * float(percent) / 100)", "return int(amount * float(percent) / 100 + 0.5)")
text = text.replace(
    "    return [round(total / payers) for _ in range(payers)]",
    "    share, left = divmod(total, payers)\n    return [share + (i < left) for i in range(payers)]",
)
path.write_text(text)
PY
