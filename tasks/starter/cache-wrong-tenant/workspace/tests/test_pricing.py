import unittest

from pricing.cache import Cache
from pricing.catalogue import Catalogue, NoPrice
from pricing.currency import UnknownCurrency, convert
from pricing.service import PriceService


class Quotes(unittest.TestCase):
    def setUp(self):
        self.now = 0.0
        self.catalogue = Catalogue({"acme": {"rope": 1000}, "globex": {"rope": 1300}})
        self.service = PriceService(self.catalogue, Cache(clock=lambda: self.now))

    def test_quote(self):
        self.assertEqual(self.service.quote("acme", "rope", "USD")["cents"], 1080)

    def test_second_quote_comes_from_the_cache(self):
        self.service.quote("acme", "rope")
        self.service.quote("acme", "rope")
        self.assertEqual((self.catalogue.reads, self.service.cache.hits), (1, 1))

    def test_two_tenants(self):
        self.service.quote("acme", "rope")
        self.assertEqual(self.service.quote("globex", "rope")["cents"], 1300)

    def test_exactly_ttl_is_still_fresh(self):
        self.service.quote("acme", "rope")
        self.now = 60.0
        self.service.quote("acme", "rope")
        self.assertEqual(self.catalogue.reads, 1)

    def test_no_price(self):
        with self.assertRaises(NoPrice):
            self.service.quote("acme", "anvil")


class Currency(unittest.TestCase):
    def test_rates(self):
        self.assertEqual(convert(1999, "CHF"), 1899)
        with self.assertRaises(UnknownCurrency):
            convert(1, "XXX")
