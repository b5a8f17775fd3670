"""What is said of a run's cost and time before it starts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.cli.confirm import estimate_lines
from orchestrator.driver.estimate import Estimate, PairEstimate, estimate_run
from orchestrator.driver.limits import InForce, Placed
from orchestrator.driver.order import Order, build_manifest, load_order
from orchestrator.errors import StoreError
from orchestrator.settings import load_settings
from orchestrator.spec.submission import RunLimits
from orchestrator.storage.file import FileStore

USD = 10**9
KNOWN = PairEstimate(
    task="t",
    agent="a",
    trials=10,
    basis="same",
    cost=USD // 4,
    working_s=30.0,
    most=2 * USD,
    unpriced=(),
    charged=True,
)
NEW = replace(KNOWN, task="u", basis="none", cost=None, working_s=None)
FREE = replace(KNOWN, agent="oracle", basis="none", cost=0, working_s=None, most=0, charged=False)
SCRIPTED = replace(KNOWN, agent="b", charged=False)
LOCAL = replace(NEW, agent="c", most=None, unpriced=("local/m",))
HELD, FREELY = InForce(RunLimits(cost_usd=3), cost_from="--max-cost"), InForce(RunLimits())

PARTLY = (
    "estimate: $2.50, unknown for 10 of 20 trials, 2.5 h of work at 4 at one time, unknown for 10 of 20 trials "
    "(from earlier trials; 10 by name only, their task or agent has changed)"
)


def estimate(*pairs: PairEstimate, held: InForce = FREELY) -> Estimate:
    return Estimate(pairs=pairs, concurrency=4, in_force=held)


@pytest.mark.parametrize(
    ("pairs", "held", "stake"),
    [
        ([KNOWN], FREELY, 2.5),
        ([NEW], FREELY, 20),
        ([KNOWN, NEW], FREELY, 22.5),
        ([KNOWN, NEW], HELD, 3),
        ([KNOWN], HELD, 2.5),
        ([SCRIPTED, FREE], FREELY, 0),
        ([LOCAL], FREELY, 0),
    ],
)
def test_what_is_at_stake_is_the_estimate_or_else_the_most(
    pairs: list[PairEstimate], held: InForce, stake: float
) -> None:
    assert estimate(*pairs, held=held).at_stake == stake * USD


@pytest.mark.parametrize(
    ("pairs", "held", "lines"),
    [
        ([FREE], FREELY, []),
        (
            [KNOWN],
            HELD,
            [
                "estimate: $2.50, 75 s of work at 4 at one time (from earlier trials)",
                "at most: $20.00 by the budgets of the tasks, each trial launched once; the run is held to $3.00 (--max-cost)",
            ],
        ),
        (
            [replace(KNOWN, basis="named", working_s=3600.0), NEW],
            FREELY,
            [
                PARTLY,
                "at most: $40.00 by the budgets of the tasks, each trial launched once",
            ],
        ),
        (
            [SCRIPTED],
            FREELY,
            [
                "estimate: $2.50, 75 s of work at 4 at one time (from earlier trials)",
                "at most: $20.00 by the budgets of the tasks, each trial launched once; nobody charges for scripted models",
            ],
        ),
        (
            [LOCAL],
            FREELY,
            [
                "estimate: cost unknown, time unknown (this store has no earlier trials of these tasks by these agents)",
                "at most: unknown, local/m has no price",
            ],
        ),
    ],
)
def test_the_lines_say_what_is_known_and_what_is_not(
    pairs: list[PairEstimate], held: InForce, lines: list[str]
) -> None:
    assert estimate_lines(estimate(*pairs, held=held)) == lines


def test_few_trials_are_not_faster_than_one_of_them() -> None:
    assert estimate(replace(KNOWN, trials=1)).seconds == 30.0


@pytest.fixture
def order(tmp_path: Path) -> Order:
    (tmp_path / "suite/one").mkdir(parents=True)
    (tmp_path / "suite/suite.yaml").write_text("id: suite\n")
    (tmp_path / "suite/one/task.yaml").write_text(
        "id: one\ninstruction: Do it.\nbudgets: {max_tokens: 1000}\n"
        "checks: [{id: done, type: files, path: done, exists: true}]\n"
    )
    (tmp_path / "small.yaml").write_text(
        "type: react\nmodels: {main: local/m}\nprices: {local/m: {input: 1, output: 1000}}\n"
    )
    return Order(
        suite=tmp_path / "suite",
        agents=(str(tmp_path / "small.yaml"), "nop"),
        samples=3,
        limits=(Placed("--max-cost", RunLimits(cost_usd=2)),),
    )


def estimated(order: Order, store: FileStore, folder: Path) -> Estimate:
    settings = load_settings(folder, environ={})
    manifest = build_manifest(order, load_order(order), "bubblewrap", {}, {}, settings)
    return asyncio.run(estimate_run(manifest, order.in_force(settings), store, settings))


def test_an_order_is_estimated_by_pairs(order: Order, tmp_path: Path) -> None:
    found = estimated(order, FileStore(tmp_path / "store"), tmp_path)
    small, nop = found.pairs
    assert (small.trials, small.cost, small.most, small.charged) == (3, None, USD, True)
    assert (nop.trials, nop.cost, nop.most, nop.charged) == (3, 0, 0, False)
    assert (found.most, found.at_stake, found.without_cost) == (3 * USD, 2 * USD, 3)
    assert found.as_json()["at_most_usd"] == 3.0


def test_a_dataset_that_cannot_be_read_is_said_and_stops_nothing(order: Order, tmp_path: Path) -> None:
    class Broken(FileStore):
        async def list(self, prefix: str) -> list[str]:
            raise StoreError("the disk does not answer")

    found = estimated(order, Broken(tmp_path / "store"), tmp_path)
    assert estimate_lines(found)[0] == "earlier trials could not be read: the disk does not answer"
