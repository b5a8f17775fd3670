"""Sandboxes as Kubernetes pods. The programs inside a pod are in ``sandbox/pod``."""
