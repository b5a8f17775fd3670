"""What a run with a spending limit may launch."""

from __future__ import annotations

import asyncio
import pickle
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.driver.purse import Purse, most_by_pair
from orchestrator.errors import RefusedError, SpendingLimitError, StoreError
from orchestrator.plan.trials import all_trials, remaining
from orchestrator.records.ids import TrialId
from orchestrator.records.lease import Reservation
from orchestrator.records.outcome import Outcome
from orchestrator.records.prices import KnownPrice
from orchestrator.records.usage import Usage
from orchestrator.settings import Price
from orchestrator.spec.task import User

sys.path.insert(0, str(Path(__file__).parent))

from purse_world import MemoryStore, costly_run, costly_task, outcome_of, trial

USD = 10**9


async def settled(task: asyncio.Task) -> bool:
    """Return whether the task ended within some turns of the loop."""
    for _ in range(20):
        await asyncio.sleep(0)
    return task.done()


def test_a_launch_is_noted_before_it_starts_and_settled_by_its_outcome() -> None:
    async def live():
        store, run = MemoryStore(), costly_run(costly_task("t", USD))
        purse = await Purse.load(store, run, 3 * USD, 1)
        await purse.reserve(trial(run, "t"), 1)
        (key,) = store.reservations()
        noted, during = Reservation.from_bytes(store.objects[key]), purse.balance
        await purse.settle(outcome_of("t@a:1", 400))
        return noted, during, purse.balance

    noted, during, after = asyncio.run(live())
    assert (noted.trial, noted.launch, noted.epoch, noted.nano_usd) == ("t@a:1", 1, 1, USD)
    assert (during.spent, during.running, during.left) == (0, USD, 2 * USD)
    assert (after.spent, after.running, after.left) == (400, 0, 3 * USD - 400)


def test_the_model_that_plays_a_user_counts_as_well() -> None:
    played = User(mode="model", model="x/u", persona="user.md")
    price = KnownPrice(price=Price(input=1, output=40), source="test")
    task = costly_task("t", 0).model_copy(update={"user": played, "user_price": price})
    most = most_by_pair(costly_run(task, models=()))
    assert most == {("t", "a"): task.budgets.max_tokens * 40_000}  # nano-USD for a token of the dearest kind
    with pytest.raises(RefusedError, match="needs the price of x/u, which plays the user"):
        most_by_pair(costly_run(task.model_copy(update={"user_price": None}), models=()))
    outcome = outcome_of("t@a:1", 5).model_copy(update={"user_usage": Usage(cost_nano_usd=7)})
    assert outcome.spent_nano_usd == 12


def test_a_launch_waits_for_what_may_come_back_and_nobody_overtakes_it() -> None:
    async def live():
        store, run = MemoryStore(), costly_run(costly_task("big", 2 * USD), costly_task("small", USD, samples=2))
        purse = await Purse.load(store, run, 3 * USD, 1)
        await purse.reserve(trial(run, "small", 1), 1)
        await purse.reserve(trial(run, "small", 2), 1)
        big = asyncio.create_task(purse.reserve(trial(run, "big"), 1))
        waited = not await settled(big)
        again = asyncio.create_task(purse.reserve(trial(run, "small", 1), 2))  # it would fit
        overtook = await settled(again)
        await purse.settle(outcome_of("small@a:1", 0, reason="infra_lost"))
        came = await settled(big)
        again.cancel()
        return waited, overtook, came

    assert asyncio.run(live()) == (True, False, True)


