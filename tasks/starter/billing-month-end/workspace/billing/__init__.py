"""Subscriptions and invoices."""
