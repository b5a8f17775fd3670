"""Traces of agents that ran elsewhere, as runs of ``origin: production``: read, brought into the one form, and put into the store once."""
