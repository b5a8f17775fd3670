"""Runs with everything that rows are made of, and stores that fail where a test wants it."""

from __future__ import annotations

import random

import orjson
from run_builder import (
    GRADER,
    OTHER_GRADER,
    CheckResult,
    Finding,
    agent,
    freeze,
    manifest,
    outcome,
    put,
    quarantined,
    save,
    tar_of,
    task,
    verdict,
)

from orchestrator.dataset.columns import TABLES
from orchestrator.dataset.commits import load_snapshot
from orchestrator.dataset.files import PartFiles
from orchestrator.dataset.parts import arrange, concat, decode
from orchestrator.dataset.query import query
from orchestrator.dataset.write import commit_run
from orchestrator.errors import StoreError
from orchestrator.records.ids import TrialId
from orchestrator.records.state import FinalAnswer
from orchestrator.wiring import event_reader

TOOLS = ("shell", "finish", "=cmd|' /C calc'!A0")


def trajectory(rng):
    """Return the bytes of a trajectory: some calls to a model, each with a call of a tool and its result."""
    events = [("launch", "gateway", {})]
    for number in range(rng.randint(1, 3)):
        request = len(events)
        events.append(("model_request", "gateway", {"model": "scripted/main", "conversation": 0}))
        if rng.random() < 0.3:
            events.append(("model_error", "gateway", {"request": request, "code": "overloaded"}))
        usage = {"prompt_tokens": 10, "completion_tokens": 5}
        answer = {"request": request, "model": "main", "finish_reason": "tool_calls", "usage": usage, "seconds": 0.25}
        events.append(("model_response", "gateway", answer))
        call = {"request": request, "id": f"c{number}", "name": rng.choice(TOOLS), "arguments": "{}", "known": True}
        events.append(("tool_call", "agent", {**call, "valid": rng.random() < 0.9}))
        events.append(("tool_result", "agent", {"id": f"c{number}", "content": "x" * rng.randint(0, 9)}))
    events.append(("seal", "gateway", {}))
    lines = [
        {"v": 1, "seq": seq, "t": 1000.0 + seq, "source": source, "type": kind, **data}
        for seq, (kind, source, data) in enumerate(events)
    ]
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


async def lay_run(store, run, seed=0, *, tasks=3, samples=3, complete=True):
    """Write the records of a run: results, lost launches, quarantine, two graders, unknown costs; about a fifth is missing."""
    rng = random.Random(seed)
    named = [task(f"t{n}", samples=samples, tier=n % 4 + 1) for n in range(tasks)]
    agents = [agent("careful"), agent("sloppy", terminal_output="none")]
    made = manifest(named, agents, run=run, quarantine=[quarantined("t1")] if seed % 2 else ())
    outcomes, verdicts = [], []
    for one in named:
        for who in agents:
            for sample in range(1, samples + 1):
                if complete or rng.random() < 0.8:
                    await _lay_trial(store, run, TrialId(one.id, who.name, sample), rng, outcomes, verdicts)
    await save(store, made, outcomes, verdicts)
    return made


