"""Invoices of a subscription."""

from dataclasses import dataclass
from datetime import date

from .money import discount_cents, split_cents
from .schedule import billing_dates


@dataclass(frozen=True)
class Invoice:
    """One invoice, shared by one or more payers."""

    day: date
    cents: int
    shares: tuple


def invoices(start, plan, price, count, percent=0, payers=1):
    """Return the first invoices of a subscription."""
    cents = price - discount_cents(price, percent)
    shares = tuple(split_cents(cents, payers))
    return [Invoice(day, cents, shares) for day in billing_dates(start, plan, count)]
