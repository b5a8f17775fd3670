cat > shop/rounding.py <<'PY'
"""Rounding of money, in one place."""

from decimal import ROUND_HALF_UP, Decimal


def to_cents(amount):
    """Return a Decimal amount of money in whole cents, rounded half away from zero."""
    return int(amount.scaleb(2).quantize(Decimal(1), rounding=ROUND_HALF_UP))
PY
cat > tests/test_rounding.py <<'PY'
import unittest
from decimal import Decimal

from shop.rounding import to_cents


class ToCents(unittest.TestCase):
    def test_half_goes_away_from_zero(self):
        self.assertEqual([to_cents(Decimal(a)) for a in ("12.345", "-12.345", "0.004")], [1235, -1235, 0])
PY
python3 - <<'PY'
from pathlib import Path


def replace(path, *pairs):
    text = Path(path).read_text()
    for old, new in pairs:
        assert text.count(old) == 1, (path, old)
        text = text.replace(old, new)
    Path(path).write_text(text)


replace(
    "shop/tax.py",
    ("from decimal import ROUND_HALF_UP, Decimal\n", "from decimal import Decimal\n\nfrom .rounding import to_cents\n"),
    ('int(tax.quantize(Decimal("0.01"), rounding=ROUND_HALF_UP) * 100)', "to_cents(tax)"),
    ("int((net * 100).quantize(Decimal(1), rounding=ROUND_HALF_UP))", "to_cents(net)"),
)
replace(
    "shop/shipping.py",
    ("import decimal\n", "import decimal\n\nfrom .rounding import to_cents\n"),
    ('    cents = decimal.Decimal(amount).quantize(decimal.Decimal("0.01"), rounding=decimal.ROUND_HALF_UP)\n    return int(cents.scaleb(2))', "    return to_cents(decimal.Decimal(amount))"),
)
replace(
    "shop/vouchers.py",
    ("from decimal import Decimal\n", "from decimal import Decimal\n\nfrom .rounding import to_cents\n"),
    ('Decimal(amount).quantize(Decimal("0.01"), "ROUND_HALF_UP")', "Decimal(to_cents(Decimal(amount))).scaleb(-2)"),
    ("int(half_up(min(value, Decimal(price))) * 100)", "to_cents(min(value, Decimal(price)))"),
)
PY
