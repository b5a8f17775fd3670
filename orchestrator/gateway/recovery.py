"""Takes up the launches that an earlier process has left on the volume. What the store says of a launch wins over what the volume says."""

from __future__ import annotations

import asyncio
import logging
import time

from orchestrator.errors import StoreError
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.recall import Recall, go_on, take_card
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.registry import Registry
from orchestrator.gateway.volume import Absence, Card, Volume
from orchestrator.interfaces import TrajectoryFactory

log = logging.getLogger(__name__)

_AT_ONCE = 32
"""Launches that are taken up at one time: the store that is asked about each may be far away, and nobody is served before all are known."""

_STORE_SECONDS = 1.0
"""Pause before a store that did not answer is asked again."""


async def recover(registry: Registry, volume: Volume, trajectories: TrajectoryFactory) -> None:
    """Let a registry know all launches that are on the volume; nothing else may be asked of it before.

    A store that is away is waited for. Raises StoreError when the volume cannot be read; then nothing is lost, and another process may try.
    """
    absence, places, reading = volume.absence(), asyncio.Semaphore(_AT_ONCE), asyncio.Lock()
    cards = list(volume.cards())
    # What has no card was never answered for, or is in the store.
    known = {card if isinstance(card, str) else card.body.id for card in cards}
    trajectories.keep_only(known)
    await registry.keep_worlds(known)

    async def one(card: Card | str) -> Launch | None:
        if isinstance(card, str):
            log.error("launch %s is lost: what it is cannot be read", card)
            registry.give_up(card)
            return None
        async with places:
            sealed = await _over(registry, volume, card)
            return sealed or await _taken_up(registry, volume, trajectories, card, absence, reading)

    found = await asyncio.gather(*(one(card) for card in cards))
    volume.begin()
    if cards:
        away, lost = time.time() - absence.since, sum(each is None or each.stopped == "infra_lost" for each in found)
        log.warning("took up %d launches after %.1f s; %d of them are lost", len(cards), away, lost)


async def _over(registry: Registry, volume: Volume, card: Card) -> Launch | None:
    """Return a launch that is over; None: it is not."""
    sealed = await _sealed(registry, card)
    if sealed is None:
        return None
    take_card(sealed, card)
    registry.take_up(sealed)
    if sealed.pod.delivered.is_set() or card.expires < time.time():
        volume.drop(sealed.id)
    return sealed


async def _taken_up(
    registry: Registry,
    volume: Volume,
    trajectories: TrajectoryFactory,
    card: Card,
    absence: Absence,
    reading: asyncio.Lock,
) -> Launch | None:
    """Return a launch as it goes on; None: nothing of it is known any more."""
    try:
        launch = await _resumed(registry, volume, trajectories, card, absence, reading)
    except (Refusal, StoreError) as error:
        if isinstance(error, StoreError) and error.cause != "trajectory_unreadable":
            raise
        log.error("launch %s is lost: %s", card.body.id, error)
        registry.give_up(card.body.id)
        return None
    registry.take_up(launch)
    return launch


async def _sealed(registry: Registry, card: Card) -> Launch | None:
    """Return a launch that is over, as the store tells. A store that is away is waited for: nothing can be said without it."""
    while True:
        try:
            return await registry.restored(card.body)
        except StoreError as error:
            log.warning("launch %s waits to be taken up: %s", card.body.id, error)
            await asyncio.sleep(_STORE_SECONDS)


async def _resumed(
    registry: Registry,
    volume: Volume,
    trajectories: TrajectoryFactory,
    card: Card,
    absence: Absence,
    reading: asyncio.Lock,
) -> Launch:
    """Return a launch as its trajectory tells of it. Raises Refusal and StoreError."""
    trajectory = await trajectories.resume(card.body.id)
    launch = await registry.made(card.body, trajectory)
    recall = Recall(launch, time.time(), time.monotonic())
    if trajectory is not None:
        async with (
            reading
        ):  # several would only keep each other from computing, and each may hold a long line in memory
            await trajectory.recall(recall.take)
    if not recall.events:
        launch.record_beginning()
    go_on(launch, card, recall, absence, was_outside=volume.is_marked(launch.id))
    volume.mark(launch.id, is_open=False)
    return launch
