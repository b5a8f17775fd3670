"""One summary, every surface: the numbers add up, agree, and do not depend on the run's name or speed."""

import json
import re
from pathlib import Path

import pytest
from demo_run import demo, snapshots, text_of
from run_builder import agent, manifest, outcome, quarantined, task, verdict

from orchestrator.dataset.rows import assemble
from orchestrator.records.ids import TrialId
from orchestrator.records.usage import NOTHING_USED, Usage
from orchestrator.report.jsonform import as_json
from orchestrator.report.summary import RESULTS, Counts, summarise
from orchestrator.settings import Price

RUN = "run-1"


def made_of(plan, *, samples=None, **more):
    """Return rows from ``{task: [word, ...]}`` with one word per sample, for one agent."""
    tasks = [task(name, samples=samples or len(words)) for name, words in plan.items()]
    outcomes, verdicts = [], []
    for name, words in plan.items():
        for sample, word in enumerate(words, 1):
            trial = TrialId(name, "careful", sample)
            if word == "missing":
                continue
            reasons = {"infra": "infra_lost", "cancelled": "cancelled", "abstained": "declined"}
            ended = "declined" if word == "abstained" else None
            outcomes.append(
                outcome(
                    RUN,
                    trial,
                    reason=reasons.get(word, "completed"),
                    ended_as=ended,
                    cost=more.get("cost", 0),
                    user_usage=more.get("user"),
                )
            )
            if word in {"passed", "failed", "grader_error", "abstained"}:
                said = "failed" if word == "abstained" else word
                verdicts.append(verdict(RUN, trial, said, judge_usage=more.get("judges")))
    fields = {name: value for name, value in more.items() if name in {"quarantine", "run"}}
    made = agent("careful", models=more.get("models", {}), prices=more.get("prices", {}))
    return assemble(manifest(tasks, [made], **fields), outcomes, verdicts)


def first(data, **more):
    return summarise(data, **more).agents[0]


def test_planned_is_the_sum_of_all_words():
    words = ["passed", "failed", "abstained", "infra", "grader_error", "cancelled", "missing"]
    data = made_of({"a": words, "flaky": ["passed", "failed"]}, quarantine=[quarantined("flaky")], samples=7)
    counts = first(data).counts
    assert counts.planned == 14
    assert [counts.of(word) for word in RESULTS] == [1, 1, 1, 1, 1, 7, 1, 1, 0]
    assert (counts.graded, counts.eligible) == (3, 7)


def test_counts_that_do_not_add_up_are_our_mistake():
    with pytest.raises(AssertionError, match="3 trials were planned but 2 are counted"):
        Counts(planned=3, **{word: 2 if word == "passed" else 0 for word in RESULTS})


def test_1_lost_trials_do_not_make_a_perfect_rate():
    found = first(made_of({"a": ["passed", "infra", "infra", "infra"], "b": ["infra"] * 4}))
    assert found.pass_rate.value is None
    assert (found.pass_rate.numerator, found.pass_rate.denominator, found.pass_rate.planned) == (1, 1, 8)
    assert found.pass_rate.coverage == 0.125
    assert found.pass_hat_k[3].value is None


def test_10_a_run_without_a_graded_trial_has_no_rate_anywhere():
    data = made_of({"a": ["missing", "missing"]})
    found = first(data)
    assert found.pass_rate.value is None
    assert "none of 2 trials was graded" in found.pass_rate.reason
    assert "none of 2 trials was graded" in text_of(data=data)
    assert summarise(data).tasks[0].state == "ungraded"


def test_a_lower_floor_lets_the_number_through_with_its_coverage():
    rate = first(made_of({"a": ["passed", "infra"]}), floor=0.5).pass_rate
    assert (rate.value, rate.coverage) == (1, 0.5)


def test_errors_of_graders_leave_the_rate_and_are_shown():
    data = made_of({"a": ["passed"] * 99 + ["grader_error"]})
    assert first(data).pass_rate.value == 1
    assert first(data).counts.grader_error == 1
    assert "grader_error" in text_of(data=data)


@pytest.mark.parametrize(
    ("words", "state"),
    [
        (["passed", "passed"], "solid"),
        (["passed", "failed"], "unreliable"),
        (["failed", "abstained"], "defect"),
        (["infra", "missing"], "ungraded"),
    ],
)
def test_state_of_a_task(words, state):
    assert summarise(made_of({"a": words})).tasks[0].state == state


def test_a_quarantined_task_shows_what_came_of_it_but_does_not_count():
    data = made_of({"flaky": ["failed"], "good": ["passed"]}, quarantine=[quarantined("flaky")])
    assert first(data).pass_rate.value == 1
    assert first(data).counts.quarantined == 1
    assert [row.state for row in summarise(data).tasks] == ["quarantined", "solid"]
    assert "quarantine" in text_of(data=data)


