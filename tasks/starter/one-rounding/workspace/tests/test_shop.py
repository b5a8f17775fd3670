import unittest
from decimal import Decimal

from shop import receipt, shipping_cents, tax_cents, voucher_cents
from shop.shipping import NotShipped
from shop.vouchers import Voucher


class Shop(unittest.TestCase):
    def test_tax(self):
        self.assertEqual(tax_cents("10.00"), 190)

    def test_shipping(self):
        self.assertEqual(shipping_cents("home", 3), 590)
        with self.assertRaises(NotShipped):
            shipping_cents("moon", 1)

    def test_voucher(self):
        self.assertEqual(voucher_cents(Voucher("V", percent=Decimal(10)), "20.00"), 200)

    def test_receipt(self):
        self.assertEqual(receipt("10.00", "home", 3, rate="none").total, 1590)
