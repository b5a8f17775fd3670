"""One driver for a run: claims, signs of life and the proof before each write that nobody else has taken the run.

Everything is a create-only marker, so it holds on every store. A driver takes epoch ``n + 1`` only when the driver of epoch ``n`` let go,
is proven dead, or gave no sign of life for a whole term on the taker's own clock. A driver that could not renew for two thirds of its term
writes nothing until it has read that nobody took the run. Between that reading and a write another driver may still take over: then the
write creates a launch's only outcome, or finds one, as always; neither is lost or doubled.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from orchestrator.beside import beside
from orchestrator.driver.process import is_gone, this_process
from orchestrator.driver.wishes import is_stop, last_wish, lift, next_wish
from orchestrator.errors import HeldError, LeaseLostError, NotFoundError, OrchestrateError, RefusedError, StoreError
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.lease import Beat, Claim, Release, ReleaseReason, Wish
from orchestrator.storage.removals import describe, removed_run

_PAUSE_SECONDS = 1.0
"""Between attempts while the store does not answer."""


def _clock() -> float:
    """Return seconds of a clock that also counts while the machine sleeps, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long a driver may be silent."""

    term_s: float = 15.0
    """Seconds of silence after which a run may be taken."""
    patience_s: float = 600.0
    """Seconds for which a store that does not answer is waited for before a write."""
    clock: Callable[[], float] = _clock
    """Seconds; never goes back."""

    @property
    def beat_s(self) -> float:
        """Seconds between signs of life."""
        return self.term_s / 3

    @property
    def trust_s(self) -> float:
        """Seconds after the last sign of life for which nobody can have taken the run."""
        return self.term_s * 2 / 3


@dataclass(frozen=True)
class Status:
    """What a driver tells with each sign of life."""

    phases: dict[str, int] = field(default_factory=dict)
    ended: int = 0
    failed_launches: dict[str, int] = field(default_factory=dict)
    waits: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Holder:
    """The driver that holds a run, or held it last."""

    claim: Claim
    beat: Beat | None
    """Its last sign of life."""
    release: Release | None
    """Set when it let go."""
    gone: bool
    """Whether its process is proven dead; False also where that cannot be seen."""

    def __str__(self) -> str:
        return f"process {self.claim.process.pid} on {self.claim.process.host}"


async def read_holder(store: ObjectStore, run: str) -> Holder | None:
    """Return who holds a run, or held it last; None when nobody ever did. Raises StoreError."""
    claims = await store.list(keys.claims(run))
    if not claims:
        return None
    claim = Claim.from_bytes(await store.get(claims[-1]), claims[-1])
    return Holder(
        claim=claim,
        beat=await _last_beat(store, claim),
        release=await _release(store, claim),
        gone=is_gone(claim.process),
    )


async def _last_beat(store: ObjectStore, claim: Claim) -> Beat | None:
    found = await store.list(keys.beats(claim.run, claim.epoch))
    return Beat.from_bytes(await store.get(found[-1]), found[-1]) if found else None


async def _release(store: ObjectStore, claim: Claim) -> Release | None:
    key = keys.release(claim.run, claim.epoch)
    try:
        return Release.from_bytes(await store.get(key), key)
    except NotFoundError:
        return None


class LeaseView:
    """Proves that an epoch of a run still holds, from any process, by one reading each time. Renews nothing."""

    def __init__(self, store: ObjectStore, run: str, epoch: int, timing: Timing) -> None:
        self._store = store
        self.run = run
        self.epoch = epoch
        self._timing = timing
        self._trusted_until = float("-inf")
        self.lost: LeaseLostError | None = None
        """Set once another driver has the run; stays."""

    @property
    def term_s(self) -> float:
        """Seconds of silence after which the run may be taken."""
        return self._timing.term_s

    async def hold(self) -> None:
        """Return when nobody else can have taken the run; waits while the store does not answer.

        Raises LeaseLostError, and StoreError when the store has not answered for ``patience_s``.
        """
        until = self._timing.clock() + self._timing.patience_s
        while True:
            if self.lost is not None:
                raise self.lost
            if self._timing.clock() < self._trusted_until:
                return
            try:
                if await self.verify():
                    return
            except StoreError:
                if self._timing.clock() >= until:
                    raise
                await asyncio.sleep(_PAUSE_SECONDS)

    async def verify(self) -> bool:
        """Return whether no later claim stands; one that does is kept in ``lost``. Raises StoreError."""
        later = keys.claim(self.run, self.epoch + 1)
        try:
            claim = Claim.from_bytes(await self._store.get(later), later)
        except NotFoundError:
            return True
        self.lost = LeaseLostError(
            f"run {self.run} was taken over by process {claim.process.pid} on {claim.process.host} (epoch {claim.epoch}) while this driver "
            f"(epoch {self.epoch}) gave no sign of life; this driver stops and writes nothing more"
        )
        return False


class Lease(LeaseView):
    """A claim that this process renews. Made by ``drive_run``."""

    def __init__(
        self, store: ObjectStore, claim: Claim, timing: Timing, status: Callable[[], Status], wish: Wish | None = None
    ) -> None:
        super().__init__(store, claim.run, claim.epoch, timing)
        self._status = status
        self._number = 0
        self._wish = wish
        """The last one that was heard."""
        self._stopping = False
        self._alarm: asyncio.TimerHandle | None = None
        self.on_stop: Callable[[Wish], Awaitable[None]] | None = None
        """Called once when a person wants an orderly stop. What is wanted before it is set is heard afterwards."""
        self.ending: tuple[ReleaseReason, str] | None = None
        """Why the run is let go, and more of it for a person; None: as the body of ``drive_run`` ends."""
        self.on_silence: Callable[[float], None] | None = None
        """Called with the seconds for which the store has not answered, once for each time that it does not."""

    async def renew_for_ever(self) -> None:
        """Give signs of life. Raises LeaseLostError once the run is taken over."""
        self._watch_silence()
        try:
            while True:
                with contextlib.suppress(StoreError):
                    await self.beat()
                if self.lost is not None:
                    raise self.lost
                await asyncio.sleep(self._timing.beat_s)
        finally:
            if self._alarm is not None:
                self._alarm.cancel()

    async def beat(self) -> bool:
        """Give one sign of life, heed what people want, and return whether the run is still ours. Raises StoreError.

        A driver that was silent for too long looks first: one that was taken over writes nothing more.
        """
        if self._timing.clock() >= self._trusted_until and not await self.verify():
            return False
        status, before = self._status(), self._timing.clock()
        beat = Beat(
            epoch=self.epoch,
            number=self._number + 1,
            at=time.time(),
            phases=status.phases,
            ended=status.ended,
            failed_launches=status.failed_launches,
            waits=status.waits,
        )
        await self._store.create(keys.beat(self.run, self.epoch, beat.number), beat.to_bytes())
        self._number = beat.number
        if not await self.verify():
            return False
        self._trusted_until = before + self._timing.trust_s
        self._watch_silence()
        await self.heed()
        return True

    async def release(self, reason: ReleaseReason, detail: str = "") -> None:
        """Let go: the next driver need not wait. A store that fails now only makes it wait."""
        made = Release(epoch=self.epoch, at=time.time(), reason=reason, detail=detail)
        with contextlib.suppress(StoreError):
            await self._store.create(keys.release(self.run, self.epoch), made.to_bytes())

    def _watch_silence(self) -> None:
        """Sound the alarm when there is no sign of life until the trust is used up; each one sets it anew."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_later(self._timing.trust_s, self._silent)

    def _silent(self) -> None:
        if self.on_silence is not None:
            self.on_silence(self._timing.trust_s)

    async def heed(self) -> None:
        """Stop if that is what a person wants, also since before this driver had the run. Raises StoreError."""
        if self._stopping or self.on_stop is None:
            return
        while not is_stop(self._wish):
            later = await next_wish(self._store, self.run, 0 if self._wish is None else self._wish.number)
            if later is None:
                return
            self._wish = later
        if self._wish is not None and not self._stopping:
            self._stopping = True
            await self.on_stop(self._wish)