def test_unknown_cost_is_not_zero():
    data = made_of({"a": ["passed", "passed"]}, cost=None)
    found = first(data).cost_usd
    assert (found.n, found.missing, found.total, found.mean) == (0, 2, None, None)
    assert "unknown (0 of 2 priced)" in text_of(data=data)
    assert "prices" not in text_of(data=data)


def test_users_and_judges_are_paid_beside_the_agent():
    spent = {"user": Usage(cost_nano_usd=250_000_000), "judges": Usage(cost_nano_usd=500_000_000)}
    data = made_of({"a": ["passed", "failed"]}, cost=10**9, **spent)
    found = first(data)
    assert (found.cost_usd.total, found.user_cost_usd.total, found.judge_cost_usd.total) == (2, 0.5, 1)
    assert "careful, beside that: simulated user $0.50, judges $1.00" in text_of(data=data)
    for nothing in ({}, {"user": NOTHING_USED, "judges": NOTHING_USED}):
        assert "beside that" not in text_of(data=made_of({"a": ["passed"]}, **nothing))
    assert first(made_of({"a": ["passed"]})).user_cost_usd.missing == 1
    assert first(made_of({"a": ["passed"]}, user=NOTHING_USED)).user_cost_usd.total == 0


def test_an_unknown_cost_names_the_models_that_need_a_price():
    price = Price(input=1, output=2)
    models = {"main": "openai/x", "side": "openai/y"}
    data = made_of({"a": ["passed"]}, cost=None, models=models, prices={"openai/y": price})
    hint = 'careful: cost unknown; give [prices."openai/x"] in orchestrate.toml, and count it again: '
    assert hint in text_of(data=data)
    assert f"report {RUN} --prices current" in text_of(data=data)
    assert first(made_of({"a": ["passed"]}, cost=None, models=models)).unpriced == ("openai/x", "openai/y")
    assert first(made_of({"a": ["passed"]}, cost=5, models=models)).unpriced == ()


def test_cost_is_summed_in_whole_nano_dollars():
    assert first(made_of({"a": ["passed"] * 3}, cost=100_000_001)).cost_usd.total == 0.300000003


def test_12_terminal_and_json_show_the_same_numbers():
    form = as_json(summarise(demo()))
    text = text_of()
    for one in form["agents"]:
        line = next(line for line in text.split("\n") if re.match(rf" +{one['agent']} +\d+ +\d+ +\d+", line))
        planned, passed, failed, abstained = map(int, line.split()[1:5])
        assert {"planned": planned, "passed": passed, "failed": failed, "abstained": abstained}.items() <= one[
            "counts"
        ].items()
        assert f"{100 * one['pass_rate']['value']:.1f}%" in text


def test_snapshots():
    for name, text in snapshots().items():
        assert text == (Path(__file__).parent / "snapshots" / name).read_text(), (
            f"{name} changed; if meant, run demo_run.py"
        )


def test_the_json_form_has_the_published_keys():
    form = as_json(summarise(demo()))
    assert list(form)[:5] == ["schema_version", "run", "manifest", "agents", "tasks"]
    one = form["agents"][0]
    assert list(one["counts"]) == ["planned", *RESULTS]
    rate = ["value", "estimand", "numerator", "denominator", "planned", "coverage", "tasks"]
    assert list(one["pass_rate"]) == [*rate, "ci_low", "ci_high", "level", "method", "reason"]
    assert list(one["cost_usd"]) == ["n", "missing", "p50", "p95", "p99", "mean", "total"]
    assert {"pass_at_k", "pass_hat_k", "latency_s", "waiting_s", "steps", "termination_reason"} <= set(one)
    assert list(form["tasks"][0])[:8] == ["task", "agent", "tier", "kind", "expect", "counts", "pass_rate", "state"]
    assert json.loads(json.dumps(form, allow_nan=False)) == form


def test_two_runs_of_one_submission_differ_in_ids_and_durations_only():
    forms = [as_json(summarise(demo(run, seconds=pace))) for run, pace in (("demo-1", 1.0), ("demo-2", 3.0))]
    for form in forms:
        del form["run"]
        for one in form["agents"]:
            del one["latency_s"], one["metrics"]["gateway"]["latency_s"]
    assert forms[0] == forms[1]


def test_k_follows_the_samples_that_were_planned():
    assert list(first(made_of({"a": ["passed"] * 4})).pass_at_k) == [1, 3]
    assert list(first(made_of({"a": ["passed"]})).pass_hat_k) == [1]


def test_nobody_has_to_pass():
    text = text_of(data=made_of({"a": ["failed"]}))
    assert "0.0%" in text
    assert "look first: orchestrate show run-1 a@careful:1" in text
