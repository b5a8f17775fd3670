"""What a launch has beside, where its sandbox is a pod."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from orchestrator.gateway.config import AgentLimits
from orchestrator.gateway.places import Places
from orchestrator.gateway.refusal import Refusal


@dataclass(frozen=True)
class Begun:
    """The pod that has begun a launch."""

    uid: str
    """Its name in the cluster, as its prepare says."""
    address: str | None
    """Its IP address; None where the network does not show it."""


class LaunchPod:
    """The pod of one launch: which it is, what it has to do, what it may have under way."""

    def __init__(self, launch: str, limits: AgentLimits) -> None:
        self._launch = launch
        self.begun: Begun | None = None
        """Nobody else can use the launch's tokens from then on."""
        self.halted = asyncio.Event()
        """Set when an operator wants it ended before it has reached a limit: no reason of the launch's own."""
        self.told = False
        """Whether its freezer has been told to end it."""
        self.delivered = asyncio.Event()
        """Set when its freezer has reported: the report is in the store."""
        self.requests = Places(limits.connections, limits.waiting)
        """Places for requests of its agent, which has no listener of its own."""

    def begin(self, pod: Begun) -> None:
        """Note the pod. Raises Refusal for another one than before: a launch is run once."""
        if self.begun is not None and self.begun.uid != pod.uid:
            raise self.already_begun()
        self.begun = pod

    def already_begun(self) -> Refusal:
        """Return what a second pod is told."""
        msg = f"another pod has begun launch {self._launch}: a launch runs once; its driver starts another launch"
        return Refusal(409, "already_begun", msg, close=True)
