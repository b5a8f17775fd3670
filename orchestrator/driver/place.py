"""Where runs are kept and where their trials run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator import wiring
from orchestrator.driver.scratch import scratch_folder
from orchestrator.errors import RefusedError
from orchestrator.interfaces import ObjectStore, SandboxBackend
from orchestrator.settings import MOST_AT_ONE_TIME, Settings

KUBERNETES = "kubernetes"
"""The backend whose sandboxes are pods of a cluster."""


@dataclass(frozen=True)
class Place:
    """Where runs are kept and where their trials run; nothing is started yet."""

    settings: Settings
    store: ObjectStore
    backend: SandboxBackend
    scratch: Path


@contextlib.contextmanager
def open_place(settings: Settings, backend: str | None = None) -> Iterator[Place]:
    """Open store and backend, with a scratch folder that is removed afterwards.

    Raises RefusedError for a kind that this version does not have, and for more trials at one time than one machine may run.
    """
    name = backend or settings.backend
    if name != KUBERNETES and (settings.concurrency or 0) > MOST_AT_ONE_TIME:
        most = f"at most {MOST_AT_ONE_TIME}; lower -n, or the setting concurrency"
        msg = f"{settings.concurrency} trials at one time are more than one machine runs: {most}"
        raise RefusedError(msg)
    store = wiring.driver_store(settings.store)
    with scratch_folder(settings) as scratch:
        made = wiring.sandbox_backend(name, scratch / "sandboxes", settings)
        yield Place(settings, store, made, scratch)
