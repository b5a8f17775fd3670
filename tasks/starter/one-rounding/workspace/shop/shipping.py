"""What sending costs."""

import decimal

ZONES = {"home": decimal.Decimal("4.90"), "near": decimal.Decimal("9.50"), "far": decimal.Decimal("17.25")}
PER_KILO = decimal.Decimal("0.333")


class NotShipped(ValueError):
    """We do not send there, or not that much."""


def round_shipping(amount):
    """Return an amount in cents. Other teams use this for their own surcharges."""
    cents = decimal.Decimal(amount).quantize(decimal.Decimal("0.01"), rounding=decimal.ROUND_HALF_UP)
    return int(cents.scaleb(2))


def shipping_cents(zone, kilos):
    """Return the cost of sending, in cents. Raises NotShipped."""
    if zone not in ZONES:
        raise NotShipped(f"nobody sends to {zone!r}")
    weight = decimal.Decimal(kilos)
    if weight <= 0 or weight > 30:
        raise NotShipped("parcels have more than 0 and at most 30 kilos")
    return round_shipping(ZONES[zone] + PER_KILO * weight)
