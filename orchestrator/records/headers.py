"""Headers by which programs of a pod say what is not in their tokens. No import: they start in milliseconds."""

POD = "X-Orchestrate-Pod"
"""To the gateway, when a launch begins: the pod's uid, since only one pod may begin it."""
GATEWAY = "X-Orchestrate-Gateway"
"""To the relay: which of the gateways knows the launch, from 0."""
