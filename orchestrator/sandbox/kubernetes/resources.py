"""The kinds of objects that we touch, and where each lies in the API."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote


@dataclass(frozen=True)
class Resource:
    """One kind of object, such as pods."""

    group: str
    """``""`` for the core, else such as ``batch``."""
    version: str
    plural: str
    """As in paths and rules."""
    kind: str
    """As in bodies."""
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``apiVersion`` of bodies."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "") -> str:
        """Return the path of the collection, or of one object."""
        collection = _collection(self, namespace)
        return f"{collection}/{quote(name, safe='')}" if name else collection

    def words(self, namespace: str = "", name: str = "") -> str:
        """Return ``pods t-1 in trials-0``, for people."""
        return self.plural + (f" {name}" if name else "") + (f" in {namespace}" if namespace else "")


@lru_cache(maxsize=1000)
def _collection(resource: Resource, namespace: str) -> str:
    parts = [f"/apis/{resource.group}" if resource.group else "/api", resource.version]
    if resource.namespaced and namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    return "/".join((*parts, resource.plural))


PODS = Resource("", "v1", "pods", "Pod")
EVENTS = Resource("", "v1", "events", "Event")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
JOBS = Resource("batch", "v1", "jobs", "Job")
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
