python3 - <<'PY'
from pathlib import Path

path = Path("billing/schedule.py")
head = path.read_text().split("def billing_dates")[0]
path.write_text(
    head
    + '''def billing_dates(start, plan, count):
    """Return the first ``count`` billing dates of a subscription; the first is the start itself."""
    return [add_months(start, plan.months * period) for period in range(count)]


def next_billing_date(start, plan, today):
    """Return the first billing date that is not before ``today``."""
    period = 0
    while (current := add_months(start, plan.months * period)) < today:
        period += 1
    return current
'''
)
path = Path("billing/money.py")
tail = path.read_text().split("def show")[1]
path.write_text(
    '''"""Arithmetic in whole cents."""

from decimal import ROUND_HALF_UP, Decimal


def discount_cents(amount, percent):
    """Return the discount on an amount, in cents. ``percent`` may have two decimals, as text or number."""
    exact = Decimal(amount) * Decimal(str(percent)) / 100
    return int(exact.quantize(Decimal(1), rounding=ROUND_HALF_UP))


def split_cents(total, payers):
    """Return the share of each payer, in cents."""
    if payers < 1:
        raise ValueError("somebody has to pay")
    share, left = divmod(abs(total), payers)
    sign = -1 if total < 0 else 1
    return [sign * (share + (1 if place < left else 0)) for place in range(payers)]


def show'''
    + tail
)
PY
