"""What comes after a launch's agent: parts of its state from relays, the freezer's report, and all of it again after a restart."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.errors import NotFoundError
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.registry import Registry
from orchestrator.gateway.relay import state_of
from orchestrator.gateway.wire import Admission, Delivered, FreezeReport, LaunchName, Part
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.base import BlobRef

_NAME = "delivered.json"


class LaunchDesk:
    """``relay.Desk`` over the launches of this process."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def admit(self, token: str, peer: str | None) -> Admission:
        """Return the launch whose freezer shows this token. Raises Refusal."""
        launch = self._registry.bearer_of(token, "freezer", peer)
        body = launch.body
        return Admission(
            run=body.run,
            trial=body.trial,
            launch=body.launch,
            epoch=body.epoch,
            sealed=launch.seal is not None,
            max_state_bytes=launch.config.max_state_bytes,
            done=launch.parts,
        )

    async def commit(self, launch: str, part: Part, blob: BlobRef) -> Mapping[Part, BlobRef]:
        """Note a part, unless there is one. Raises Refusal."""
        found = self._registry.find(launch)
        if part not in found.parts:
            found.parts[part] = blob
            found.keep()
        return found.parts


async def take_report(launch: Launch, report: FreezeReport, store: ObjectStore) -> None:
    """Keep a freezer's report, the first one. It goes to the store and not to memory: many launches print much.

    Raises Refusal while the agent may live or parts are missing, and StoreError.
    """
    if launch.seal is None:
        raise Refusal(409, "not_sealed", "the report is taken after the seal: first the agent must be gone")
    state = state_of(launch.parts)
    if state is None and report.lost is None:
        msg = "the relay has not taken entries and changes; deliver them first, or say in `lost` why there are none"
        raise Refusal(409, "state_missing", msg)
    if launch.pod.delivered.is_set():
        return
    cancelled = launch.pod.halted.is_set()
    found = Delivered(report=report, state=state, output=launch.parts.get("output"), cancelled=cancelled)
    await store.create(_key(launch.body), found.to_bytes())
    launch.pod.delivered.set()
    launch.changed()


async def delivery(name: LaunchName, store: ObjectStore) -> Delivered | None:
    """Return what a launch left, from the store; None when there is nothing. Raises StoreError."""
    key = _key(name)
    try:
        return Delivered.from_bytes(await store.get(key), key)
    except NotFoundError:
        return None


def _key(name: LaunchName) -> str:
    return keys.record(name.run, name.trial_id, name.launch, name.epoch, _NAME)
