"""Billing dates."""

import calendar
from datetime import date


def add_months(day, months):
    """Return the day that many months later, the last of the month if it is shorter."""
    index = day.year * 12 + day.month - 1 + months
    year, month = divmod(index, 12)
    last = calendar.monthrange(year, month + 1)[1]
    return date(year, month + 1, min(day.day, last))


def billing_dates(start, plan, count):
    """Return the first ``count`` billing dates of a subscription; the first is the start itself."""
    dates = []
    current = start
    for _ in range(count):
        dates.append(current)
        current = add_months(current, plan.months)
    return dates


def next_billing_date(start, plan, today):
    """Return the first billing date that is not before ``today``."""
    current = start
    while current < today:
        current = add_months(current, plan.months)
    return current
