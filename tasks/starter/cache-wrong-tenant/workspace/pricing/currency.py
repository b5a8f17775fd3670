"""Conversion between currencies with fixed rates, in whole cents."""

RATES = {"EUR": 1000, "USD": 1080, "CHF": 950, "SEK": 11400}


class UnknownCurrency(ValueError):
    """There is no rate for that currency."""


def convert(cents, currency):
    """Return an amount in euro cents in another currency's cents, rounded down."""
    try:
        return cents * RATES[currency] // 1000
    except KeyError:
        raise UnknownCurrency(currency) from None
