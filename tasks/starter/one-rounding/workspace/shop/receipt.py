"""A receipt puts it all together."""

from dataclasses import dataclass
from decimal import Decimal

from .shipping import shipping_cents
from .tax import tax_cents
from .vouchers import voucher_cents


@dataclass(frozen=True)
class Receipt:
    """All parts in cents."""

    goods: int
    tax: int
    shipping: int
    voucher: int

    @property
    def total(self):
        """What the customer pays."""
        return self.goods + self.tax + self.shipping - self.voucher


def receipt(net, zone, kilos, voucher=None, rate="standard"):
    """Return the receipt of an order. ``net`` has at most two decimals."""
    goods = int(Decimal(net) * 100)
    off = voucher_cents(voucher, net) if voucher else 0
    return Receipt(goods, tax_cents(net, rate), shipping_cents(zone, kilos), off)