async def _lay_trial(store, run, trial, rng, outcomes, verdicts):
    launch = 1
    if rng.random() < 0.2:
        outcomes.append(outcome(run, trial, reason="infra_lost", cause="sandbox", error="it was lost", cost=7))
        launch = 2
    if rng.random() < 0.1:
        return
    name = f"{trial.task}-{trial.agent}-{trial.sample}-{rng.random()}"
    state = await freeze(store, run, name, [], tar_of([("a", name.encode())]))
    kept = await put(store, run, f"{name}-trajectory", trajectory(rng))
    outcomes.append(
        outcome(
            run,
            trial,
            launch=launch,
            reason=rng.choice(["completed", "completed", "step_cap", "unhandled_exception"]),
            cost=rng.choice([None, 1_234_567, 98_765_432_100]),
            state=state,
            working=round(rng.uniform(0.1, 90), 6),
            steps=rng.randint(0, 9),
            tool_calls=rng.randint(0, 9),
            models=("main",),
            trajectory=kept,
            findings=(Finding(type="setuid"),) if rng.random() < 0.3 else (),
            final=FinalAnswer(status="completed", confidence=rng.choice([None, "high", 0.5])),
            labels={"limits": "sampled"},
        )
    )
    for grader in (GRADER, OTHER_GRADER) if rng.random() < 0.2 else (GRADER,):
        word = rng.choice(["passed", "failed"])
        checks = (
            CheckResult(id="hidden", type="command", passed=word == "passed", expected=[1], actual={"a": None}),
            CheckResult(id="style", type="judge", gate=False, passed=None, evidence=("line",)),
        )
        unsure = CheckResult(id="no_secret_leak", type="no_secret_leak", passed=True)
        verdicts.append(
            verdict(run, trial, word, launch=launch, state=state, grader=grader, checks=checks, invariants=(unsure,))
        )


async def commit(store, run, cache):
    return await commit_run(store, run, event_reader(store), cache)


async def ask(store, sql, cache):
    return (await query(store, sql, cache)).rows


async def everything(store, cache):
    """Return every row of every table, sorted."""
    found = {}
    for name in ("runs", "trials", "launches", "steps", "grades", "metrics"):
        found[name] = await ask(store, f"SELECT * FROM {name} ORDER BY ALL", cache)
    return found


async def content(store, cache):
    """Return the rows of every table in the order of the table, read without SQL."""
    snapshot = await load_snapshot(store)
    found = {}
    for name, table in TABLES.items():
        parts = snapshot.of_table(name)
        paths = await PartFiles(store, cache).paths(parts)
        rows = [decode(part, path) for part, path in zip(parts, paths, strict=True)]
        found[name] = arrange(table, concat(rows)).to_pylist() if rows else []
    return found


class Remote:
    """A store whose objects are no files of this machine."""

    def __init__(self, store):
        self._store = store
        self.put_blob, self.create, self.get = store.put_blob, store.create, store.get
        self.exists, self.list, self.fetched = store.exists, store.list, []

    async def stream(self, key):
        self.fetched.append(key)
        async for block in self._store.stream(key):
            yield block


class CrashError(Exception):
    """The process ends here."""


class Dying:
    """A store in whose user the process ends at its n-th step, before or after the step took effect."""

    def __init__(self, store, at, after):
        self._store, self._at, self._after = store, at, after
        self.steps = []
        self.path_of = store.path_of

    async def _step(self, name, work):
        mine = len(self.steps) == self._at
        self.steps.append(name)
        if mine and not self._after:
            raise CrashError(name)
        done = await work
        if mine:
            raise CrashError(name)
        return done

    async def put_blob(self, key, data):
        return await self._guarded("put", key, self._store.put_blob(key, data))

    async def create(self, key, data):
        return await self._guarded("create", key, self._store.create(key, data))

    async def list(self, prefix):
        return await self._guarded("list", prefix, self._store.list(prefix))

    async def _guarded(self, verb, key, work):
        if not key.startswith("datasets/"):
            return await work
        try:
            return await self._step(f"{verb} {'/'.join(key.split('/')[1:2])}", work)
        finally:
            work.close()

    async def get(self, key):
        return await self._store.get(key)

    async def exists(self, key):
        return await self._store.exists(key)

    async def stream(self, key):
        async for block in self._store.stream(key):
            yield block


class Silent(Remote):
    """A store that commits and then loses the reply, once."""

    def __init__(self, store):
        super().__init__(store)
        self.lost = 0
        self.create = self._create

    async def _create(self, key, data):
        won = await self._store.create(key, data)
        if "_commits" in key and not self.lost:
            self.lost += 1
            msg = "the connection was reset"
            raise StoreError(msg, cause="store_io")
        return won
