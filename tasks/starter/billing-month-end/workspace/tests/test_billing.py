import unittest
from datetime import date

from billing.invoice import invoices
from billing.money import discount_cents, show, split_cents
from billing.plans import UnknownPlan, plan
from billing.schedule import billing_dates, next_billing_date


class Dates(unittest.TestCase):
    def test_middle_of_the_month(self):
        days = billing_dates(date(2025, 11, 15), plan("monthly"), 3)
        self.assertEqual(days, [date(2025, 11, 15), date(2025, 12, 15), date(2026, 1, 15)])

    def test_next(self):
        self.assertEqual(next_billing_date(date(2025, 1, 10), plan("quarterly"), date(2025, 5, 1)), date(2025, 7, 10))

    def test_unknown_plan(self):
        with self.assertRaises(UnknownPlan):
            plan("weekly")


class Money(unittest.TestCase):
    def test_even_split(self):
        self.assertEqual(split_cents(900, 3), [300, 300, 300])

    def test_discount(self):
        self.assertEqual(discount_cents(2000, 15), 300)

    def test_show(self):
        self.assertEqual(show(-1205), "-12.05")

    def test_invoice(self):
        first = invoices(date(2025, 3, 1), plan("yearly"), 12000, 1, percent=10, payers=2)[0]
        self.assertEqual((first.cents, first.shares), (10800, (5400, 5400)))
