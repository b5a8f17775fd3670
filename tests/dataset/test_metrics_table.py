"""The table of metrics is made of the other tables, and the report of it."""

import asyncio

import orjson
from dataset_world import ask, commit, lay_run
from run_builder import agent, manifest, outcome, put, save, task, verdict

from orchestrator.dataset.measured import read_metrics
from orchestrator.dataset.rows import collect
from orchestrator.records.ids import TrialId
from orchestrator.report.summary import summarise
from orchestrator.spec.task import ExpectedTools, Tools
from orchestrator.storage.file import FileStore
from orchestrator.wiring import event_reader

TOOLS = Tools(
    expected=(ExpectedTools(phase="look", any_of=("get",)), ExpectedTools(phase="change", any_of=("shell",))),
    verify=("pytest*",),
)


def trajectory(*calls):
    """Return a trajectory with calls of ``tool, command, result``, as an agent reports them."""
    events = [
        ("launch", "gateway", {}),
        ("model_request", "gateway", {}),
        ("model_response", "gateway", {"request": 1}),
    ]
    for number, (tool, command, result) in enumerate(calls):
        arguments = orjson.dumps({"command": command}).decode()
        told = {"request": 1, "id": str(number), "name": tool, "arguments": arguments, "known": True, "valid": True}
        events += [("tool_call", "agent", told), ("tool_result", "agent", {"id": str(number), "content": result})]
    lines = [{"v": 1, "seq": n, "t": 1000.0 + n, "source": s, "type": k, **d} for n, (k, s, d) in enumerate(events)]
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


async def lay(store):
    """Write a run of two trials: one verifies after a failure, the other claims only."""
    made = manifest([task("t", samples=2).model_copy(update={"tools": TOOLS})], [agent("a")], run="r")
    stories = [
        [("get", "", "ok"), ("shell", "cd x && pytest -q", "[exit code 1]"), ("shell", "pytest", "[exit code 0]")],
        [("shell", "ls", "[exit code 0]"), ("odd", "", "error: no such tool")],
    ]
    outcomes, verdicts = [], []
    for sample, story in enumerate(stories, 1):
        trial = TrialId("t", "a", sample)
        blob = await put(store, "r", f"trajectory-{sample}", trajectory(*story))
        outcomes.append(outcome("r", trial, ended_as="completed", trajectory=blob))
        verdicts.append(verdict("r", trial))
    await save(store, made, outcomes, verdicts)
    return outcomes


def summary_of(store, folder):
    async def read():
        data = await collect(store, "r")
        return summarise(data, measured=await read_metrics(store, folder, event_reader(store), data))

    return read()


def test_what_a_task_expects_comes_out_before_and_after_the_rows_are_made(folder):
    async def story():
        store = FileStore(folder / "store")
        await lay(store)
        before = await summary_of(store, folder)
        await commit(store, "r", folder)
        after = await summary_of(store, folder)
        assert before.agents == after.agents
        found = after.agents[0].metrics["agent"]
        rates = {
            name: (getattr(found, name).numerator, getattr(found, name).denominator)
            for name in ("tool_selection_accuracy", "verification_failures", "unverified_claims", "recovery_rate")
        }
        assert rates == {
            "tool_selection_accuracy": (3, 5),
            "verification_failures": (1, 2),
            "unverified_claims": (1, 2),
            "recovery_rate": (1, 2),
        }
        assert after.agents[0].metrics["gateway"].tool_call_validity.value is None

    asyncio.run(story())


def test_a_trajectory_that_is_gone_makes_its_metrics_unknown_and_no_zero(folder):
    async def story():
        store = FileStore(folder / "store")
        outcomes = await lay(store)
        store.path_of(outcomes[1].trajectory.key).unlink()
        await commit(store, "r", folder)
        sql = "SELECT sample, calls, unverified_claim, steps FROM metrics WHERE form = 'agent' ORDER BY 1"
        assert await ask(store, sql, folder) == [(1, 3, False, None), (2, None, None, None)]
        sql = "SELECT sample, calls, unverified_claim, steps FROM metrics WHERE form = 'gateway' ORDER BY 1"
        assert await ask(store, sql, folder) == [(1, 0, None, 3), (2, None, None, 3)]

    asyncio.run(story())


def test_calls_of_the_table_are_those_of_the_steps(folder):
    async def story():
        store = FileStore(folder / "store")
        for number in range(2):
            await lay_run(store, f"r{number}", number)
            await commit(store, f"r{number}", folder)
        steps = (
            "SELECT run, trial_id, source, count(*) FROM steps JOIN trials USING (run, trial_id, launch) "
            "WHERE type = 'tool_call' AND outcome_class = 'result' GROUP BY ALL ORDER BY ALL"
        )
        metrics = "SELECT run, trial_id, form, calls FROM metrics WHERE calls > 0 ORDER BY ALL"
        assert await ask(store, steps, folder) == await ask(store, metrics, folder)
        both = "SELECT count(*) FROM metrics GROUP BY run, trial_id HAVING count(*) <> 2"
        assert await ask(store, both, folder) == []

    asyncio.run(story())
