"""A launch that is read back from its trajectory is where it was, whatever has happened in it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import StoreError
from orchestrator.gateway.ask import ScriptedUser, Talk, ask_tool
from orchestrator.gateway.body import Pool
from orchestrator.gateway.calls import Timing
from orchestrator.gateway.config import GatewayConfig
from orchestrator.gateway.dialects.base import Reply
from orchestrator.gateway.dialects.chat import CHAT
from orchestrator.gateway.finish import finish_tool
from orchestrator.gateway.launch import Launch
from orchestrator.gateway.meter import BudgetSpentError
from orchestrator.gateway.provider import TIMED_OUT
from orchestrator.gateway.recall import Recall, go_on
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.tools import begin_call
from orchestrator.gateway.transcript import Answered
from orchestrator.gateway.volume import Absence, Card
from orchestrator.gateway.wire import LaunchBody
from orchestrator.records.usage import Usage
from orchestrator.spec.task import Budgets
from orchestrator.spec.user import UserScript
from orchestrator.trace.write import TrajectoryFolder

BODY = LaunchBody(
    run="r", trial="t@a:1", launch=1, epoch=1, models={}, prices={}, seed=1, task="t",
    budgets=Budgets(max_steps=6, max_tool_calls=5, max_wall_seconds=900),
)  # fmt: skip
CARD = Card(body=BODY, generation=1, expires=2**40, minted_until=2**40)
USER = UserScript.model_validate_json('{"replies": [{"id": "a", "mentions": [["x"]], "say": "yes", "once": true}]}')
NOW = Absence(0.0, machine_died=False)
LONG = "long text " * 500

texts = st.sampled_from(["go", "x?", LONG, ""])
names = st.sampled_from(["bash", "ask_user", "mcp__gateway__ask_user", "finish"])
steps = st.one_of(
    st.tuples(st.just("call"), st.integers(0, 3), st.lists(names, max_size=3), texts),
    st.tuples(st.just("error"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("tool"), st.sampled_from(["ask_user", "finish"]), texts),
    st.tuples(st.just("refusal"), st.booleans()),
    st.tuples(st.just("finding"), texts),
)


def made(trajectory):
    config = GatewayConfig(folder=Path("/nowhere"), socket="s", door="d", admin_token="t")  # type: ignore[arg-type]
    launch = Launch(BODY, trajectory, {}, config, Pool(1 << 20))
    launch.tools.add(finish_tool(launch))
    launch.tools.add(ask_tool(Talk(launch, ScriptedUser(USER), 2)))
    return launch


class Played:
    """What the agent of a launch does, as the gateway sees it."""

    def __init__(self, launch):
        self.launch = launch
        self.said = {number: [{"role": "user", "content": f"{number} {LONG}"}] for number in range(4)}

    async def play(self, step):
        kind, *words = step
        await getattr(self, kind)(*words)

    def ask(self, number):
        tools = [{"type": "function", "function": {"name": "bash", "parameters": {}}}] if number % 2 else []
        body = {"model": "m", "messages": self.said[number], **({"tools": tools} if tools else {})}
        return self.launch.transcript.request("scripted/m", CHAT, body)

    async def call(self, number, called, text):
        launch = self.launch
        try:
            await launch.meter.reserve()
        except BudgetSpentError as spent:
            launch.spend(spent.reason)
            return
        asked = self.ask(number)
        calls = [{"type": "tool_call", "id": str(n), "name": name, "arguments": "{}"} for n, name in enumerate(called)]
        message = {"role": "assistant", "parts": [{"type": "text", "text": text}, *calls]}
        usage = Usage(uncached_input=3, output=len(text), cost_nano_usd=7)
        reply = Reply(id="i", model="m-1", message=message, finish_reason="stop", usage=None, tokens=usage)
        answered = Answered(
            reply=reply, usage=usage, estimated=False, timing=Timing(0.2, 0.1), first_token_s=None, broken=False
        )
        await launch.meter.settle(usage)
        launch.transcript.response(asked, answered)
        launch.models.add("m-1")
        launch.request_failure = None
        self.said[number] = [*self.said[number], {"role": "assistant", "content": text}]
        try:
            launch.meter.take_tool_calls(len(called))
            launch.tools.announced(called)
        except BudgetSpentError as spent:
            launch.spend(spent.reason)

    async def error(self, number, is_last):
        asked = self.ask(number)
        failed = {"request": asked.event, "attempt": 0, "status": 400, "code": None, "message": "no"}
        self.launch.trajectory.append("model_error", "gateway", {**failed, "failure": None, "attempt": 0})
        used = Usage(uncached_input=5, cost_nano_usd=11)
        late = {**failed, "code": TIMED_OUT, "failure": None, "tokens": used.model_dump(mode="json")}
        self.launch.meter.add(used)
        self.launch.trajectory.append("model_error", "gateway", late)
        if is_last:
            self.launch.request_failure = "model_request_error"
            self.launch.trajectory.append("model_error", "gateway", {**failed, "failure": "model_request_error"})
        else:  # it is under way when the process dies; here somebody else answers it
            self.launch.trajectory.append("model_error", "gateway", {**failed, "failure": "stream_left"})

    async def tool(self, name, text):
        arguments = {"question": text} if name == "ask_user" else {"status": "asked", "message": text}
        try:
            await begin_call(self.launch, name, arguments, "http")
        except Refusal as refusal:
            self.launch.refused(refusal, "tool")

    async def refusal(self, finding):
        self.launch.refused(Refusal(404, "not_found", "no such thing", finding=finding), "GET /x")

    async def finding(self, text):
        self.launch.findings.add("odd", text)


def state(launch):
    meter, talk = launch.meter, launch.transcript
    return {
        "meter": (meter.steps, meter.tool_calls, meter.usage, meter.spent),
        "stopped": launch.stopped,
        "finish": launch.finish,
        "questions": launch.tools.questions,
        "announced": +launch.tools._announced if meter.spent is None else None,  # nothing is admitted then
        "models": launch.models,
        "failure": launch.request_failure if launch.stopped is None else None,
        "refusals": launch._refusals,
        "findings": {(each.type, each.detail.partition(" (")[0]) for each in launch.findings.all()},
        "talk": ([vars(each) for each in talk._conversations], talk._count),
    }


async def read_back(folder):
    trajectory = await TrajectoryFolder(folder).resume("t")
    launch = made(trajectory)
    recall = Recall(launch, 0.0, 0.0)
    await trajectory.recall(recall.take)
    return launch, recall


def lines(path, first):
    """Return the events from a number on, without when they were written."""
    return [{**json.loads(line), "t": 0} for line in path.read_bytes().splitlines()[first:]]


@settings(max_examples=20, deadline=None)
@given(st.lists(steps, max_size=12), st.binary(max_size=20).filter(lambda tail: b"\n" not in tail))
def test_a_launch_is_read_back_as_it_was(played, tail):
    async def live(folder, other):
        launch = made(await TrajectoryFolder(folder).open("t"))
        player = Played(launch)
        for step in played:
            await player.play(step)
        launch.trajectory.hand_over()
        here, there = folder / "t.jsonl", other / "t.jsonl"
        before = here.read_bytes()
        there.write_bytes(before + tail)
        again, recall = await read_back(other)
        assert recall.lost is None
        assert state(again) == state(launch)
        for each in (launch, again):
            each.transcript.request("scripted/m", CHAT, {"messages": player.said[1]})
            each.trajectory.hand_over()
        first = before.count(b"\n")
        assert lines(here, first) == lines(there, first) != []
        assert there.read_bytes().startswith(before)
        launch.stop_clock()
        for each in (launch, again):
            closed = await each.trajectory.close({})
            assert hashlib.sha256(closed.path.read_bytes()).hexdigest() == closed.sha256

    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        asyncio.run(live(Path(folder), Path(other)))


def resumed(tmp_path, write, *, card=CARD, absence=NOW, was_outside=False):
    """Return a launch that goes on from what ``write`` has written with a player of an earlier one, and what it wrote then."""

    async def live():
        launch = made(await TrajectoryFolder(tmp_path).open("t"))
        launch.record_beginning()
        await write(Played(launch))
        launch.trajectory.hand_over()
        first = (tmp_path / "t.jsonl").read_bytes().count(b"\n")
        again, recall = await read_back(tmp_path)
        go_on(again, card, recall, absence, was_outside=was_outside)
        again.trajectory.hand_over()
        again.stop_clock()
        launch.stop_clock()
        return again, lines(tmp_path / "t.jsonl", first)

    return asyncio.run(live())


async def calling(player):
    await player.call(1, ["bash"], "hello")
    player.ask(1)


async def between_attempts(player):
    asked = player.ask(1)
    error = {"request": asked.event, "attempt": 0, "status": 429, "code": None, "message": "busy", "failure": None}
    player.launch.trajectory.append("model_error", "gateway", error)


async def cut_off(player):
    asked = player.ask(1)
    error = {"request": asked.event, "attempt": 0, "status": 0, "code": "aborted", "message": "", "failure": "aborted"}
    player.launch.trajectory.append("model_error", "gateway", {**error, "tokens": Usage().model_dump(mode="json")})


async def using_a_tool(player):
    call = {"name": "ask_user", "arguments": {"question": "x"}, "via": "http", "valid": True, "problem": None}
    player.launch.trajectory.append("tool_call", "gateway", call)


async def too_large(player):
    player.launch.trajectory.append("model_request", "gateway", {"cut": "the trajectory is larger than …"})


@pytest.mark.parametrize("write", [calling, between_attempts, cut_off, using_a_tool, too_large])
def test_what_was_under_way_is_lost(tmp_path, write):
    launch, written = resumed(tmp_path, write)
    assert launch.stopped == "infra_lost"
    assert launch.stop.is_set()
    assert [event["type"] for event in written] == ["finding", "finding", "budget"]


async def at_rest(player):
    await player.call(1, ["bash"], "hello")


async def finished(player):
    await player.tool("finish", "a question")
    player.ask(2)


async def spent(player):
    for _ in range(7):
        await player.call(1, [], "hello")


def test_what_was_at_rest_goes_on(tmp_path):
    launch, written = resumed(tmp_path, at_rest)
    assert (launch.stopped, launch.meter.steps, launch.meter.tool_calls) == (None, 1, 1)
    assert [event["type"] for event in written] == ["finding"]


def test_what_had_connections_outside_or_died_with_its_machine_is_lost(tmp_path):
    folders = [tmp_path / name for name in ("outside", "machine")]
    outside, _ = resumed(folders[0], at_rest, was_outside=True)
    machine, _ = resumed(folders[1], at_rest, absence=Absence(0.0, machine_died=True))
    assert (outside.stopped, machine.stopped) == ("infra_lost", "infra_lost")


def test_what_had_finished_or_reached_a_limit_ends_so_whatever_was_under_way(tmp_path):
    done, _ = resumed(tmp_path / "done", finished)
    over, _ = resumed(tmp_path / "over", spent)
    assert (done.stopped, done.finish.status) == (None, "asked")
    assert (over.stopped, over.stop.is_set()) == ("step_cap", True)


def test_the_time_without_a_gateway_is_waiting(tmp_path):
    now = time.time()
    card = CARD.model_copy(update={"started": now - 100})
    launch, _ = resumed(tmp_path, at_rest, card=card, absence=Absence(now - 40, machine_died=False))
    assert launch.clock.working(time.monotonic()) == pytest.approx(60, abs=5)
    assert launch.unheard


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"v":1,"seq":0,"t":0,"source":"gateway","type":"launch"}\n{"v":1,"seq":2}\n')
    with pytest.raises(StoreError, match="line 2"):
        asyncio.run(read_back(tmp_path))
