"""The small part of a pod that we go by: a pod as JSON is 7 kB, and thousands are in flight.

Named tuples, since they are made for every event: a frozen dataclass takes three times as long.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, NamedTuple

State = Literal["waiting", "running", "terminated"]
_USUAL = frozenset({"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"})
"""Conditions of every pod that follow from its containers."""


class ContainerView(NamedTuple):
    """How one container is."""

    name: str
    state: State
    reason: str = ""
    """The kubelet's word: ``ImagePullBackOff`` of a waiting one, ``OOMKilled`` or ``Error`` of one that ended."""
    message: str = ""
    """Of one that ended: what it wrote as its termination message, or the kubelet's. Not to be trusted of an agent's."""
    exit_code: int | None = None
    signal: int | None = None
    started: str = ""
    """RFC 3339, by the node's clock; empty when unknown."""
    finished: str = ""
    restarts: int = 0


class Condition(NamedTuple):
    """One of the pod's conditions, such as PodScheduled or DisruptionTarget."""

    type: str
    status: str
    reason: str
    message: str


class PodView(NamedTuple):
    """How one pod was at ``version``."""

    name: str
    namespace: str
    uid: str
    version: int
    """resourceVersion: larger is newer, among all pods of the cluster."""
    phase: str = "Pending"
    reason: str = ""
    """Of the pod as a whole: ``Evicted``, ``DeadlineExceeded``, ``NodeLost``, ``Preempting``…"""
    message: str = ""
    node: str = ""
    created: str = ""
    """RFC 3339, by the API server's clock; so is ``deleting``."""
    started: str = ""
    """When the kubelet took it."""
    deleting: str = ""
    """deletionTimestamp: until then its containers may go on. Empty: nobody has asked for it to be deleted."""
    init: tuple[ContainerView, ...] = ()
    containers: tuple[ContainerView, ...] = ()
    conditions: tuple[Condition, ...] = ()
    """Those that say more than the containers do, such as PodScheduled and DisruptionTarget."""
    marks: Mapping[str, str] | None = None
    """Labels and annotations that were asked to be kept."""
    gone: bool = False
    """It is no longer there; the rest is the last that was seen of it."""
    age: int = 0
    """How often the cluster was seen to be set back, as by a restored etcd: versions tell what is newer within one age."""

    @property
    def order(self) -> tuple[int, int]:
        """Larger is newer."""
        return self.age, self.version

    def container(self, name: str) -> ContainerView | None:
        """Return a container or init container; None when the kubelet has said nothing of it yet."""
        return next((each for each in (*self.containers, *self.init) if each.name == name), None)

    def condition(self, kind: str) -> Condition | None:
        """Return a condition."""
        return next((each for each in self.conditions if each.type == kind), None)

    def ended(self) -> PodView:
        """Return the same, no longer there."""
        return self._replace(gone=True)


def pod_view(pod: Mapping[str, Any], marks: Collection[str] = ()) -> PodView:
    """Return the small part of a pod. ``marks`` are the labels and annotations to keep. Raises ValueError: no pod."""
    about: Mapping[str, Any] = pod.get("metadata") or {}
    status: Mapping[str, Any] = pod.get("status") or {}
    spec: Mapping[str, Any] = pod.get("spec") or {}
    name, version = about.get("name"), str(about.get("resourceVersion"))
    if not name or not version.isdigit():
        msg = f"no pod: metadata {str(about)[:80]}"
        raise ValueError(msg)
    return PodView(
        name=name,
        namespace=about.get("namespace") or "",
        uid=about.get("uid") or "",
        version=int(version),
        phase=status.get("phase") or "Pending",
        reason=status.get("reason") or "",
        message=status.get("message") or "",
        node=spec.get("nodeName") or "",
        created=about.get("creationTimestamp") or "",
        started=status.get("startTime") or "",
        deleting=about.get("deletionTimestamp") or "",
        init=tuple(map(_container, status.get("initContainerStatuses") or ())),
        containers=tuple(map(_container, status.get("containerStatuses") or ())),
        conditions=tuple(_condition(each) for each in status.get("conditions") or () if each.get("type") not in _USUAL),
        marks=_kept(about, marks) if marks else None,
    )


def _kept(about: Mapping[str, Any], marks: Iterable[str]) -> dict[str, str] | None:
    found = (about.get("labels") or {}) | (about.get("annotations") or {})
    return {key: found[key] for key in marks if key in found} or None


def _container(status: Mapping[str, Any]) -> ContainerView:
    name: str = status.get("name") or ""
    state: Mapping[str, Any] = status.get("state") or {}
    restarts = int(status.get("restartCount") or 0)
    if (ended := state.get("terminated")) is not None:
        get = ended.get
        return ContainerView(
            name,
            "terminated",
            get("reason") or "",
            get("message") or "",
            get("exitCode"),
            get("signal"),
            get("startedAt") or "",
            get("finishedAt") or "",
            restarts,
        )
    if (runs := state.get("running")) is not None:
        return ContainerView(name, "running", started=runs.get("startedAt") or "", restarts=restarts)
    waits = state.get("waiting") or {}
    return ContainerView(name, "waiting", waits.get("reason") or "", waits.get("message") or "", restarts=restarts)


def _condition(said: Mapping[str, Any]) -> Condition:
    get = said.get
    return Condition(get("type") or "", get("status") or "", get("reason") or "", get("message") or "")
