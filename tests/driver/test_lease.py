"""Two drivers on one run: one of them writes, the other one knows."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from orchestrator.driver.lease import Holder, Lease, LeaseView, Status, Timing, drive_run, read_holder, take_run
from orchestrator.driver.process import is_gone, this_process
from orchestrator.errors import LeaseLostError, RefusedError, StoreError
from orchestrator.records import keys
from orchestrator.records.lease import Claim, Release
from orchestrator.storage.file import FileStore


def sync(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


QUICK = Timing(term_s=0.3)


def waits_for_nobody(holder: Holder) -> None:
    pytest.fail(f"waited for {holder}")


class Fragile(FileStore):
    """A store that can be away."""

    away = False

    async def create(self, key: str, data: bytes) -> bool:
        self._answer()
        return await super().create(key, data)

    async def get(self, key: str) -> bytes:
        self._answer()
        return await super().get(key)

    async def exists(self, key: str) -> bool:
        self._answer()
        return await super().exists(key)

    def _answer(self) -> None:
        if self.away:
            msg = "503"
            raise StoreError(msg)


@pytest.fixture
def store(tmp_path: Path) -> Fragile:
    return Fragile(tmp_path)


async def silent_claim(store: FileStore, *, epoch: int = 1) -> Claim:
    """A driver on a machine that we cannot look into, which gives no sign of life."""
    process = this_process().model_copy(update={"host": "elsewhere", "boot": "another"})
    claim = Claim(run="r", epoch=epoch, writer_id=f"w{epoch}", process=process, at=0, term_s=QUICK.term_s)
    assert await store.create(keys.claim("r", epoch), claim.to_bytes())
    return claim


@sync
async def test_epochs_count_on_and_a_release_needs_no_waiting(store: Fragile) -> None:
    for epoch in (1, 2, 3):
        async with drive_run(store, "r", "w", timing=QUICK, waiting=waits_for_nobody) as lease:
            assert lease.epoch == epoch
            await lease.hold()
    holder = await read_holder(store, "r")
    assert holder is not None
    assert holder.release is not None
    assert holder.release.reason == "ended"


@sync
async def test_a_living_driver_keeps_its_run(store: Fragile) -> None:
    async with drive_run(store, "r", "first", timing=QUICK) as lease:
        with pytest.raises(RefusedError, match=f"run r is driven by process {os.getpid()} on "):
            await take_run(store, "r", "second", QUICK, lambda _: None)
        await lease.hold()


@sync
async def test_a_silent_driver_loses_its_run_after_a_term(store: Fragile) -> None:
    await silent_claim(store)
    heard: list[str] = []
    claim = await take_run(store, "r", "second", QUICK, lambda holder: heard.append(str(holder)))
    assert (claim.epoch, len(heard)) == (2, 1)


@sync
async def test_a_dead_process_of_this_machine_needs_no_waiting(store: Fragile) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    process = this_process().model_copy(update={"pid": child.pid})
    started = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])
    process = process.model_copy(update={"started": started})
    assert not is_gone(process)
    child.kill()
    child.wait()
    assert is_gone(process)
    claim = Claim(run="r", epoch=1, writer_id="w", process=process, at=0, term_s=1000)
    await store.create(keys.claim("r", 1), claim.to_bytes())
    assert (await take_run(store, "r", "second", QUICK, waits_for_nobody)).epoch == 2


def test_another_process_of_the_same_number_is_not_the_driver() -> None:
    here = this_process()
    assert not is_gone(here)
    assert here.started is not None
    assert is_gone(here.model_copy(update={"started": here.started - 1}))
    for unknown in ("boot", "namespace", "started"):
        assert not is_gone(here.model_copy(update={unknown: None, "pid": 1 << 22}))
    assert not is_gone(here.model_copy(update={"boot": "another machine", "pid": 1 << 22}))


@sync
async def test_fifty_takers_have_one_winner(store: Fragile) -> None:
    await silent_claim(store)

    async def take(name: str) -> int | None:
        try:
            return (await take_run(store, "r", name, QUICK, lambda _: None)).epoch
        except RefusedError:
            return None

    taken = await asyncio.gather(*(take(str(n)) for n in range(50)))
    assert [each for each in taken if each is not None] == [2]


_TAKING = """
import asyncio, sys
from pathlib import Path
from orchestrator.driver.lease import Timing, take_run
from orchestrator.errors import RefusedError
from orchestrator.storage.file import FileStore

async def take(name):
    try:
        return (await take_run(FileStore(Path(sys.argv[1])), "r", name, Timing(term_s=0.3), lambda _: None)).epoch
    except RefusedError:
        return 0

