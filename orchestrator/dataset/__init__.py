"""Rows: what a run came to, trial by trial."""
