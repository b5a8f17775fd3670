"""The Lease of a run on the cluster: it shows the reaper that somebody drives the run, and drivers of lower epochs that they do not."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from orchestrator.beside import beside
from orchestrator.errors import LeaseLostError
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.kubernetes.errors import ApiError
from orchestrator.sandbox.kubernetes.resources import LEASES

TERM_SECONDS = 30
"""Silence after which a run counts as not driven."""


@dataclass(frozen=True, kw_only=True)
class Beat:
    """How often a Lease is renewed; seconds."""

    renew: float = TERM_SECONDS / 3
    again: float = 1.0
    """After a try that failed."""
    enter: float = 60.0
    """For how long the first renewal is tried."""
    clock: Callable[[], float] = time.monotonic


class RunLease:
    """The Lease of one run as one driver writes it."""

    def __init__(self, api: Api, namespace: str, run: str, epoch: int, holder: str) -> None:
        self._api = api
        self._namespace = namespace
        self._run = run
        self._epoch = epoch
        self._holder = holder
        self._seen: dict[str, Any] | None = None
        """As it was read or written last."""

    async def renew(self) -> None:
        """Write a sign of life. Raises LeaseLostError when a higher epoch has it, and ApiError."""
        name = names.run_lease(self._run)
        if self._seen is None:
            self._seen = await self._api.find(LEASES, self._namespace, name)
        try:
            self._seen = await self._write(self._seen, name)
        except ApiError as error:
            if error.cause in ("conflict", "already_exists", "not_found") or error.fault.unsure:
                self._seen = None  # somebody else wrote, or our own write has an unknown outcome: look before the next
            raise

    async def release(self) -> None:
        """Say that nobody drives the run any more; what fails now only lets the reaper wait for a term."""
        with contextlib.suppress(ApiError):
            try:
                await self._give_up(self._seen)
            except ApiError as error:
                if error.cause != "conflict":
                    raise
                # A renewal that was cut off half-way may have been written all the same.
                await self._give_up(await self._api.find(LEASES, self._namespace, names.run_lease(self._run)))

    async def _give_up(self, seen: dict[str, Any] | None) -> None:
        if seen is not None and _epoch(seen) == self._epoch:
            spec = self._spec(seen) | {"holderIdentity": ""}
            await self._api.update(LEASES, self._namespace, names.run_lease(self._run), {**seen, "spec": spec})

    async def _write(self, seen: dict[str, Any] | None, name: str) -> dict[str, Any]:
        if seen is None:
            return await self._api.create(LEASES, self._namespace, self._body(name))
        held = _epoch(seen)
        if held > self._epoch:
            msg = (
                f"run {self._run} is driven under epoch {held} by {(seen.get('spec') or {}).get('holderIdentity') or 'another driver'}; "
                f"this driver (epoch {self._epoch}) stops and writes nothing more"
            )
            raise LeaseLostError(msg)
        metadata = seen["metadata"]
        annotations = (metadata.get("annotations") or {}) | self._annotations()
        body = {**seen, "metadata": {**metadata, "annotations": annotations}, "spec": self._spec(seen)}
        return await self._api.update(LEASES, self._namespace, name, body)

    def _annotations(self) -> dict[str, str]:
        return {names.RUN: self._run, names.EPOCH: str(self._epoch)}

    def _spec(self, seen: dict[str, Any] | None) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = (seen or {}).get("spec") or {}
        mine = before.get("holderIdentity") == self._holder
        return {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": TERM_SECONDS,
            "acquireTime": before.get("acquireTime") if mine else now,
            "renewTime": now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (seen is not None and not mine),
        }

    def _body(self, name: str) -> dict[str, Any]:
        labels = {names.MANAGED_BY: names.OURS, names.RUN_LABEL: names.run_hash(self._run)}
        metadata = {"name": name, "labels": labels, "annotations": self._annotations()}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": self._spec(None)}


@contextlib.asynccontextmanager
async def held(lease: RunLease, beat: Beat | None = None) -> AsyncIterator[None]:
    """Renew a Lease while the context is open.

    When a higher epoch is seen, the body is cancelled and LeaseLostError comes out. An API server that is away is waited for: pods, gateway
    and store go on without it, and whoever takes the run meanwhile has to write the Lease, too. Entering raises LeaseLostError, ApiError.
    """
    beat = beat or Beat()
    await _first(lease, beat)
    try:
        async with beside(_renew_for_ever(lease, beat)):
            yield
    finally:
        await lease.release()  # nothing where another one has it


async def _renew_for_ever(lease: RunLease, beat: Beat) -> None:
    """Write signs of life. Raises LeaseLostError."""
    pause = beat.renew
    while True:
        await asyncio.sleep(pause)
        try:
            await lease.renew()
            pause = beat.renew
        except ApiError as error:
            pause = max(beat.again, error.retry_after or 0.0)


async def _first(lease: RunLease, beat: Beat) -> None:
    until = beat.clock() + beat.enter
    while True:
        try:
            return await lease.renew()
        except ApiError as error:
            lasting = (
                error.cause not in ("conflict", "already_exists", "not_found") and not error.fault.patience_seconds
            )
            if lasting or beat.clock() >= until:
                raise
            await asyncio.sleep(max(beat.again / 5, error.retry_after or 0.0))


def _epoch(lease: dict[str, Any]) -> int:
    """Return the epoch that a Lease was written under; 0 when it does not say."""
    said = (lease["metadata"].get("annotations") or {}).get(names.EPOCH, "")
    return int(said) if said.isdigit() else 0
