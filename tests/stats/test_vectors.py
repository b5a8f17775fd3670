"""Every vector that these functions cover, by id."""

import json
import math
from pathlib import Path

import pytest

from orchestrator.stats.intervals import effective_n, standard_error, suite_wilson, wilson
from orchestrator.stats.passk import pass_at_k, pass_hat_k
from orchestrator.stats.quantiles import quantile
from orchestrator.stats.rates import Tally, suite_pass_k, suite_rate

VECTORS = {
    v["id"]: v for v in json.loads((Path(__file__).parent / "vectors" / "statistics.json").read_text())["vectors"]
}
COUNTS = [name for name, v in VECTORS.items() if name.startswith("pass_") and "pass_hat_k" in v["expected"]]
SUITES = [name for name in VECTORS if name.startswith("suite_effn_wilson_")]
PROPORTIONS = [name for name in VECTORS if name.startswith("prop_ci_")]


def near(vector):
    return {"abs": vector["abs_tol"], "rel": 0}


def test_the_file_is_the_one_that_was_copied():
    assert len(VECTORS) == 62
    assert (len(COUNTS), len(SUITES), len(PROPORTIONS)) == (10, 3, 6)


@pytest.mark.parametrize("name", COUNTS)
def test_pass_k_of_one_task(name):
    vector = VECTORS[name]
    n, c, k = (vector["inputs"][key] for key in "nck")
    for function, key in ((pass_at_k, "pass_at_k"), (pass_hat_k, "pass_hat_k")):
        expected = vector["expected"][key]
        found = function(n, c, k)
        assert found is None if expected is None else found == pytest.approx(expected, **near(vector))


def test_pass_large_n():
    vector = VECTORS["pass_large_n"]
    n, c, k = (vector["inputs"][key] for key in "nck")
    assert math.log10(pass_hat_k(n, c, k)) == pytest.approx(vector["expected"]["pass_hat_k_log10"], **near(vector))
    assert pass_at_k(n, c, k) == pytest.approx(vector["expected"]["pass_at_k"], **near(vector))


def test_suite_pass_k2_macro():
    vector = VECTORS["suite_pass_k2_macro"]
    counts = vector["inputs"]["tasks_n_c"]
    expected = vector["expected"]
    tallies = [Tally(task=f"t{i}", planned=n, eligible=n, graded=n, passed=c) for i, (n, c) in enumerate(counts)]
    at, hat, rate = suite_pass_k(tallies, 2, "at"), suite_pass_k(tallies, 2, "hat"), suite_rate(tallies)
    assert at.value == pytest.approx(expected["pass_at_2"], **near(vector))
    assert hat.value == pytest.approx(expected["pass_hat_2"], **near(vector))
    assert hat.value != pytest.approx(vector["trap_wrong_value"]["pass_hat_2_if_global_n_5"], abs=0.01)
    assert rate.value == pytest.approx(expected["pass_at_1"], **near(vector))
    assert rate.numerator / rate.denominator == pytest.approx(expected["micro_rate"], **near(vector))
    for function, key in ((pass_at_k, "pass_at_2_se_over_tasks"), (pass_hat_k, "pass_hat_2_se_over_tasks")):
        values = [function(n, c, 2) for n, c in counts]
        assert standard_error(values) == pytest.approx(expected[key], **near(vector))


@pytest.mark.parametrize("name", PROPORTIONS)
def test_wilson(name):
    vector = VECTORS[name]
    found = wilson(vector["inputs"]["successes"], vector["inputs"]["n"], vector["inputs"]["conf"])
    assert [found.low, found.high] == pytest.approx(vector["expected"]["wilson"], **near(vector))


@pytest.mark.parametrize("name", SUITES)
def test_effective_n_wilson(name):
    vector = VECTORS[name]
    trials = vector["inputs"]["trials_per_task"]
    values = [count / trials for count in vector["inputs"]["pass_counts"]]
    total = trials * len(values)
    expected = vector["expected"]
    assert standard_error(values) == pytest.approx(expected["se_task_means"], **near(vector))
    assert effective_n(values, total) == pytest.approx(expected["n_eff_df_adjusted"], **near(vector))
    found = suite_wilson(values, total)
    assert [found.low, found.high] == pytest.approx(expected["ci"], **near(vector))


@pytest.mark.parametrize(
    ("name", "key"), [("clustered_se_equal", "se_of_task_means"), ("clustered_se_unequal", "macro_se")]
)
def test_standard_error_of_task_means(name, key):
    vector = VECTORS[name]
    values = [sum(cluster) / len(cluster) for cluster in vector["inputs"]["clusters"]]
    assert standard_error(values) == pytest.approx(vector["expected"][key], **near(vector))


def test_clustered_se_single_cluster_is_not_defined():
    assert VECTORS["clustered_se_single_cluster"]["expected"]["se"] is None
    assert standard_error([2 / 3]) is None


def test_unequal_tasks_have_a_macro_headline():
    vector = VECTORS["clustered_se_unequal"]
    clusters = vector["inputs"]["clusters"]
    rate = suite_rate(
        Tally(task=f"t{i}", planned=len(c), eligible=len(c), graded=len(c), passed=sum(c))
        for i, c in enumerate(clusters)
    )
    assert rate.estimand == "macro"
    assert rate.value == pytest.approx(vector["expected"]["macro_mean_of_tasks"], **near(vector))
    assert rate.numerator / rate.denominator == pytest.approx(vector["expected"]["micro_mean"], **near(vector))


def test_quantiles():
    vector = VECTORS["quantiles"]
    values = vector["inputs"]["values"]
    assert quantile(values, 0.5) == pytest.approx(vector["expected"]["p50_linear"], **near(vector))
    assert quantile(values, 0.95) == pytest.approx(vector["expected"]["p95_linear_type7"], **near(vector))
