"""What everything of ours on a cluster is called: labels, annotations, containers, ports. Charts and policies use the same words."""

from __future__ import annotations

import hashlib

PREFIX = "orchestrate/"

MANAGED_BY = "app.kubernetes.io/managed-by"
"""Label of all objects of ours, with the value ``OURS``."""
OURS = "orchestrate"
SELECTOR = f"{MANAGED_BY}={OURS}"
"""Label selector of all objects of ours."""
COMPONENT = "app.kubernetes.io/component"
"""Label: ``trial`` or ``grading`` on pods that run what we do not trust."""
RUN_LABEL = f"{PREFIX}run"
"""Label: short hash of the run, the same for all pods of a run. The run's own name is an annotation."""
NET_CLASS = f"{PREFIX}net-class"
"""Label that network policies select: ``gateway`` (gateway and relay) or ``none`` (nothing; grading pods: the grader alone)."""
ROLE = f"{PREFIX}role"
"""Label of a namespace: ``system``, ``grader``, ``drivers``, ``trials``, ``grading``."""
IMAGE_PREFIXES = f"{PREFIX}image-prefixes"
"""Annotation of a namespace: image prefixes, separated by spaces, that its pods may use."""

RUN = f"{PREFIX}run-id"
TRIAL = f"{PREFIX}trial"
LAUNCH = f"{PREFIX}launch"
"""Annotations: run id, ``TASK@AGENT:N``, launch number."""
ASKED = f"{PREFIX}asked"
"""Annotation of a driver's Job: which call asked for it, at random."""
LAUNCH_ID = f"{PREFIX}launch-id"
"""Annotation: short name of the launch, by which gateways know it."""
EPOCH = f"{PREFIX}epoch"
"""Annotation: the driver's epoch when the object was made; on a Lease the epoch of who holds it."""
SPEC_SHA256 = f"{PREFIX}spec-sha256"
"""Annotation: digest of the pod as it was rendered, without name and annotations."""
GATEWAY = f"{PREFIX}gateway"
GATEWAY_INDEX = f"{PREFIX}gateway-index"
GATEWAY_INSTANCE = f"{PREFIX}gateway-instance"
RELAY = f"{PREFIX}relay"
"""Annotations: address that the pod uses, which of the gateways it is, which process of it made the tokens, and the relay's address."""
AGENT_TOKEN = f"{PREFIX}agent-token"
PREPARE_TOKEN = f"{PREFIX}prepare-token"
FREEZER_TOKEN = f"{PREFIX}freezer-token"
"""Annotations: each container gets its own by the downward API."""
PLAN = f"{PREFIX}plan"
"""Annotation: what prepare and freezer have to know of this launch, as JSON."""

QUEUE = "kueue.x-k8s.io/queue-name"
"""Kueue's label."""
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
"""Annotations that autoscalers heed."""

PREPARE = "prepare"
AGENT = "agent"
FREEZER = "freezer"
"""Containers of a trial's pod."""
IMAGE_VOLUME = "agent-image"
"""Volume of a trial's pod with the files of an agent's image."""
RUNNER = "runner"
SUBJECT = "subject"
"""Containers of a grading pod, after ``prepare``."""

AGENT_PORT = 8080
"""Gateway: what pods reach. Relay: the same."""
ADMIN_PORT = 8081
"""Gateway: what driver, relay and reaper reach."""
GRADER_PORT = 8080
GRADING_PORT = 8090
"""Grader: what drivers reach, and what grading pods reach."""
CANARY_PORT = 9000
"""Where canary listeners of the chart listen."""

POD_UID = 64000
"""User and group of all containers of pods that we make; no other pod needs it."""
CONTROL_UID = 64001
"""User and group of our own services."""


def pod_name(launch: str) -> str:
    """Return the name of a launch's pod: making it twice is finding it."""
    return f"t-{launch}"


def run_hash(run: str) -> str:
    """Return the value of ``RUN_LABEL``, also part of the names of what belongs to a run: 16 hex digits."""
    return hashlib.sha256(run.encode()).hexdigest()[:16]


def run_lease(run: str) -> str:
    """Return the name of a run's Lease."""
    return f"run-{run_hash(run)}"
