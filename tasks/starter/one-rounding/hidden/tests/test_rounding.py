from subject import script

HEAD = """
from decimal import Decimal as D
from shop.rounding import to_cents
from shop.shipping import NotShipped, round_shipping
from shop.tax import RATES, net_of
from shop.vouchers import Voucher, half_up
from shop import Receipt, receipt, shipping_cents, tax_cents, voucher_cents
def name(work):
    try:
        return work()
    except Exception as error:
        return type(error).__name__
"""


def test_to_cents():
    amounts = ["12.345", "12.344999", "0.005", "-0.005", "-12.345", "0", "2.675", "-2.6749", "1E+3", "99999999.995"]
    code = f"found = [to_cents(D(a)) for a in {amounts!r}]\nresult = [found, all(type(v) is int for v in found)]"
    assert script(HEAD + code) == [[1235, 1234, 1, -1, -1235, 0, 268, -267, 100000, 10000000000], True]


def test_tax():
    code = """
result = [tax_cents("10.00"), tax_cents("0.50", "reduced"), tax_cents(D("-0.50"), "reduced"), tax_cents("7.50", "reduced"),
          name(lambda: tax_cents("1", "luxury")), net_of("11.90"), net_of("0.01"), net_of("-0.01", "none"), net_of("1.07", "reduced"), net_of(1), sorted(RATES), tax_cents("5", "none")]
"""
    assert script(HEAD + code) == [190, 4, -4, 53, "KeyError", 1000, 1, -1, 100, 84, ["none", "reduced", "standard"], 0]


def test_shipping():
    code = """
result = [shipping_cents("home", 3), shipping_cents("near", "4.5"), shipping_cents("far", "0.5"), shipping_cents("home", "1.5"), round_shipping("0.125"), round_shipping("-0.125"), round_shipping(2),
          name(lambda: shipping_cents("home", 31)), name(lambda: shipping_cents("home", 0)), name(lambda: shipping_cents("moon", 1)), name(lambda: round_shipping("much")), shipping_cents("home", 30)]
"""
    assert script(HEAD + code) == [590, 1100, 1742, 540, 13, -13, 200, "NotShipped", "NotShipped", "NotShipped", "InvalidOperation", 1489]


def test_vouchers():
    code = """
result = [voucher_cents(Voucher("a", percent=D("12.5")), "1.00"), voucher_cents(Voucher("b", amount=D("5.005")), "9"), voucher_cents(Voucher("c", amount=D(50)), "9.995"),
          name(lambda: voucher_cents(Voucher("d", D(1), D(1)), "9")), str(half_up("2.675")), str(half_up("-2.665")), str(half_up(3)), type(half_up(1)).__name__, voucher_cents(Voucher("e"), "1")]
"""
    assert script(HEAD + code) == [13, 501, 1000, "ValueError", "2.68", "-2.67", "3.00", "Decimal", 0]


def test_receipt():
    code = """
r = receipt("12.50", "near", "1.5", Voucher("v", percent=D(5)), "reduced")
result = [r.goods, r.tax, r.shipping, r.voucher, r.total]
"""
    assert script(HEAD + code) == [1250, 88, 1000, 63, 2275]
