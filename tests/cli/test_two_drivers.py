"""Two drivers on one run, as processes: one sleeps through its term, another takes the run, the first wakes up."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fire import Battle, await_that, check_nothing_left, check_result, check_rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def battle(tmp_path: Path) -> Iterator[Battle]:
    here = Battle(tmp_path)
    yield here
    here.end()


def put_to_sleep(battle: Battle, dice: random.Random):
    """Start a driver and stop it at some moment of its run; it notices nothing."""
    first = battle.submit()
    claim = battle.store / "leases" / battle.run_id / "claims/000001.json"
    assert await_that(claim.exists, 120), battle.log
    time.sleep(dice.uniform(0, 2.5))  # the moment is what is varied
    first.send_signal(signal.SIGSTOP)
    return first


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_driver_that_wakes_up_too_late_writes_nothing(battle: Battle, seed: int) -> None:
    first = put_to_sleep(battle, random.Random(seed))
    if first.poll() is not None:
        pytest.skip("it had ended")
    second = battle.resume()
    assert second.wait(200) == 0, battle.log
    before = battle.objects()
    first.send_signal(signal.SIGCONT)
    code = first.wait(90)
    after = battle.objects()
    written = {key for key in after if key not in before}
    assert not {key for key in before if before[key] != after.get(key)}
    # A sign of life that was on its way is under its own epoch, where nobody looks any more.
    assert not {key for key in written if f"leases/{battle.run_id}/beats/000001/" not in key}, (written, battle.log)
    assert len(written) <= 1
    assert code == 5, battle.log
    assert "was taken over by process" in battle.log
    assert "this driver (epoch 1)" in battle.log
    check_result(after, battle.log)
    check_rows(battle)
    check_nothing_left(battle)


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_driver_that_wakes_up_while_another_works_stops(battle: Battle, seed: int) -> None:
    dice = random.Random(100 + seed)
    first = put_to_sleep(battle, dice)
    second = battle.resume()
    taken = battle.store / "leases" / battle.run_id / "claims/000002.json"
    await_that(lambda: taken.exists() or second.poll() is not None, 120)
    time.sleep(dice.uniform(0, 2))
    first.send_signal(signal.SIGCONT)
    codes = (first.wait(90), second.wait(200))
    assert codes == (5, 0), (codes, battle.log)
    check_result(battle.objects(), battle.log)
    check_rows(battle)
    check_nothing_left(battle)


def test_a_driver_that_wakes_up_in_time_keeps_its_run(battle: Battle) -> None:
    first = put_to_sleep(battle, random.Random(1))
    second = battle.resume()
    assert await_that(lambda: "waiting to see whether process" in battle.log, 60)
    first.send_signal(signal.SIGCONT)
    assert first.wait(120) == 0, battle.log
    refused = f"run {battle.run_id} is driven by process {first.pid} on "
    # It hears a sign of life, or it hears that the run was let go, with nothing left to do.
    assert second.wait(120) == (2 if refused in battle.log else 0), battle.log
    check_result(battle.objects(), battle.log)
    check_nothing_left(battle)
