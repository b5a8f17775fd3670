"""Launches of earlier processes, as far as the store knows them."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from orchestrator.errors import StoreError
from orchestrator.gateway.body import Pool
from orchestrator.gateway.config import CommonConfig
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.wire import LaunchBody, LaunchName
from orchestrator.interfaces import ClosedTrajectory, ObjectStore
from orchestrator.records import keys
from orchestrator.records.event import EventSource, EventType
from orchestrator.records.outcome import Seal


async def stored_seal(name: LaunchName, store: ObjectStore, *, any_epoch: bool) -> Seal | None:
    """Return the seal of a launch that this process does not know, if there is one. Raises StoreError.

    ``any_epoch``: also one that was made under an earlier epoch, since launches outlive their drivers here.
    """
    epochs = await _epochs(name, store, {"seal.json"}) if any_epoch else [name.epoch]
    for epoch in epochs:
        key = keys.record(name.run, name.trial_id, name.launch, epoch, "seal.json")
        if any_epoch or await store.exists(key):
            return Seal.from_bytes(await store.get(key), key)
    return None


async def delivered_name(name: LaunchName, store: ObjectStore) -> LaunchName | None:
    """Return the launch under the last epoch in which it was sealed and delivered; None when it never was. Raises StoreError."""
    found = await _epochs(name, store, {"seal.json", "delivered.json"})
    return name.model_copy(update={"epoch": found[0]}) if found else None


async def restore(body: LaunchBody, config: CommonConfig, pool: Pool, store: ObjectStore) -> Launch | None:
    """Return a launch that an earlier process sealed, with what was delivered of it; None when there is none. Raises StoreError."""
    sealed = await _epochs(body, store, {"seal.json"})
    if not sealed:
        return None
    delivered = await delivered_name(body, store)
    name = delivered or body.model_copy(update={"epoch": sealed[0]})
    launch = Launch(body.model_copy(update={"epoch": name.epoch}), _Closed(), {}, config, pool)
    launch.seal = await stored_seal(name, store, any_epoch=False)
    launch.sealing = True
    launch.sealed.set()
    if delivered is not None:
        launch.pod.delivered.set()
    return launch


async def _epochs(name: LaunchName, store: ObjectStore, needed: set[str]) -> list[int]:
    """Return the epochs of a launch that have all of the records, the last first; none that is later than the name's."""
    found: dict[int, set[str]] = {}
    for key in await store.list(keys.launch_records(name.run, name.trial_id, name.launch)):
        epoch, record = keys.parse_record(key)
        found.setdefault(epoch, set()).add(record)
    return sorted((e for e, records in found.items() if e <= name.epoch and needed <= records), reverse=True)


class _Closed:
    """The trajectory of a launch of the past: in the store, and closed."""

    def append(self, kind: EventType, source: EventSource, data: Mapping[str, JsonValue]) -> int:
        """Return -1, as every closed trajectory does."""
        del kind, source, data
        return -1

    def hand_over(self) -> None:
        """Do nothing."""

    async def flush(self) -> None:
        """Do nothing."""

    def written(self) -> None:
        """Return None: it is closed."""

    async def close(self, data: Mapping[str, JsonValue]) -> ClosedTrajectory:
        """Raise StoreError: it was closed by another process, which alone had the file."""
        del data
        msg = "the trajectory of a launch of an earlier gateway is in the store and cannot be closed again"
        raise StoreError(msg, cause="trajectory_closed")
