"""Mistakes that other evaluation tools have published, each as a test of ours."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.stats.intervals import bootstrap_bca, standard_error, suite_wilson, wilson
from orchestrator.stats.passk import pass_at_k, pass_hat_k
from orchestrator.stats.quantiles import distribution, quantile
from orchestrator.stats.rates import Tally, suite_pass_k, suite_rate, task_rate


def tally(passed, graded, planned=None, task="t", eligible=None):
    planned = graded if planned is None else planned
    return Tally(
        task=task, planned=planned, eligible=planned if eligible is None else eligible, graded=graded, passed=passed
    )


def test_1_one_pass_and_three_lost_trials_are_not_100_percent():
    rate = suite_rate([tally(1, 1, planned=4, task="a"), tally(0, 0, planned=4, task="b")])
    assert rate.value is None
    assert (rate.numerator, rate.denominator, rate.planned, rate.coverage) == (1, 1, 8, 0.125)
    assert "only 1 of 8 trials was graded" in rate.reason
    assert task_rate(tally(1, 1, planned=4)).value is None


def test_1_a_task_that_was_lost_whole_is_named():
    rate = suite_rate([tally(1, 1, task=f"t{i}") for i in range(99)] + [tally(0, 0, planned=1, task="lost")])
    assert rate.value == 1
    assert rate.tasks == 99
    assert rate.left_out == ("lost",)
    assert "lost" in rate.reason


def test_2_each_task_has_its_own_n():
    rate = suite_pass_k([tally(4, 4, task="a"), tally(5, 5, task="b")], 2, "hat")
    assert rate.value == 1


def test_2_a_short_task_does_not_hide_the_others():
    rate = suite_pass_k([tally(5, 5, task="long"), tally(3, 3, task="short")], 4, "hat")
    assert rate.value == 1
    assert rate.tasks == 1
    assert rate.left_out == ("short",)
    assert "fewer than 4 graded trials of short" in rate.reason


def test_3_half_a_pass_is_refused():
    with pytest.raises(TypeError):
        pass_at_k(2, 0.5 + 0.5, 1)


def test_3_more_passes_than_trials_are_refused():
    with pytest.raises(ValueError, match="6 passes of 5"):
        pass_hat_k(5, 6, 1)
    with pytest.raises(ValueError, match="impossible"):
        tally(3, 2)


def test_5_fewer_trials_than_k_is_no_number():
    assert pass_at_k(2, 2, 3) is None
    assert pass_hat_k(2, 2, 3) is None
    rate = suite_pass_k([tally(2, 2)], 3, "at")
    assert rate.value is None
    assert rate.reason == "no task has 3 graded trials"


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30))
def test_6_no_spread_only_where_all_tasks_are_equal(values):
    assert (standard_error(values) == 0) == (min(values) == max(values)) or max(values) - min(values) < 1e-150


def test_6_one_task_has_no_spread_and_says_what_its_interval_means():
    rate = suite_rate([tally(3, 5)])
    assert standard_error([0.6]) is None
    assert rate.method == "wilson"
    assert "not about other tasks" in rate.reason


@pytest.mark.parametrize("tallies", [[], [tally(0, 0, planned=3)], [tally(0, 0, planned=3, eligible=0)]])
def test_10_nothing_graded_is_never_green(tallies):
    for rate in (suite_rate(tallies), suite_pass_k(tallies, 3, "hat")):
        assert rate.value is None
        assert rate.ci_low is None
        assert rate.reason


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 3)), max_size=8), st.sampled_from([1, 3, 5])
)
def test_12_every_rate_carries_its_denominators(counts, k):
    tallies = [tally(min(a, b), b, planned=b + lost, task=f"t{i}") for i, (a, b, lost) in enumerate(counts)]
    for rate in (suite_rate(tallies), suite_pass_k(tallies, k, "at"), *map(task_rate, tallies)):
        assert rate.numerator <= rate.denominator <= rate.planned
        assert (rate.value is None) == (rate.tasks == 0)
        if rate.value is None:
            assert rate.reason
        if rate.ci_low is not None:
            assert 0 <= rate.ci_low <= rate.value + 1e-9
            assert rate.value - 1e-9 <= rate.ci_high <= 1


def test_18_p95_is_not_the_maximum_of_small_samples():
    assert quantile(list(range(20)), 0.95) == pytest.approx(18.05)


def test_exact_percentile_where_a_sketch_is_far_off():
    values = [1000] * 26 + [3000] * 11 + [9000] * 2
    assert quantile(values, 0.95) == pytest.approx(3600)


def test_a_gaussian_interval_would_leave_the_scale():
    found = suite_wilson([1, 2 / 3, 0, 2 / 3, 1 / 3], 15)
    assert 0 <= found.low < found.high <= 1


def test_the_sum_of_a_part_is_no_total():
    whole, part = distribution([1, 2, 3]), distribution([1, None, 3])
    assert (whole.total, whole.missing) == (6, 0)
    assert (part.total, part.n, part.missing, part.mean) == (None, 2, 1, 2)
    assert distribution([None]).p50 is None


def test_money_is_added_exactly_in_any_order():
    nano = [10**15 + 1, 1, 3, 10**14]
    assert distribution(nano, unit=1e9).total == distribution(reversed(nano), unit=1e9).total == sum(nano) / 1e9


def test_a_percentile_of_nan_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        distribution([1.0, math.nan])


@given(st.integers(1, 40), st.data())
def test_pass_hat_is_never_above_pass_at(n, data):
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    hat, at = pass_hat_k(n, c, k), pass_at_k(n, c, k)
    assert 0 <= hat <= c / n + 1e-12
    assert c / n - 1e-12 <= at <= 1


@given(st.integers(1, 200), st.data())
def test_wilson_holds_the_point(n, data):
    c = data.draw(st.integers(0, n))
    found = wilson(c, n)
    assert 0 <= found.low <= c / n <= found.high <= 1


def test_large_and_exact_paths_agree():
    assert pass_hat_k(1001, 900, 7) == pytest.approx(math.comb(900, 7) / math.comb(1001, 7), rel=1e-12)


def test_bootstrap_is_the_same_every_time_and_in_any_order():
    values = [0.1, 0.9, 0.4, 1.0, 1.0, 0.0, 0.7]
    first, second = bootstrap_bca(values), bootstrap_bca(values[::-1])
    assert first == second
    assert first.low < sum(values) / 7 < first.high


def test_bootstrap_agrees_with_scipy():
    import numpy as np
    from scipy.stats import bootstrap

    values = np.array([0.1, 0.9, 0.4, 1.0, 1.0, 0.0, 0.7, 0.6, 1.0, 0.8, 0.3, 1.0])
    ours = bootstrap_bca(list(values))
    theirs = bootstrap((values,), np.mean, n_resamples=10_000, rng=np.random.default_rng(1)).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.02)


def test_bootstrap_of_equal_tasks_is_not_defined_but_a_rate_of_them_has_an_interval():
    assert bootstrap_bca([0.5, 0.5, 0.5]) is None
    rate = suite_pass_k([tally(5, 5, task=f"t{i}") for i in range(12)], 5, "hat")
    assert rate.value == 1
    assert rate.ci_low == pytest.approx(0.757, abs=0.001)
    assert "fewer than 20 tasks" in rate.reason
