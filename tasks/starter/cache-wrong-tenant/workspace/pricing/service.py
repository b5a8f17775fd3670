"""What other teams call."""

from .cache import Cache
from .currency import convert


class PriceService:
    """Quotes from a catalogue, remembered in a cache."""

    def __init__(self, catalogue, cache=None):
        self.catalogue = catalogue
        self.cache = cache if cache is not None else Cache()

    def _key(self, tenant, product, currency):
        return f"{product}:{currency}"

    def quote(self, tenant, product, currency="EUR"):
        """Return ``{"tenant", "product", "currency", "cents"}``. Raises NoPrice or UnknownCurrency."""

        def load():
            cents = convert(self.catalogue.price(tenant, product), currency)
            return {"tenant": tenant, "product": product, "currency": currency, "cents": cents}

        return self.cache.get_or_load(self._key(tenant, product, currency), load)

    def invalidate(self, tenant):
        """Forget all quotes of a tenant; return how many there were."""
        return self.cache.forget(lambda key: key.startswith(tenant))
