"""Kill each process of a run at each moment that has a name: nothing is lost, nothing is doubled."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from crash_world import Blow, World, check, ended_run, play

from orchestrator.dataset import write

_AROUND = (
    "register",
    "seal",
    "relay",
    "freeze",
    "ended",
    "open",
    "grade",
    "create claims",
    "create beats",
    "create releases",
    "create reserved",
    "create outcome",
    "create seal",
    "create state",
    "create grade",
    "put blob",
    "get run",
    "get outcome",
    "get grade",
    "list claims",
    "list outcome",
    "list grade",
    "list reserved",
    "list wish",
    "look at grade",
)
_AROUND_RECOVERY = ("get beats", "list beats", "get reserved")
_AROUND_ROWS = (
    "get blob",
    "put part",
    "create commit",
    "create checkpoint",
    "list commit",
    "list checkpoint",
    "list stage",
    "get commit",
    "look at run",
)


def _both(names: tuple[str, ...]) -> list[str]:
    return [f"{when} {name}" for name in names for when in ("before", "after")]


ONCE = (*_both(_AROUND), "ready", "fetch", "listing", "before get claims", "before get removed", "before get wish")
"""Moments that come in every run."""
LATER = (*_both(_AROUND_RECOVERY), "before get releases", "after get claims")
"""Moments that come when a run goes on after a kill."""
ROWS = tuple(_both(_AROUND_ROWS))
"""Moments of the dataset."""
MOMENTS = (*ONCE, *LATER, *ROWS)
_OF_THE_STORE = {"create", "put", "get", "list", "look"}
VICTIMS = ("driver", "gateway", "sandboxes", "grader", "operator", "store")
PRELUDE = Blow("after create outcome", 2, "driver")
"""A kill after which the next driver finds a run half done."""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    return play(monkeypatch, tmp_path)


@pytest.fixture
def ended(world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> Mapping[str, bytes]:
    """The store of an ended run. From here on its rows are encoded once: that is a pure function of these records, and slow."""
    objects = ended_run(world)
    encode, known = write._encode, []

    def once(*arguments: Any) -> Any:
        known[:] = known or [encode(*arguments)]
        return known[0]

    monkeypatch.setattr(write, "_encode", once)
    return objects


def quiet(world: Callable[..., World], *blows: Blow, **more: Any) -> World:
    here = world(0, *blows, **more)
    here.live()
    check(here)
    return here


def test_the_list_of_moments_is_complete(world: Callable[..., World], ended: Mapping[str, bytes]) -> None:
    """The code has all these moments and no other; a new call to a store or a service belongs into the list."""
    once, later = quiet(world, with_rows=False), quiet(world, PRELUDE, PRELUDE, with_rows=False)
    rows = quiet(world, objects=ended)
    for seen, listed in ((once, ONCE), (later, ONCE + LATER), (rows, ONCE + ROWS)):
        new, old = {*seen.seen} - {*listed}, {*listed} - {*seen.seen} - ({*ONCE} if seen is rows else set())
        assert not new, f"list these moments above, so that they are struck: {sorted(new)}"
        assert not old, f"these moments do not come any more: {sorted(old)}"


def strike_all(world: Callable[..., World], ended: Mapping[str, bytes], seed: int) -> None:
    """Strike each moment once, and by the seed up to two more; each time the run must come to its end all the same."""
    usual = {
        **quiet(world, objects=ended).seen,
        **quiet(world, PRELUDE, with_rows=False).seen,
        **quiet(world, with_rows=False).seen,
    }
    for moment in MOMENTS:
        dice = random.Random(f"{moment} {seed}")
        victims = VICTIMS if _OF_THE_STORE & {*moment.split()} else VICTIMS[:-1]
        blow = Blow(moment, dice.randint(1, usual[moment]) if seed else 1, victims[seed % len(victims)])
        more = [Blow("any", dice.randint(1, 120), dice.choice(victims)) for _ in range(dice.randint(0, 2))]
        blows = [PRELUDE, blow, *more] if moment in LATER else [blow, *more]
        here = world(seed, *blows, with_rows=moment in ROWS, objects=ended if moment in ROWS else {})
        here.live()
        assert blow in here.struck, (blow, seed)
        check(here)


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_lost_or_doubled_at_any_moment(
    world: Callable[..., World], ended: Mapping[str, bytes], seed: int
) -> None:
    strike_all(world, ended, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 210))
def test_nothing_is_lost_or_doubled_at_any_moment_over_many_seeds(
    world: Callable[..., World], ended: Mapping[str, bytes], seed: int
) -> None:
    strike_all(world, ended, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_rows_follow_a_run_that_is_struck_again_and_again(world: Callable[..., World], seed: int) -> None:
    dice = random.Random(seed)
    here = world(seed, *(Blow("any", dice.randint(1, 150), dice.choice(VICTIMS)) for _ in range(8)))
    here.live()
    check(here)