async def main():
    print("ready", flush=True)
    sys.stdin.read()
    print(*await asyncio.gather(*(take(f"{sys.argv[2]}-{n}") for n in range(10))), flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
def test_fifty_takers_in_five_processes_have_one_winner(store: Fragile) -> None:
    asyncio.run(silent_claim(store))
    words = [sys.executable, "-c", _TAKING, str(store.root)]
    takers = [
        subprocess.Popen([*words, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for n in range(5)
    ]
    for taker in takers:
        assert taker.stdout is not None
        assert taker.stdout.readline() == "ready\n"
    for taker in takers:
        assert taker.stdin is not None
        taker.stdin.close()  # everybody starts at once
    epochs = []
    for taker in takers:
        assert taker.stdout is not None
        epochs += taker.stdout.read().split()
        taker.stdout.close()
        assert taker.wait() == 0
    assert sorted(epochs) == ["0"] * 49 + ["2"]
    assert asyncio.run(store.list(keys.claims("r"))) == [keys.claim("r", 1), keys.claim("r", 2)]


@sync
async def test_the_loser_is_cancelled_and_says_who_has_the_run(store: Fragile) -> None:
    async def drive() -> None:
        async with drive_run(store, "r", "first", timing=QUICK):
            await silent_claim(store, epoch=2)
            await asyncio.sleep(30)

    with pytest.raises(LeaseLostError, match=r"taken over by process \d+ on elsewhere \(epoch 2\)"):
        await drive()
    assert not await store.exists(keys.release("r", 1))


@sync
async def test_a_driver_that_could_not_renew_reads_before_it_writes(store: Fragile) -> None:
    now = [0.0]
    view = LeaseView(store, "r", 1, Timing(clock=lambda: now[0]))
    await silent_claim(store)
    await view.hold()
    await silent_claim(store, epoch=2)
    with pytest.raises(LeaseLostError):
        await view.hold()


@sync
async def test_a_driver_that_was_taken_over_while_it_slept_gives_no_sign_of_life(store: Fragile) -> None:
    now = [0.0]
    claim = await silent_claim(store)
    lease = Lease(store, claim, Timing(term_s=15, clock=lambda: now[0]), drive_status)
    assert await lease.beat()
    await silent_claim(store, epoch=2)
    before, now[0] = await store.list(""), 60.0
    assert not await lease.beat()
    assert await store.list("") == before


@sync
async def test_a_store_that_stays_away_is_not_waited_for_for_ever(store: Fragile) -> None:
    now = [0.0]
    view = LeaseView(store, "r", 1, Timing(patience_s=600, clock=lambda: now[0]))
    store.away = True
    holding = asyncio.create_task(view.hold())
    await asyncio.sleep(0.05)
    assert not holding.done()
    now[0] = 601.0
    with pytest.raises(StoreError, match="503"):
        await asyncio.wait_for(holding, 30)


@sync
async def test_a_silent_store_is_told_of_once_for_each_silence(store: Fragile) -> None:
    told: list[float] = []
    async with drive_run(store, "r", "w", timing=QUICK) as lease:
        lease.on_silence = told.append
        await asyncio.sleep(0.15)
        assert told == []
        store.away = True
        while not told:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)
        assert told == [QUICK.trust_s]
        store.away = False


def test_a_process_that_is_hidden_from_us_is_not_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    here = this_process()
    monkeypatch.setattr(
        "orchestrator.driver.process._read", lambda path: None if "stat" in str(path) else path.read_text().strip()
    )

    def refused(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    assert not is_gone(here)


@sync
async def test_a_renewed_claim_is_trusted_for_two_thirds_of_its_term(store: Fragile) -> None:
    now = [0.0]
    claim = await silent_claim(store)
    lease = Lease(store, claim, Timing(term_s=15, clock=lambda: now[0]), drive_status)
    await lease.beat()
    await silent_claim(store, epoch=2)
    now[0] = 9.9
    await lease.hold()
    now[0] = 10.1
    with pytest.raises(LeaseLostError):
        await lease.hold()


def drive_status() -> Status:
    return Status({"running": 2}, 7, {"gateway": 1})


@sync
async def test_a_mistake_that_ends_the_signs_of_life_ends_the_driver(store: Fragile) -> None:
    def status() -> Status:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(5), drive_run(store, "r", "w", timing=QUICK, status=status):
            await asyncio.Event().wait()
    holder = await read_holder(store, "r")
    assert holder is not None
    assert holder.release is not None
    assert holder.release.reason == "failed"


def test_a_process_whose_clock_has_an_offset_is_not_taken_for_another() -> None:
    name = this_process().model_dump_json()
    code = f"from orchestrator.driver.process import *; print(is_gone(Process.model_validate_json({name!r})))"
    shifted = subprocess.run(
        ["unshare", "--time", "--fork", "--boottime", "1000", sys.executable, "-c", code],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "unshare" in shifted.stderr:
        pytest.skip("no name spaces of time here")
    assert shifted.stdout.strip() == "False", shifted.stderr


@sync
async def test_signs_of_life_tell_how_far_it_is(store: Fragile) -> None:
    async with drive_run(store, "r", "w", timing=QUICK, status=drive_status) as lease:
        await lease.beat()
        holder = await read_holder(store, "r")
    assert holder is not None
    assert holder.beat is not None
    assert (holder.beat.phases, holder.beat.ended, holder.beat.failed_launches) == ({"running": 2}, 7, {"gateway": 1})


@sync
async def test_a_store_that_is_away_is_waited_for(store: Fragile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.driver.lease._PAUSE_SECONDS", 0.01)
    async with drive_run(store, "r", "w", timing=QUICK) as lease:
        store.away = True
        await asyncio.sleep(0.5)
        holding = asyncio.create_task(lease.hold())
        await asyncio.sleep(0.05)
        assert not holding.done()
        store.away = False
        await asyncio.wait_for(holding, 5)


@sync
async def test_the_reason_of_a_release_is_what_happened(store: Fragile) -> None:
    async with drive_run(store, "r", "w1", timing=QUICK) as lease:
        lease.ending = ("stopped", "by anna@here")
    with pytest.raises(StoreError):
        async with drive_run(store, "r", "w2", timing=QUICK):
            raise StoreError("no room")
    driving = asyncio.create_task(drive_for_ever(store))
    while not await store.exists(keys.beat("r", 3, 1)):
        await asyncio.sleep(0.01)
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    told = [Release.from_bytes(await store.get(keys.release("r", epoch))) for epoch in (1, 2, 3)]
    assert [(each.reason, each.detail) for each in told] == [
        ("stopped", "by anna@here"),
        ("failed", "no room"),
        ("stopped", "at once"),
    ]


async def drive_for_ever(store: FileStore) -> None:
    async with drive_run(store, "r", "w3", timing=QUICK):
        await asyncio.sleep(30)
