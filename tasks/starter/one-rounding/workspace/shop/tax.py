"""Value added tax."""

from decimal import ROUND_HALF_UP, Decimal

RATES = {"standard": Decimal("0.19"), "reduced": Decimal("0.07"), "none": Decimal(0)}


def tax_cents(net, rate="standard"):
    """Return the tax on a net amount, in cents. Raises KeyError for an unknown rate."""
    tax = Decimal(net) * RATES[rate]
    return int(tax.quantize(Decimal("0.01"), rounding=ROUND_HALF_UP) * 100)


def net_of(gross, rate="standard"):
    """Return the net part of a gross amount, in cents."""
    net = Decimal(gross) / (1 + RATES[rate])
    return int((net * 100).quantize(Decimal(1), rounding=ROUND_HALF_UP))
