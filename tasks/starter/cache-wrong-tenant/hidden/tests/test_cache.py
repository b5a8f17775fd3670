from subject import script

SETUP = """
from pricing.cache import Cache
from pricing.catalogue import Catalogue, NoPrice
from pricing.service import PriceService
now = [0.0]
lists = {"acme": {"rope": 1000, "a:EUR": 7}, "globex": {"rope": 1300}, "acme:x": {"rope": 5, "y": 6}, "acme/x": {"y": 8},
         "ac": {"rope": 2}}
catalogue = Catalogue(lists)
service = PriceService(catalogue, Cache(size=SIZE, ttl=60.0, clock=lambda: now[0]))
def cents(tenant, product, currency="EUR"):
    return service.quote(tenant, product, currency)["cents"]
"""


def setup(size=50):
    return SETUP.replace("SIZE", str(size))


def test_tenants_and_currencies_do_not_mix():
    code = """
asked = [("acme", "rope", "EUR"), ("globex", "rope", "EUR"), ("acme", "rope", "SEK"), ("acme:x", "y", "EUR"), ("acme/x", "y", "EUR"), ("ac", "rope", "EUR")]
first = [cents(*a) for a in asked]
reads = catalogue.reads
again = [cents(*a) for a in asked]
result = [first, again, reads, catalogue.reads, service.cache.hits, service.cache.misses]
"""
    values = [1000, 1300, 11400, 6, 8, 2]
    assert script(setup() + code) == [values, values, 6, 6, 6, 6]


def test_separators_in_names():
    code = """
catalogue.set_price("a", "b:c", 1); catalogue.set_price("a:b", "c", 2)
catalogue.set_price("a", "b/c", 3); catalogue.set_price("a/b", "c", 4)
catalogue.set_price("a|b", "c", 5); catalogue.set_price("a", "b|c", 6)
catalogue.set_price("a b", "c", 7); catalogue.set_price("a", "b c", 8)
result = [cents("a", "b:c"), cents("a:b", "c"), cents("a", "b/c"), cents("a/b", "c"), cents("a|b", "c"), cents("a", "b|c"), cents("a b", "c"), cents("a", "b c")]
"""
    assert script(setup() + code) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_time_to_live():
    code = """
seen = []
for moment in (0.0, 30.0, 59.5, 60.0, 100.0, 119.0, 120.0):
    now[0] = moment
    cents("acme", "rope")
    seen.append(catalogue.reads)
result = seen
"""
    assert script(setup() + code) == [1, 1, 1, 2, 2, 2, 3]


def test_longest_unused_goes():
    code = """
for product in "abc":
    catalogue.set_price("t", product, ord(product))
cents("t", "a"); cents("t", "b"); cents("t", "a"); cents("t", "c")
before = catalogue.reads
cents("t", "a"); cents("t", "c")
kept = catalogue.reads - before
cents("t", "b")
size = len(service.cache)
now[0] = 10.0
plain = Cache(size=2, ttl=5.0, clock=lambda: now[0])
plain.get_or_load("x", lambda: 1); plain.get_or_load("y", lambda: 2)
now[0] = 15.0
plain.get_or_load("x", lambda: 3); plain.get_or_load("z", lambda: 4)
left = plain.get_or_load("x", lambda: 99)
result = [kept, catalogue.reads - before, size, left, len(plain)]
"""
    assert script(setup(2) + code) == [0, 1, 2, 3, 2]


def test_failures_are_not_remembered():
    code = """
def attempt():
    try:
        return cents("acme", "anvil")
    except NoPrice:
        return "NoPrice"
first, second = attempt(), attempt()
catalogue.set_price("acme", "anvil", 42)
third = attempt()
length = len(service.cache)
cache = Cache(size=1, clock=lambda: now[0])
cache.get_or_load("good", lambda: 1)
try:
    cache.get_or_load("bad", lambda: 1 / 0)
except ZeroDivisionError:
    pass
good = cache.get_or_load("good", lambda: 2)
try:
    none = [cache.get_or_load("none", lambda: None), cache.get_or_load("none", lambda: 5)]
except Exception as error:
    none = repr(error)
result = [first, second, third, length, good, none]
"""
    assert script(setup() + code) == ["NoPrice", "NoPrice", 42, 1, 1, [None, None]]


def test_callers_get_their_own_dictionary():
    code = """
one = service.quote("acme", "rope"); one["cents"] = 0; one["note"] = "x"
two = service.quote("acme", "rope"); two.clear()
result = service.quote("acme", "rope")
"""
    assert script(setup() + code) == {"tenant": "acme", "product": "rope", "currency": "EUR", "cents": 1000}


def test_invalidate():
    code = """
for t, p in (("acme", "rope"), ("acme:x", "rope"), ("acme/x", "y"), ("ac", "rope"), ("globex", "rope")):
    cents(t, p)
cents("acme", "rope", "USD")
for t in lists:
    catalogue.set_price(t, "rope", 1)
count = service.invalidate("acme")
result = [count, cents("acme", "rope"), cents("acme:x", "rope"), cents("ac", "rope"), cents("globex", "rope"), service.invalidate("nobody"), len(service.cache)]
"""
    assert script(setup() + code) == [2, 1, 5, 2, 1300, 0, 5]
