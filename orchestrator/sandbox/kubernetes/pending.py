"""Why a pod does not run, and for how long that is worth waiting: one table, quoting the cluster's own words."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal

from orchestrator.sandbox.kubernetes.podview import ContainerView, PodView

_LONG = 10.0

Action = Literal["fail", "retry", "wait"]


@dataclass(frozen=True)
class Rule:
    """A reason not to run. Both patterns must be found."""

    reason: str
    """Of a waiting container, or of the condition PodScheduled."""
    words: str
    """In the message that goes with it."""
    cause: str
    action: Action
    """When the grace is over. ``fail``: another launch would meet the same; ``retry``: another may fare better; ``wait``: never."""
    grace_seconds: float


@dataclass(frozen=True)
class Trouble:
    """What a pod is waiting for."""

    cause: str
    """Stable word for a SandboxError."""
    says: str
    """The cluster's own reason, in one line."""
    action: Action
    left: float
    """Seconds until the action; inf: without limit; 0: now."""
    lasts: float = 0.0
    """Seconds for which it has been so."""

    @property
    def untold(self) -> float:
        """Seconds until it is worth telling: every pod waits for a moment."""
        return max(0.0, _LONG - self.lasts)


_PULL = 900.0
_CONFIGURED = 300.0

CONTAINERS: tuple[Rule, ...] = (
    Rule(r"^InvalidImageName$", "", "image_name", "fail", 0),
    Rule(r"^ErrImageNeverPull$", "", "image_missing", "fail", 0),
    Rule(
        r"^(ErrImagePull|ImagePullBackOff|ImageInspectError|RegistryUnavailable|SignatureValidationFailed)$",
        r"not found|manifest unknown|unauthorized|authentication required|access denied|denied: |no basic auth|no match for platform",
        "image_pull",
        "fail",
        90,
    ),
    Rule(
        r"^(ErrImagePull|ImagePullBackOff|ImageInspectError|RegistryUnavailable|SignatureValidationFailed)$",
        "",
        "image_pull",
        "retry",
        _PULL,
    ),
    Rule(r"^CreateContainerConfigError$", "", "container_config", "fail", _CONFIGURED),
    Rule(r"^(CreateContainerError|RunContainerError|PreStartHookError)$", "", "container_create", "retry", _CONFIGURED),
    # Without a word of its own: volumes, the pod's network, a slow pull.
    Rule(r"^(ContainerCreating|PodInitializing|)$", "", "start_timeout", "retry", _PULL),
    Rule("", "", "container_waiting", "retry", _CONFIGURED),
)
"""Reasons of containers that wait. The first that fits holds."""

SCHEDULING: tuple[Rule, ...] = (
    Rule(r"^SchedulingGated$", "", "scheduling_gated", "wait", inf),
    Rule(
        r"^Unschedulable$",
        r"Insufficient |Too many pods|no preemption victims|No preemption victims",
        "unschedulable",
        "retry",
        3600,
    ),
    Rule(r"^Unschedulable$", "", "unschedulable", "retry", _PULL),
    Rule("", "", "not_scheduled", "retry", _PULL),
)
"""Reasons why no node has been chosen."""
_SILENT = Rule("", "", "node_silent", "retry", _PULL)


class Pending:
    """Looks at one pod again and again, and remembers since when it has been waiting for what."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    def look(self, view: PodView) -> Trouble | None:
        """Return what the pod is waiting for; None when its containers run or have ended, or it is going.

        A pod can be Running while one of its containers waits for its image.
        """
        if view.gone or view.deleting or view.phase not in ("Pending", "Running"):
            return None
        if not view.node:
            return self._unscheduled(view)
        container = _first_waiting(view)
        if container is None and not view.containers:
            return self._told(f"node {view.node} has not begun with it", _SILENT)
        if container is None:
            self._since.clear()
            return None
        rule = _first(CONTAINERS, container.reason, container.message)
        reason = container.reason or "no reason given"
        return self._told(f"container {container.name}: {reason}: {container.message}", rule)

    def _unscheduled(self, view: PodView) -> Trouble:
        condition = view.condition("PodScheduled")
        if condition is None:
            says = "no scheduler has looked at it yet"
            return self._told(says, _first(SCHEDULING, "", ""))
        rule = _first(SCHEDULING, condition.reason, condition.message)
        return self._told(f"{condition.reason}: {condition.message}", rule)

    def _told(self, says: str, rule: Rule) -> Trouble:
        since = self._since.setdefault(rule.cause, self._clock())
        lasts = self._clock() - since
        says = " ".join(says.split())[:600].rstrip(": ")
        return Trouble(rule.cause, says, rule.action, max(0.0, rule.grace_seconds - lasts), lasts)


def _first_waiting(view: PodView) -> ContainerView | None:
    """Return the container that the pod waits for. Those after one that still runs, or has yet to end, wait for it."""
    for each in view.init:
        if each.state == "running":
            return None
        if each.state == "waiting":
            return each
    return next((each for each in view.containers if each.state == "waiting"), None)


def _first(rules: tuple[Rule, ...], reason: str, message: str) -> Rule:
    return next(each for each in rules if re.search(each.reason, reason) and re.search(each.words, message))
