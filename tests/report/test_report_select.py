"""From typed words to runs and trials; what is not found is answered with what there is."""

import asyncio
from datetime import timedelta

import pytest
from demo_run import demo
from run_builder import NIGHT, agent, manifest, outcome, save, task, verdict

from orchestrator.dataset.rows import assemble
from orchestrator.errors import SpecError
from orchestrator.records.ids import TrialId
from orchestrator.report.select import resolve_run, resolve_trial
from orchestrator.report.summary import summarise
from orchestrator.storage.file import FileStore


@pytest.fixture
def store(tmp_path):
    async def fill():
        for number, (run, commit) in enumerate(
            [
                ("alpha-1", "a" * 40),
                ("alpha-2", "b" * 40),
                ("beta", "b" * 40),
                ("zeta", None),
                ("eta", "1234" + "0" * 36),
                ("theta", "1234" + "1" * 36),
            ]
        ):
            age = timedelta(hours=-number)
            await save(
                found, manifest([task("fix")], [agent("careful")], run=run, commit=commit, created_at=NIGHT + age)
            )

    found = FileStore(tmp_path)
    asyncio.run(fill())
    return found


def run_of(store, text):
    return asyncio.run(resolve_run(store, text))


@pytest.mark.parametrize(
    ("text", "run"),
    [
        ("alpha-1", "alpha-1"),
        ("be", "beta"),
        ("last", "alpha-1"),
        ("commit:aaaaaaa", "alpha-1"),
        ("commit:AAAA", "alpha-1"),
        ("commit:bbbb", "alpha-2"),
    ],
)
def test_a_run_is_found(store, text, run):
    assert run_of(store, text) == run


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("alpha", "could be any of 2: alpha-1, alpha-2"),
        ("commit:1234", "could be any of 2 commits: 123400000000, 123411111111"),
        ("commit:cccc", "no run 'commit:cccc'"),
        ("commit:xyz", "4 to 40 hex digits"),
        ("betta", "did you mean 'beta'"),
        ("pha", "did you mean 'alpha-2' or 'alpha-1'"),
        ("", "there are 6: zeta, theta"),
        ("\x1b[2J", r"no run '\\\\x1b"),
    ],
)
def test_a_run_is_not_found(store, text, words):
    with pytest.raises(SpecError) as caught:
        run_of(store, text)
    assert words.replace(r"\\\\", "\\\\") in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_an_empty_store_says_how_to_begin(tmp_path):
    with pytest.raises(SpecError, match="orchestrate submit"):
        run_of(FileStore(tmp_path), "last")


@pytest.mark.parametrize(
    ("text", "trial"),
    [
        (None, "clean-orders@careful:4"),
        ("config-migration", "config-migration@sloppy:1"),
        ("config-migration@oracle", "config-migration@oracle:1"),
        ("config-migration@oracle:3", "config-migration@oracle:3"),
        ("clean-orders:5", "clean-orders@careful:5"),
    ],
)
def test_a_trial_is_found(text, trial):
    assert str(resolve_trial(demo(), text)) == trial


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("config-migratoin", "did you mean 'config-migration'"),
        ("config-migration@carefull", "did you mean 'careful'"),
        ("config-migration:9", "samples 1 to 5, not 9"),
        ("a@b@c", "write TASK, TASK@AGENT or TASK@AGENT:N"),
    ],
)
def test_a_trial_is_not_found(text, words):
    with pytest.raises(SpecError, match=words):
        resolve_trial(demo(), text)


def test_the_only_trial_of_a_run_needs_no_name():
    made = manifest([task("fix", samples=1)], [agent("careful")])
    trial = TrialId("fix", "careful", 1)
    assert resolve_trial(assemble(made, [outcome("run-1", trial)], [verdict("run-1", trial)]), None) == trial
    assert resolve_trial(assemble(made, [], []), None) == trial


def test_a_trial_that_never_ran_is_no_failure_to_look_at():
    made = manifest([task("fix", samples=3)], [agent("careful")])
    second = TrialId("fix", "careful", 2)
    data = assemble(made, [outcome("run-1", second)], [verdict("run-1", second)])
    assert summarise(data).first_failure is None
    with pytest.raises(SpecError, match="failed, so name one, for example fix@careful:2"):
        resolve_trial(data, None)
    assert str(resolve_trial(data, "fix")) == "fix@careful:2"
    assert str(resolve_trial(data, "fix@careful:3")) == "fix@careful:3"
