"""Prices at the till."""

from .receipt import Receipt, receipt
from .shipping import shipping_cents
from .tax import tax_cents
from .vouchers import voucher_cents

__all__ = ["Receipt", "receipt", "shipping_cents", "tax_cents", "voucher_cents"]
