"""Vouchers: an amount or a share of the price."""

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True)
class Voucher:
    """``percent`` of the price or a fixed ``amount``; not both."""

    code: str
    percent: Decimal = Decimal(0)
    amount: Decimal = Decimal(0)


def half_up(amount):
    """Return an amount with two decimals, rounded half away from zero."""
    return Decimal(amount).quantize(Decimal("0.01"), "ROUND_HALF_UP")


def voucher_cents(voucher, price):
    """Return what a voucher takes off a price, in cents, never more than the price."""
    if voucher.percent and voucher.amount:
        raise ValueError(f"voucher {voucher.code} has both percent and amount")
    value = Decimal(price) * voucher.percent / 100 if voucher.percent else voucher.amount
    return int(half_up(min(value, Decimal(price))) * 100)