async def take_run(
    store: ObjectStore, run: str, writer_id: str, timing: Timing, waiting: Callable[[Holder], None]
) -> Claim:
    """Claim a run for this process.

    ``waiting`` is told when an earlier driver has to be given a term to show that it lives. Raises HeldError when it does or when
    another driver was faster, RefusedError when the run is being removed, and StoreError.
    """
    holder = await read_holder(store, run)
    if holder is not None and holder.release is None and not holder.gone:
        waiting(holder)
        await wait_for_silence(store, holder, timing)
    epoch = 1 if holder is None else holder.claim.epoch + 1
    claim = Claim(
        run=run, epoch=epoch, writer_id=writer_id, process=this_process(), at=time.time(), term_s=timing.term_s
    )
    key = keys.claim(run, epoch)
    if await store.create(key, claim.to_bytes()):
        await _refuse_removed(store, claim)
        return claim
    other = await read_holder(store, run)
    raise HeldError(_held(run, other or holder))


async def _refuse_removed(store: ObjectStore, claim: Claim) -> None:
    """Let go of a run that is being removed. Who removes it says so before it looks for claims: one of both sees the other."""
    removal = await removed_run(store, claim.run)
    if removal is not None:
        made = Release(epoch=claim.epoch, at=time.time(), reason="removed")
        await store.create(keys.release(claim.run, claim.epoch), made.to_bytes())
        raise RefusedError(describe(claim.run, removal))


