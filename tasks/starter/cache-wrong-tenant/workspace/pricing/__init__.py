"""Prices per tenant."""
