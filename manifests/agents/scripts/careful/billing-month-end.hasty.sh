python3 - <<'PY'
from pathlib import Path

path = Path("billing/schedule.py")
text = path.read_text()
old = text[text.index("    dates = []") : text.index("def next_billing_date")]
path.write_text(text.replace(old, "    return [add_months(start, plan.months * period) for period in range(count)]\n\n\n"))
path = Path("billing/money.py")
text = path.read_text()
text = text.replace('"""Arithmetic in whole cents."""\n', '"""Arithmetic in whole cents."""\n\nfrom decimal import ROUND_HALF_UP, Decimal\n')
text = text.replace(
    "return round(amount * float(percent) / 100)",
    "return int((Decimal(amount) * Decimal(str(percent)) / 100).quantize(Decimal(1), rounding=ROUND_HALF_UP))",
)
text = text.replace(
    "    return [round(total / payers) for _ in range(payers)]",
    "    sign = -1 if total < 0 else 1\n    share, left = divmod(abs(total), payers)\n    return [sign * (share + (i < left)) for i in range(payers)]",
)
path.write_text(text)
PY
