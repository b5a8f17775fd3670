"""Runs on a cluster: services that an installed chart has (``services``), the Job that drives a run (``config``, ``job``, ``submit``), what
is seen of it from outside (``sight``), and what cleans up after dead drivers (``reaper``)."""
