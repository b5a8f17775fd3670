"""What every pool promises: each trial once, a stop that keeps what ran, a breaker, a limit, errors that come out."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from pool_world import World, manifest_of, open_pool

from orchestrator.driver.committed import load_committed
from orchestrator.driver.execute import execute, what_is_left
from orchestrator.driver.ray import pool
from orchestrator.errors import InfrastructureError, LeaseLostError, SpendingLimitError, StoreError
from orchestrator.plan.trials import all_trials
from orchestrator.records.ids import launch_id
from orchestrator.records.outcome import Outcome
from orchestrator.trial.allowance import Unlimited

every_kind = pytest.mark.parametrize("kind", ["inline", "ray"])


def drive(work):
    async def limited():
        async with asyncio.timeout(40):
            return await work

    return asyncio.run(limited())


async def results(world) -> Counter[str]:
    committed = await load_committed(world.store, "r1")
    every = [outcome for launches in committed.outcomes.values() for outcome in launches]
    return Counter(outcome.trial for outcome in every if outcome.outcome_class == "result")


@every_kind
def test_each_trial_ends_once_and_no_more_run_at_one_time_than_asked(tmp_path: Path, kind: str) -> None:
    world, manifest = World(tmp_path, seconds=0.01), manifest_of(30)

    async def work():
        async with open_pool(kind, world, manifest, (2, 1)) as driven:
            execution = await execute(manifest, world.store, driven.pool, driven.breaker)
            assert (execution.ended, execution.left, execution.lost) == (30, 0, ())
            assert Counter(end.trial for end in driven.heard.ends) == {each.id: 1 for each in all_trials(manifest)}
            assert all(end.verdict is not None for end in driven.heard.ends)
        assert set(world.launched.values()) == {1}
        assert 1 < world.most <= 3
        assert (await results(world)).total() == 30

    drive(work())


@every_kind
def test_what_is_committed_and_not_graded_is_graded(tmp_path: Path, kind: str) -> None:
    world, manifest = World(tmp_path), manifest_of(4)

    async def work():
        async with open_pool(kind, world, manifest) as driven:
            await execute(manifest, world.store, driven.pool, driven.breaker)
        for path in (tmp_path / "store/grades").rglob("*.json"):
            path.unlink()
        async with open_pool(kind, world, manifest) as driven:
            execution = await execute(manifest, world.store, driven.pool, driven.breaker)
            assert (execution.ended, execution.left) == (4, 0)
        assert set(world.launched.values()) == {1}

    drive(work())


@every_kind
def test_a_failure_of_ours_is_another_launch_and_max_launches_end_it(tmp_path: Path, kind: str) -> None:
    world, manifest = World(tmp_path), manifest_of(3, max_launches=2)
    world.fail = lambda trial, launch: "broken" if trial == "t@a:1" or launch == 1 else None

    async def work():
        async with open_pool(kind, world, manifest) as driven:
            execution = await execute(manifest, world.store, driven.pool, driven.breaker)
        assert (execution.ended, execution.left, [str(lost) for lost in execution.lost]) == (3, 0, ["t@a:1"])
        assert world.launched == {(f"t@a:{n}", launch): 1 for n in (1, 2, 3) for launch in (1, 2)}

    drive(work())


@every_kind
def test_a_stop_keeps_what_runs_and_starts_no_more(tmp_path: Path, kind: str) -> None:
    world, manifest = World(tmp_path, seconds=30), manifest_of(20)

    async def work():
        async with open_pool(kind, world, manifest) as driven:
            running = asyncio.ensure_future(execute(manifest, world.store, driven.pool, driven.breaker))
            while world.running < 4:
                await asyncio.sleep(0.01)
            await driven.pool.stop()
            execution = await running
            assert {end.outcome.termination_reason for end in driven.heard.ends} == {"cancelled"}
        assert (execution.ended, execution.left, sum(world.launched.values())) == (4, 20, 4)

    drive(work())


@every_kind
def test_ten_equal_failures_pause_the_run(tmp_path: Path, kind: str) -> None:
    world, manifest = World(tmp_path, fail=lambda trial, launch: "disk"), manifest_of(50)

    async def work():
        async with open_pool(kind, world, manifest) as driven:
            execution = await execute(manifest, world.store, driven.pool, driven.breaker)
        assert execution.paused is not None
        assert execution.paused.cause == "disk"
        assert execution.left > 30

    drive(work())


class Purse(Unlimited):
    """Allows so many launches."""

    def __init__(self, launches: int) -> None:
        self.left = launches
        self.settled = 0

    async def reserve(self, planned, launch) -> None:
        if planned.left:
            return
        if not self.left:
            raise SpendingLimitError("nothing is left", enough_usd=2.5)
        self.left -= 1

    async def settle(self, outcome: Outcome) -> None:
        self.settled += 1


@every_kind
def test_a_limit_lets_what_runs_end_and_says_how_much_would_be_enough(tmp_path: Path, kind: str) -> None:
    world, manifest, purse = World(tmp_path, seconds=0.05), manifest_of(20), Purse(7)
    world.allowance = purse

    async def work():
        async with open_pool(kind, world, manifest) as driven:
            execution = await execute(manifest, world.store, driven.pool, driven.breaker)
        assert (execution.ended, execution.left) == (7, 13)
        assert execution.limited is not None
        assert execution.limited.enough_usd == 2.5
        assert purse.settled == 7

    drive(work())


@every_kind
@pytest.mark.parametrize(("halt", "reason"), [("stop", "cancelled"), ("limit", "completed"), ("both", "cancelled")])
def test_what_was_left_is_taken_over_whatever_keeps_others_from_starting(
    tmp_path: Path, kind: str, halt: str, reason: str
) -> None:
    world, manifest = World(tmp_path, seconds=0.05 if halt == "limit" else 30, adopts=True), manifest_of(6)
    world.allowance = Unlimited() if halt == "stop" else Purse(0)
    left = {launch_id("r1", each.id, 1) for each in all_trials(manifest)[3:5]}

    async def left_behind() -> set[str]:
        return left

    async def work():
        async with open_pool(kind, world, manifest) as driven:
            if halt != "limit":
                await driven.pool.stop()
            execution = await execute(manifest, world.store, driven.pool, driven.breaker, left_behind)
            ends = {str(end.trial): end.outcome.termination_reason for end in driven.heard.ends}
        assert ends == dict.fromkeys(("t@a:4", "t@a:5"), reason)
        assert set(world.launched) == {("t@a:4", 1), ("t@a:5", 1)}
        assert (execution.ended, execution.left) == (2, 4 if reason == "completed" else 6)
        assert (execution.limited is not None) == (halt == "limit")

    drive(work())


def test_what_was_left_to_a_supervisor_that_dies_is_handed_out_again_though_the_limit_is_met(tmp_path: Path) -> None:
    world, manifest = World(tmp_path, seconds=0.4, adopts=True), manifest_of(6)
    world.allowance = Purse(0)
    left = {launch_id("r1", each.id, 1) for each in all_trials(manifest)[:3]}

    async def left_behind() -> set[str]:
        return left

    async def work():
        async with open_pool("ray", world, manifest) as driven:
            running = asyncio.ensure_future(execute(manifest, world.store, driven.pool, driven.breaker, left_behind))
            while world.running < 3:
                await asyncio.sleep(0.01)
            for each in (driven.actors.coordinator, *driven.actors.supervisors):
                await each.kill()
            execution = await running
        assert (execution.ended, execution.left) == (3, 3)
        assert (await results(world)) == {f"t@a:{n}": 1 for n in (1, 2, 3)}

    drive(work())


@every_kind
@pytest.mark.parametrize("stopped", [True, False])
def test_a_stop_that_came_before_grades_what_is_committed(tmp_path: Path, kind: str, stopped: bool) -> None:
    world, manifest = World(tmp_path), manifest_of(8)

    async def work():
        async with open_pool(kind, world, manifest) as driven:
            await execute(manifest, world.store, driven.pool, driven.breaker)
        for path in (tmp_path / "store/grades").rglob("*.json"):
            path.unlink()
        graded = 0
        async with open_pool(kind, world, manifest, (1,)) as driven:
            if stopped:
                await driven.pool.stop()
            left = await what_is_left(manifest, world.store)
            async for _ in driven.pool.grade(manifest, left.to_grade):
                graded += 1
                await driven.pool.stop()
        return graded

    graded = drive(work())
    assert graded == 8 if stopped else graded < 8


class Failing:
    """A store that takes no outcome after a while."""

    def __init__(self, inner, outcomes: int) -> None:
        self.inner, self.outcomes = inner, outcomes

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def create(self, key: str, data: bytes) -> bool:
        if key.startswith("outcomes/"):
            self.outcomes -= 1
            if self.outcomes < 0:
                raise StoreError("the disk is full", cause="disk_full")
        return await self.inner.create(key, data)


@every_kind
def test_an_outcome_that_cannot_be_committed_comes_out_and_nothing_runs_on(tmp_path: Path, kind: str) -> None:
    world, manifest = World(tmp_path, seconds=0.05), manifest_of(20)
    world.store = Failing(world.store, 5)

    async def work():
        async with open_pool(kind, world, manifest) as driven:
            with pytest.raises(StoreError, match="the disk is full") as caught:
                await execute(manifest, world.store, driven.pool, driven.breaker)
        assert caught.value.cause == "disk_full"
        assert world.running == 0
        assert (await results(world)).total() == 5

    drive(work())


@every_kind
def test_a_lost_lease_comes_out_and_nothing_is_written_after(tmp_path: Path, kind: str) -> None:
    world, manifest = World(tmp_path), manifest_of(20)

    async def hold() -> None:
        if (await results(world)).total() >= 6:
            raise LeaseLostError("another driver has it")

    world.hold = hold

    async def work():
        async with open_pool(kind, world, manifest, (1,)) as driven:
            with pytest.raises(LeaseLostError, match="another driver has it"):
                await execute(manifest, world.store, driven.pool, driven.breaker)
        assert (await results(world)).total() == 6

    drive(work())


@every_kind
def test_a_mistake_of_ours_comes_out(tmp_path: Path, kind: str) -> None:
    def fail(trial: str, launch: int) -> str:
        raise ZeroDivisionError

    world, manifest = World(tmp_path, fail=fail), manifest_of(4)

    async def work():
        async with open_pool(kind, world, manifest) as driven:
            with pytest.raises(ZeroDivisionError):
                await execute(manifest, world.store, driven.pool, driven.breaker)

    drive(work())


@pytest.mark.parametrize("seed", range(4))
def test_killed_actors_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    world, manifest, dice = World(tmp_path, seconds=0.03), manifest_of(40, max_launches=20), random.Random(seed)

    async def kills(actors):
        while True:
            await asyncio.sleep(dice.uniform(0.05, 0.3))
            victims = dice.choice([[actors.coordinator], [dice.choice(actors.supervisors)], [*actors.supervisors]])
            both = [actors.coordinator, *victims] if dice.random() < 0.2 else victims
            await asyncio.gather(*(victim.kill() for victim in both))

    async def work():
        async with open_pool("ray", world, manifest) as driven:
            killer = asyncio.ensure_future(kills(driven.actors))
            asyncio.get_running_loop().call_later(2, killer.cancel)
            execution = await execute(manifest, world.store, driven.pool, driven.breaker)
            killer.cancel()
            assert (execution.ended, execution.left, execution.lost) == (40, 0, ())
            assert Counter(end.trial for end in driven.heard.ends) == {each.id: 1 for each in all_trials(manifest)}
            assert driven.actors.coordinator.deaths
        assert set((await results(world)).values()) == {1}
        assert set(world.launched.values()) == {1}, "a launch was started twice"
        committed = await load_committed(world.store, "r1")
        for launches in committed.outcomes.values():
            assert [outcome.launch for outcome in launches] == list(range(1, len(launches) + 1))
            assert all(outcome.cause == "supervisor_lost" for outcome in launches[:-1])

    drive(work())


def test_a_trial_that_kills_its_supervisor_is_given_up_after_max_launches(tmp_path: Path) -> None:
    world, manifest = World(tmp_path, seconds=30), manifest_of(1, max_launches=3)

    async def work():
        async with open_pool("ray", world, manifest, (1,)) as driven:
            running = asyncio.ensure_future(execute(manifest, world.store, driven.pool, driven.breaker))
            for launch in (1, 2, 3):
                while world.launched["t@a:1", launch] == 0:
                    await asyncio.sleep(0.01)
                await driven.actors.supervisors[0].kill()
            execution = await running
        assert [str(lost) for lost in execution.lost] == ["t@a:1"]
        assert (await what_is_left(manifest, world.store)).given_up

    drive(work())


def test_a_lost_cluster_pauses_the_run_with_its_cause(tmp_path: Path) -> None:
    world, manifest = World(tmp_path, seconds=30), manifest_of(4)

    async def work():
        async with open_pool("ray", world, manifest) as driven:
            running = asyncio.ensure_future(execute(manifest, world.store, driven.pool, driven.breaker))
            await world.started.wait()
            driven.pool._cluster.lost.set_result("raylet")
            with pytest.raises(InfrastructureError, match="raylet died") as caught:
                await running
        assert caught.value.cause == "ray_lost"

    drive(work())


def test_one_death_among_many_trials_does_not_pause_the_run(tmp_path: Path) -> None:
    world, manifest = World(tmp_path, seconds=0.3), manifest_of(24)

    async def work():
        async with open_pool("ray", world, manifest, (12, 12)) as driven:
            running = asyncio.ensure_future(execute(manifest, world.store, driven.pool, driven.breaker))
            while world.running < 24:
                await asyncio.sleep(0.01)
            await driven.actors.supervisors[0].kill()
            execution = await running
        assert (execution.ended, execution.left, execution.paused) == (24, 0, None)

    drive(work())


class Narrow(Unlimited):
    """Covers so many launches at one time; the others wait."""

    def __init__(self, most: int) -> None:
        self.turns = asyncio.Semaphore(most)
        self.waiting = 0
        self.costs: list[int | None] = []

    async def reserve(self, planned, launch) -> None:
        self.waiting += 1
        await self.turns.acquire()
        self.waiting -= 1

    async def settle(self, outcome: Outcome) -> None:
        self.costs.append(outcome.usage.cost_nano_usd)
        self.turns.release()

    async def forfeit(self, trial, launch) -> None:
        self.turns.release()


def test_launches_that_waited_with_a_dead_supervisor_are_neither_used_up_nor_paid_for(tmp_path: Path) -> None:
    world, manifest = World(tmp_path, seconds=0.2), manifest_of(8)
    world.allowance = allowance = Narrow(1)

    async def work():
        async with open_pool("ray", world, manifest, (4, 4)) as driven:
            running = asyncio.ensure_future(execute(manifest, world.store, driven.pool, driven.breaker))
            while not (world.running == 1 and allowance.waiting == 7):
                await asyncio.sleep(0.01)
            for supervisor in driven.actors.supervisors:
                await supervisor.kill()
            execution = await running
        assert (execution.ended, execution.left) == (8, 0)
        lost = [
            outcome for each in (await load_committed(world.store, "r1")).outcomes.values() for outcome in each[:-1]
        ]
        assert [outcome.cause for outcome in lost] == ["supervisor_lost"]
        assert sum(world.launched.values()) == 9
        assert len(allowance.costs) == 9

    drive(work())


def test_a_clock_that_is_set_back_does_not_keep_a_successor_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, manifest = World(tmp_path, seconds=0.3), manifest_of(4)

    async def work():
        async with open_pool("ray", world, manifest, (1, 1)) as driven:
            running = asyncio.ensure_future(execute(manifest, world.store, driven.pool, driven.breaker))
            while world.running < 2:
                await asyncio.sleep(0.01)
            hour_ago = time.time() - 3600
            monkeypatch.setattr(time, "time", lambda: hour_ago)
            await driven.actors.supervisors[0].kill()
            async with asyncio.timeout(10):
                execution = await running
        assert (execution.ended, execution.left) == (4, 0)

    drive(work())


def test_an_actor_that_takes_long_to_come_back_died_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, manifest = World(tmp_path, seconds=0.05), manifest_of(6)
    monkeypatch.setattr(pool, "_PAUSE_SECONDS", 0.001)

    async def work():
        async with open_pool("ray", world, manifest) as driven:
            running = asyncio.ensure_future(execute(manifest, world.store, driven.pool, driven.breaker))
            while world.running < 4:
                await asyncio.sleep(0.01)
            for each in (driven.actors.coordinator, *driven.actors.supervisors):
                each.away = 40
                await each.kill()
            execution = await running
            assert [each.away for each in (driven.actors.coordinator, *driven.actors.supervisors)] == [0, 0, 0]
        assert (execution.ended, execution.left) == (6, 0)

    drive(work())


def test_an_actor_that_never_comes_back_ends_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, manifest = World(tmp_path, seconds=30), manifest_of(2)
    monkeypatch.setattr(pool, "UP_SECONDS", 0.5)

    async def work():
        async with open_pool("ray", world, manifest, (1, 1)) as driven:
            running = asyncio.ensure_future(execute(manifest, world.store, driven.pool, driven.breaker))
            await world.started.wait()
            driven.actors.supervisors[1].away = 10**9
            await driven.actors.supervisors[1].kill()
            with pytest.raises(
                InfrastructureError, match="supervisor 1 died and Ray has not brought it back"
            ) as caught:
                await running
        assert caught.value.cause == "supervisors_die"

    drive(work())


def test_supervisors_are_asked_for_their_last_rows_and_dead_ones_are_not_waited_for(tmp_path: Path) -> None:
    world, manifest = World(tmp_path), manifest_of(6)

    async def work():
        async with open_pool("ray", world, manifest, (1, 1, 1)) as driven:
            await execute(manifest, world.store, driven.pool, driven.breaker)
            assert await driven.pool.finish() is None  # they stage nothing
            away, refused, _ = driven.actors.supervisors
            await away.kill()
            away.away = 1
            refused.instance()._stager = _Refused()
            assert await driven.pool.finish() == "the store refused them"

    drive(work())


class _Refused:
    """A stager that could not write."""

    problem = "the store refused them"

    async def finish(self) -> None:
        """Try."""
