"""Arithmetic in whole cents."""


def discount_cents(amount, percent):
    """Return the discount on an amount, in cents. ``percent`` may have two decimals, as text or number."""
    return round(amount * float(percent) / 100)


def split_cents(total, payers):
    """Return the share of each payer, in cents."""
    if payers < 1:
        raise ValueError("somebody has to pay")
    return [round(total / payers) for _ in range(payers)]


def show(cents):
    """Return an amount for people, for example ``-12.05``."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02d}"
