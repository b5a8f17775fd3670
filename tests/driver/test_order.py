"""What a run's manifest takes from the settings, and what a resumed run asks of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.driver.limits import InForce, Placed, when_resumed
from orchestrator.driver.order import Order, build_manifest, load_order
from orchestrator.driver.prepare import check_resume
from orchestrator.errors import RefusedError
from orchestrator.records.manifest import RunManifest
from orchestrator.settings import Settings, load_settings
from orchestrator.spec.submission import RunLimits

AGENT = "type: react\nmodels: {main: local/small}\n"
TASK = "id: one\ninstruction: Do it.\nchecks: [{id: done, type: files, path: done, exists: true}]\n"
PROVIDER = '[providers.local]\nbase_url = "http://127.0.0.1:1"\n'
PRICES = '[prices."local/small"]\ninput = 1\noutput = {output}\n'


@pytest.fixture
def order(tmp_path: Path) -> Order:
    (tmp_path / "suite/one").mkdir(parents=True)
    (tmp_path / "suite/suite.yaml").write_text("id: suite\n")
    (tmp_path / "suite/one/task.yaml").write_text(TASK)
    (tmp_path / "small.yaml").write_text(AGENT)
    return Order(suite=tmp_path / "suite", agents=(str(tmp_path / "small.yaml"),))


def settings(folder: Path, text: str) -> Settings:
    (folder / "orchestrate.toml").write_text(text)
    return load_settings(folder, environ={})


def manifest(order: Order, found: Settings) -> RunManifest:
    return build_manifest(order, load_order(order), "bubblewrap", {}, {}, found)


def test_the_manifest_keeps_what_the_settings_decide(order: Order, tmp_path: Path) -> None:
    assert manifest(order, settings(tmp_path, "max_launches = 7\n")).max_launches == 7


def test_prices_of_the_settings_are_part_of_the_price_table(order: Order, tmp_path: Path) -> None:
    tables = {
        manifest(order, settings(tmp_path, text)).price_table
        for text in ("", PRICES.format(output=2), PRICES.format(output=3))
    }
    assert len(tables) == 3
    assert None in tables


def test_a_run_keeps_its_prices_and_goes_on_with_them(order: Order, tmp_path: Path) -> None:
    run = manifest(order, settings(tmp_path, PROVIDER + PRICES.format(output=2)))
    known = run.agent("small").prices["local/small"]
    assert (known.price.output, known.source, known.entry) == (2, "orchestrate.toml", None)
    other = settings(tmp_path, PROVIDER)
    check_resume(run, other, when_resumed(run, 5, other))


def test_a_run_does_not_spend_its_launches_without_its_provider(order: Order, tmp_path: Path) -> None:
    run = manifest(order, settings(tmp_path, PROVIDER))
    with pytest.raises(RefusedError, match="agent small: provider 'local' is not configured"):
        check_resume(run, settings(tmp_path, ""))


def test_the_smallest_limit_is_in_force_and_known_by_its_place(order: Order, tmp_path: Path) -> None:
    asked = replace(
        order,
        limits=(
            Placed("--max-cost", RunLimits(cost_usd=3)),
            Placed("limits of a.yaml", RunLimits(cost_usd=2, trials=9)),
        ),
    )
    tight = settings(tmp_path, "[limits]\ntrials = 4\ncost_usd = 2.5\n")
    expected = InForce(RunLimits(trials=4, cost_usd=2), "limits.trials of orchestrate.toml:2", "limits of a.yaml")
    assert asked.in_force(tight) == expected
    assert manifest(asked, tight).limits == expected.limits
    assert order.in_force(settings(tmp_path, "")) == InForce(RunLimits())


def test_a_resumed_run_may_spend_more_but_not_more_than_the_settings_allow(order: Order, tmp_path: Path) -> None:
    run = manifest(replace(order, limits=(Placed("--max-cost", RunLimits(cost_usd=1)),)), settings(tmp_path, ""))
    free, tight = settings(tmp_path, ""), settings(tmp_path, "[limits]\ncost_usd = 2\n")
    assert when_resumed(run, None, free).limits.cost_usd == 1
    assert when_resumed(run, 5, free) == InForce(RunLimits(cost_usd=5), cost_from="--max-cost")
    assert when_resumed(run, 5, tight).limits.cost_usd == 2
    assert when_resumed(manifest(order, free), None, free).limits.cost_usd is None


def test_a_spending_limit_needs_every_price(order: Order, tmp_path: Path) -> None:
    unpriced = settings(tmp_path, PROVIDER)
    run = manifest(order, unpriced)
    check_resume(run, unpriced)
    with pytest.raises(
        RefusedError, match=r"agent small: local/small had no known price when run .* at most \$5.00 \(--max-cost\)"
    ):
        check_resume(run, unpriced, when_resumed(run, 5, unpriced))