def test_a_launch_that_can_never_be_covered_is_refused_with_every_number() -> None:
    async def live():
        store, run = MemoryStore(), costly_run(costly_task("t", USD, samples=3))
        purse = await Purse.load(store, run, 2 * USD, 1)
        await purse.reserve(trial(run, "t", 1), 1)
        await purse.settle(outcome_of("t@a:1", USD * 6 // 10))
        await purse.reserve(trial(run, "t", 2), 1)
        third = asyncio.create_task(purse.reserve(trial(run, "t", 3), 1))
        assert not await settled(third)
        await purse.settle(outcome_of("t@a:2", None))  # a cost that nobody told counts in full
        with pytest.raises(SpendingLimitError) as caught:
            await third
        with pytest.raises(SpendingLimitError):
            await purse.reserve(trial(run, "t", 3), 1)
        return caught.value, len(store.reservations())

    error, noted = asyncio.run(live())
    assert str(error) == (
        "spending limit: $0.60 of $2.00 is spent, $1.00 counts as spent for launches whose cost was never told, "
        "and t@a:3 may cost up to $1.00"
    )
    assert error.enough_usd == 2.6
    assert noted == 2
    assert pickle.loads(pickle.dumps(error)).enough_usd == 2.6


def test_every_launch_counts_also_lost_and_cancelled_ones() -> None:
    async def live():
        store, run = MemoryStore(), costly_run(costly_task("t", USD))
        for launch, reason in enumerate(("infra_lost", "cancelled", "completed"), 1):
            await store.commit(outcome_of("t@a:1", 5, launch=launch, reason=reason))
        return (await Purse.load(store, run, USD, 2)).balance.spent

    assert asyncio.run(live()) == 15


def test_an_unknown_cost_from_before_there_was_a_limit_counts_as_the_most_that_it_can_be() -> None:
    async def live():
        store, run = MemoryStore(), costly_run(costly_task("t", USD, samples=2))
        await store.commit(outcome_of("t@a:1", None))
        return (await Purse.load(store, run, 5 * USD, 2)).balance.unsettled

    assert asyncio.run(live()) == USD


def test_what_a_killed_driver_had_set_aside_counts_as_spent() -> None:
    async def live():
        store, run = MemoryStore(), costly_run(costly_task("t", USD, samples=2))
        killed = await Purse.load(store, run, 5 * USD, 1)
        await killed.reserve(trial(run, "t", 1), 1)
        await killed.reserve(trial(run, "t", 2), 1)
        await store.commit(outcome_of("t@a:2", 7))
        purse = await Purse.load(store, run, 5 * USD, 2)
        resumed = purse.balance
        await purse.reserve(trial(run, "t", 1), 1)  # the same launch under the next epoch
        await purse.settle(await store.commit(outcome_of("t@a:1", 9, epoch=2)))
        return resumed, purse.balance, (await Purse.load(store, run, 5 * USD, 3)).balance

    resumed, after, loaded = asyncio.run(live())
    assert (resumed.spent, resumed.running, resumed.unsettled) == (7, 0, USD)
    assert (after.spent, after.unsettled) == (16, USD)
    assert after == loaded


def test_a_purse_loaded_again_under_its_epoch_waits_for_the_launches_that_run() -> None:
    async def live():
        store, run = MemoryStore(), costly_run(costly_task("t", USD, samples=2))
        first = await Purse.load(store, run, USD, 1)
        await first.reserve(trial(run, "t", 1), 1)
        purse = await Purse.load(store, run, USD, 1)
        await purse.reserve(trial(run, "t", 1), 1)  # asked again: set aside once
        other = asyncio.create_task(purse.reserve(trial(run, "t", 2), 1))
        waited = not await settled(other)
        for _ in range(2):  # told twice: counted once
            await purse.settle(outcome_of("t@a:1", 0))
        return waited, await settled(other), purse.balance.running

    assert asyncio.run(live()) == (True, True, USD)


def test_an_outcome_of_another_driver_settles_its_launch_and_not_ours() -> None:
    async def live():
        store, run = MemoryStore(), costly_run(costly_task("t", USD))
        slow = await Purse.load(store, run, 5 * USD, 1)
        await slow.reserve(trial(run, "t"), 1)
        purse = await Purse.load(store, run, 5 * USD, 2)
        await purse.reserve(trial(run, "t"), 1)
        await store.commit(outcome_of("t@a:1", 9, epoch=1))
        await purse.settle(await store.commit(outcome_of("t@a:1", 5, epoch=2)))
        return purse.balance, (await Purse.load(store, run, 5 * USD, 2)).balance

    here, loaded = asyncio.run(live())
    assert (here.spent, here.running, here.unsettled) == (9, 0, USD)
    assert here == loaded


def test_a_forfeited_launch_lets_nobody_wait_for_ever() -> None:
    async def live():
        store, run = MemoryStore(), costly_run(costly_task("t", USD, samples=2))
        purse = await Purse.load(store, run, USD, 1)
        await purse.reserve(trial(run, "t", 1), 1)
        other = asyncio.create_task(purse.reserve(trial(run, "t", 2), 1))
        assert not await settled(other)
        await purse.forfeit(TrialId("t", "a", 1), 1)
        with pytest.raises(SpendingLimitError, match="counts as spent"):
            await other

    asyncio.run(live())


def test_a_marker_that_cannot_be_written_launches_nothing_and_may_be_there() -> None:
    class Broken(MemoryStore):
        async def create(self, key, data):
            raise StoreError("the disk is full")

    async def live():
        run = costly_run(costly_task("t", USD))
        purse = await Purse.load(Broken(), run, USD, 1)
        with pytest.raises(StoreError, match="disk is full"):
            await purse.reserve(trial(run, "t"), 1)
        return purse.balance

    balance = asyncio.run(live())
    assert (balance.running, balance.unsettled) == (0, USD)


def test_agents_without_models_cost_nothing_and_leave_no_marker() -> None:
    async def live():
        store, run = MemoryStore(), costly_run(costly_task("t", USD), models=())
        purse = await Purse.load(store, run, 1, 1)
        await purse.reserve(trial(run, "t"), 1)
        return store.objects

    assert asyncio.run(live()) == {}


def test_a_limit_needs_every_price() -> None:
    async def live():
        with pytest.raises(RefusedError, match="agent a: "):
            await Purse.load(MemoryStore(), costly_run(costly_task("t", 0), models=("x/m", "x/n")), 1, 1)

    asyncio.run(live())


class Driving:
    """One run driven by some workers, killed now and then; knows what was really spent."""

    def __init__(self, dice: random.Random, costs: list[int], limit: int, workers: int) -> None:
        self.dice, self.limit, self.workers = dice, limit, workers
        tasks = [costly_task(f"t{n}", most, samples=dice.randint(1, 3)) for n, most in enumerate(costs)]
        self.run = costly_run(*tasks)
        self.most = {task.id: most for task, most in zip(tasks, costs, strict=True)}
        self.store = MemoryStore(dice)
        self.really_spent = 0
        self.refused = False

    def committed(self) -> dict[TrialId, list[Outcome]]:
        found: dict[TrialId, list[Outcome]] = {}
        for key, data in sorted(self.store.objects.items()):
            if key.startswith("outcomes/"):
                outcome = Outcome.from_bytes(data)
                found.setdefault(TrialId.parse(outcome.trial), []).append(outcome)
        return found

    def left(self):
        return remaining(self.run, self.committed(), []).to_run

    async def drive(self, epoch: int, patience: int | None) -> None:
        """Drive until nothing is left, the limit is met, or the process is killed after some turns of the loop."""
        purse = await Purse.load(self.store, self.run, self.limit, epoch)
        waiting = iter(self.left())

        async def worker() -> None:
            for planned in waiting:
                for launch in range(planned.first_launch, planned.first_launch + planned.launches_left):
                    if self.refused:
                        return
                    try:
                        await purse.reserve(planned, launch)
                    except SpendingLimitError:
                        self.refused = True
                        return
                    if await self.launch(purse, planned.id, launch, epoch):
                        break

        async def all_of_them() -> None:
            await asyncio.gather(*(worker() for _ in range(self.workers)))

        driving = asyncio.create_task(all_of_them())
        turns = 0
        while not driving.done() and (patience is None or turns < patience):
            turns += 1
            assert turns < 20_000, f"deadlock: {purse.balance}"
            await asyncio.sleep(0)
            now = purse.balance
            assert now.spent + now.running + now.unsettled <= self.limit
            assert self.really_spent <= self.limit
        driving.cancel()
        await asyncio.gather(driving, return_exceptions=True)
        if patience is None:
            assert not driving.cancelled()
            assert driving.exception() is None

    async def launch(self, purse: Purse, trial: TrialId, launch: int, epoch: int) -> bool:
        most = self.most[trial.task]
        cost = self.dice.choice([0, most, self.dice.randint(0, most)])
        reason = self.dice.choice(["completed", "completed", "infra_lost"])
        self.really_spent += cost
        for _ in range(self.dice.randrange(6)):
            await asyncio.sleep(0)
        told = None if self.dice.random() < 0.1 else cost
        outcome = await self.store.commit(outcome_of(trial, told, launch=launch, epoch=epoch, reason=reason))
        await purse.settle(outcome)
        return reason == "completed"


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    costs=st.lists(st.integers(1, 2000), min_size=1, max_size=4),
    limit=st.integers(1, 12_000),
    workers=st.integers(1, 5),
    kills=st.lists(st.integers(0, 60), max_size=4),
)
def test_never_more_than_the_limit_whatever_happens_when(
    seed: int, costs: list[int], limit: int, workers: int, kills: list[int]
) -> None:
    driving = Driving(random.Random(seed), costs, limit, workers)

    async def live() -> None:
        for epoch, patience in enumerate([*kills, None], 1):
            driving.refused = False
            await driving.drive(epoch, patience)
        balance = (await Purse.load(driving.store, driving.run, limit, 99)).balance
        assert balance.running == 0
        assert driving.really_spent <= balance.spent + balance.unsettled <= limit
        left = driving.left()
        assert driving.refused or not left  # nothing ends a run early but its limit
        if driving.refused:
            assert any(driving.most[planned.id.task] > balance.left for planned in left)

    asyncio.run(live())


def test_the_property_test_meets_limits_and_ends() -> None:
    """What the test above relies on: trials exist, some runs are refused and others are not."""
    ends = set()
    for limit in (1, 10**6):
        driving = Driving(random.Random(1), [1000, 500], limit, 3)
        asyncio.run(driving.drive(1, None))
        ends.add(driving.refused)
        assert all_trials(driving.run)
    assert ends == {True, False}


def test_a_launch_that_several_drivers_went_on_with_is_set_aside_for_once_until_the_next_comes_to_it() -> None:
    async def live():
        run = costly_run(costly_task("t", USD, samples=3)).model_copy(update={"backend": "kubernetes"})
        store = MemoryStore()
        for epoch in (1, 2, 3):
            await (await Purse.load(store, run, 3 * USD, epoch)).reserve(trial(run, "t", 1), 1)
        purse = await Purse.load(store, run, 3 * USD, 4)
        before = purse.balance.left
        await purse.reserve(trial(run, "t", 2), 1)
        await purse.reserve(trial(run, "t", 3), 1)
        await purse.reserve(trial(run, "t", 1), 1)
        return before, purse.balance.left

    assert asyncio.run(live()) == (2 * USD, 0)


def test_a_launch_that_was_left_is_paid_for_and_never_refused() -> None:
    async def live():
        run = costly_run(costly_task("t", USD, samples=2)).model_copy(update={"backend": "kubernetes"})
        store = MemoryStore()
        await (await Purse.load(store, run, USD, 1)).reserve(trial(run, "t", 1), 1)
        purse = await Purse.load(store, run, USD // 2, 2)
        for number in (2, 1):
            with pytest.raises(SpendingLimitError):
                await purse.reserve(trial(run, "t", number), 1)
        await purse.reserve(replace(trial(run, "t", 1), left=True), 1)
        return purse.balance.running, purse.balance.left

    assert asyncio.run(live()) == (USD, -USD // 2)


@pytest.mark.parametrize(
    ("backend", "reason", "cost", "left"),
    [
        ("kubernetes", "completed", 400, 3 * USD - 400),  # one launch, which its gateway counted from first to last
        ("kubernetes", "infra_lost", 0, 2 * USD),  # a gateway that forgot it may have begun anew
        ("kubernetes", "completed", None, 2 * USD),
        ("bubblewrap", "completed", 400, 2 * USD - 400),  # another sandbox, under the same number
    ],
)
def test_a_launch_that_the_next_driver_goes_on_with_is_set_aside_for_once(
    backend: str, reason: str, cost: int | None, left: int
) -> None:
    async def live():
        run = costly_run(costly_task("t", USD)).model_copy(update={"backend": backend})
        store = MemoryStore()
        await (await Purse.load(store, run, 3 * USD, 1)).reserve(trial(run, "t"), 1)
        purse = await Purse.load(store, run, 3 * USD, 2)
        await purse.reserve(trial(run, "t"), 1)
        during = purse.balance.left, (await Purse.load(store, run, 3 * USD, 2)).balance.left
        outcome = await store.commit(outcome_of("t@a:1", cost, epoch=2, reason=reason))
        await purse.settle(outcome)
        return during, purse.balance.left, (await Purse.load(store, run, 3 * USD, 3)).balance.left

    during, after, loaded = asyncio.run(live())
    assert during == ((2 * USD,) * 2 if backend == "kubernetes" else (USD,) * 2)
    assert (after, loaded) == (left, left)
