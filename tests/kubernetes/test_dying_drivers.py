"""A driver of pods that is killed at every call: the next one loses nothing and doubles nothing."""

from __future__ import annotations

import random

import pytest
from mortal_world import check, scenario

MOMENTS = 36
"""At least those of a life that nobody ends; renewals of the Lease add some."""


def test_a_life_without_a_death_is_whole() -> None:
    world = scenario([], 0, samples=3)
    check(world)
    assert world.seen["before gateway register"] == 3
    assert world.seen["after store create outcome"] == 3
    one = scenario([], 0).seen
    assert one.total() - 2 * one["after PUT lease"] <= MOMENTS


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_each_moment(moment: int) -> None:
    check(scenario([moment], moment))


@pytest.mark.parametrize("moment", [pytest.param(n, marks=[pytest.mark.slow] if n % 4 else []) for n in range(MOMENTS)])
def test_each_moment_of_being_told_to_leave(moment: int) -> None:
    check(scenario([moment], moment, leaving=True, agent=0.05))


def many(seed: int) -> None:
    dice = random.Random(seed)
    deaths = [dice.randrange(MOMENTS) for _ in range(dice.randrange(1, 5))]
    agent, absent = dice.choice((0.0, 0.005, 0.05)), dice.choice((0.0, 0.01, 60.0))
    check(scenario(deaths, seed, samples=2, leaving=dice.random() < 0.3, agent=agent, absent=absent))


@pytest.mark.parametrize("seed", range(10))
def test_several_deaths(seed: int) -> None:
    many(seed)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(10))
def test_several_deaths_often(part: int) -> None:
    for seed in range(10 + part * 20, 30 + part * 20):
        many(seed)
