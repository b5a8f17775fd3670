"""Where an installed chart lets a team drive runs: a ConfigMap with the settings of drivers and the template of their Jobs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator import __version__, wiring
from orchestrator.driver.place import KUBERNETES
from orchestrator.errors import Problem, RefusedError, SpecError
from orchestrator.sandbox.kubernetes.resources import CONFIGMAPS
from orchestrator.settings import Settings, settings_of
from orchestrator.spec.yaml import parse_yaml

if TYPE_CHECKING:
    from orchestrator.sandbox.kubernetes.api import Api

CONFIGMAP = "orchestrate-driver"
_SETTINGS, _JOB, _VERSION = "orchestrate.toml", "job.yaml", "version"
_OURS = ("pool", "concurrency", "supervisors", "confirm_over_usd", "store")
"""Settings that this machine may say otherwise: they reach the driver by its command, or matter before there is one."""


@dataclass(frozen=True)
class Site:
    """A namespace of drivers, and how to reach it."""

    api: Api
    namespace: str
    settings: Settings
    """Those of the drivers, with what this machine says of its own folders and of the run."""
    template: Mapping[str, Any]
    """A whole Job, but for its name, labels and arguments."""


def is_remote(settings: Settings, backend: str) -> bool:
    """Return whether runs on a backend are driven by a Job of a cluster."""
    return backend == KUBERNETES and settings.kubernetes.driver == "job"


@contextlib.asynccontextmanager
async def open_site(settings: Settings) -> AsyncIterator[Site]:
    """Read the ConfigMap of the drivers' namespace. Raises RefusedError: not there, of another version, or unusable; and ApiError."""
    table = settings.kubernetes
    async with wiring.cluster_api(table) as api:
        namespace = table.drivers_namespace
        found = await api.find(CONFIGMAPS, namespace, CONFIGMAP)
        if found is None:
            msg = (
                f"namespace {namespace} of {api.connection.where} has no ConfigMap {CONFIGMAP}: install the chart there, "
                "or set kubernetes.context and kubernetes.drivers_namespace to where it is"
            )
            raise RefusedError(msg)
        data = found.get("data") or {}
        name = f"configmap {namespace}/{CONFIGMAP}"
        _check_version(str(data.get(_VERSION, "")).strip(), name)
        missing = [key for key in (_SETTINGS, _JOB) if not data.get(key)]
        if missing:
            raise RefusedError([Problem(name, message=f"it has no {key}; install the chart again") for key in missing])
        theirs = settings_of(data[_SETTINGS], f"{name} {_SETTINGS}")
        yield Site(api, namespace, merged(settings, theirs), _template(data[_JOB], f"{name} {_JOB}"))


def _check_version(theirs: str, name: str) -> None:
    if theirs and theirs != __version__:
        msg = (
            f"drivers of this cluster run orchestrate {theirs} ({name}), and this is {__version__}: "
            f"install {theirs} here, or upgrade the chart"
        )
        raise RefusedError(msg)


def _template(text: str, name: str) -> Mapping[str, Any]:
    document = parse_yaml(text.encode(), name)
    containers = document.get("spec", "template", "spec", "containers")
    if document.get("kind") != "Job" or not isinstance(containers, list) or not containers:
        raise SpecError([Problem(name, message="it must be a Job with a container; install the chart again")])
    found: Mapping[str, Any] = document.data
    return found


def merged(here: Settings, theirs: Settings) -> Settings:
    """Return the drivers' settings with what belongs to this machine in its place.

    Providers and prices are the drivers': the gateways of the cluster have the keys. The smaller limit of both holds.
    """
    said = {name: getattr(here, name) for name in _OURS if here.sources.get(name, "default") != "default"}
    own = {name: getattr(here, name) for name in ("cache", "logs", "scratch", "container_engine")}
    sources = {**theirs.sources, **{name: here.sources.get(name, "default") for name in (*said, *own)}}
    limits = theirs.limits
    for name in ("trials", "cost_usd"):
        mine, other = getattr(here.limits, name), getattr(limits, name)
        if mine is not None and (other is None or mine < other):
            limits = limits.model_copy(update={name: mine})
            sources[f"limits.{name}"] = here.sources.get(f"limits.{name}", "default")
    table = {name: getattr(here.kubernetes, name) for name in ("context", "driver", "drivers_namespace")}
    kubernetes = theirs.kubernetes.model_copy(update=table)
    changes = {**said, **own, "backend": KUBERNETES, "limits": limits, "kubernetes": kubernetes, "sources": sources}
    return theirs.model_copy(update=changes)
