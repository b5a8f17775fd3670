"""Trials in the formats of other programs: ``story`` (model calls and tool uses out of events), then ``otel`` with ``otlp`` (its wire),
``atif``, ``inspect_log``; ``write`` (a run, trial by trial).
"""
