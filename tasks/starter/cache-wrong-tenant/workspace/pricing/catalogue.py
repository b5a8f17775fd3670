"""The slow part: price lists of all tenants."""


class NoPrice(LookupError):
    """The tenant does not sell that product."""


class Catalogue:
    """Price lists: ``{tenant: {product: euro cents}}``. Counts its reads."""

    def __init__(self, lists):
        self._lists = lists
        self.reads = 0

    def price(self, tenant, product):
        """Return euro cents. Raises NoPrice."""
        self.reads += 1
        try:
            return self._lists[tenant][product]
        except KeyError:
            raise NoPrice(f"{tenant} has no price for {product}") from None

    def set_price(self, tenant, product, cents):
        """Change a price list."""
        self._lists.setdefault(tenant, {})[product] = cents
