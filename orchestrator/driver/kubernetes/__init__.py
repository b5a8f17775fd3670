"""Runs on a cluster: what an installed chart lets a team do (``site``), the services that it has (``services``), the Job that drives a
run (``job``) and what is seen of it from outside (``sight``), what cleans up after dead drivers (``reaper``), and what looks at it all
(``doctor``)."""
