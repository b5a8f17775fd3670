"""Looks into comma separated files."""