async def wait_for_silence(store: ObjectStore, holder: Holder, timing: Timing) -> None:
    """Return once the holder let go or was silent for a whole term.

    Raises HeldError on a sign of life, StoreError when it cannot be read.
    """
    run, epoch = holder.claim.run, holder.claim.epoch
    number = 0 if holder.beat is None else holder.beat.number
    until = timing.clock() + max(timing.term_s, holder.claim.term_s)
    while timing.clock() < until:
        await asyncio.sleep(min(timing.beat_s, max(0.0, until - timing.clock())))
        if await store.exists(keys.release(run, epoch)):
            return
        if await store.exists(keys.beat(run, epoch, number + 1)):
            raise HeldError(_held(run, holder))


def _held(run: str, holder: Holder | None) -> str:
    who = "another process" if holder is None else str(holder)
    return f"run {run} is driven by {who}; nothing was started"


@contextlib.asynccontextmanager
async def drive_run(
    store: ObjectStore,
    run: str,
    writer_id: str,
    *,
    status: Callable[[], Status] = Status,
    waiting: Callable[[Holder], None] = lambda holder: None,
    timing: Timing | None = None,
    attended: bool = True,
) -> AsyncIterator[Lease]:
    """Take a run, renew the claim while the context is open, let go at its end.

    ``attended``: a person wants that the run goes on, which lifts a stop that was wanted before. Otherwise it is heeded.

    When another driver takes the run, the body is cancelled and LeaseLostError comes out. Raises RefusedError when the run is held, and
    StoreError.
    """
    timing = timing or Timing()
    seen = await last_wish(store, run)  # what comes after it stands, whoever takes the run
    claim = await take_run(store, run, writer_id, timing, waiting)
    if attended:
        seen = await lift(store, run, seen)
    lease = Lease(store, claim, timing, status, seen)
    ending: tuple[ReleaseReason, str] = ("failed", "")
    try:
        async with beside(lease.renew_for_ever()):
            yield lease
        ending = lease.ending or ("ended", "")
    except asyncio.CancelledError:
        ending = lease.ending or ("stopped", "at once")
        raise
    except OrchestrateError as error:
        ending = ("failed", str(error))
        raise
    finally:
        if lease.lost is None:
            await lease.release(*ending)
