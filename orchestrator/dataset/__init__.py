"""Runs as typed rows: ``rows`` reads a run from its records; the rest keeps the rows of all runs as Parquet and answers SQL."""
