"""The spine where its surroundings fail."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from made import Silent, made_agent, made_task

from orchestrator.errors import GatewayError, InfrastructureError, LeaseLostError, SandboxError, StoreError
from orchestrator.interfaces import AgentProgram, Door, Ending, Frozen, PlannedTrial, Registration, RelaySink
from orchestrator.records.base import BlobRef
from orchestrator.records.ids import TrialId
from orchestrator.records.outcome import Exit, Outcome, Seal
from orchestrator.records.usage import Usage
from orchestrator.spec.agent import Agent
from orchestrator.storage.file import FileStore
from orchestrator.trial.allowance import Unlimited
from orchestrator.trial.crew import Crew
from orchestrator.trial.run import run_trial


def test_services_that_are_gone_use_up_no_launch(tmp_path: Path) -> None:
    async def gone() -> None:
        raise InfrastructureError("the gateway did not start", cause="gateway_not_started")

    store, unused = FileStore(tmp_path), cast("Any", None)
    crew = Crew(
        store=store,
        bundles=unused,
        sandboxes=unused,
        gateway=unused,
        grader=unused,
        render=unused,
        observer=Silent(),
        writer_id="w",
        ready=gone,
        hold=gone,
        allowance=Unlimited(),
    )
    planned = PlannedTrial(id=TrialId("t", "a", 1), task=unused, agent=unused, seed=1)

    async def run() -> list[str]:
        with pytest.raises(InfrastructureError, match="the gateway did not start"):
            await run_trial("r", planned, crew, asyncio.Event())
        return await store.list("")

    assert asyncio.run(run()) == []


TRIAL = TrialId("t", "a", 1)
SPENT = Usage(output=10, cost_nano_usd=1_234)


def planned(*models: str, launches: int = 1) -> PlannedTrial:
    agent = Agent(type="react" if models else "nop", models={name: name for name in models})
    return PlannedTrial(id=TRIAL, task=made_task(), agent=made_agent(agent=agent), seed=1, launches_left=launches)


class SealsOnly:
    """A gateway that knows what was used, or is gone when it is asked."""

    def __init__(self, seals: bool) -> None:
        self.seals = seals

    async def register(self, request: object) -> Registration:
        sink = RelaySink(socket="", token="")
        return Registration(launch="l", agent_token="", door=Door(socket="", token=""), sink=sink)

    async def seal(self, launch: str) -> Seal:
        if not self.seals:
            raise GatewayError("gone", cause="gateway_lost")
        blob = BlobRef(key="k", sha256="0" * 64, size=0)
        return Seal(
            run="r", trial=str(TRIAL), launch=1, trajectory=blob, usage=SPENT, steps=1, tool_calls=0, waiting_s=0
        )


class Losing:
    """Bundles and sandboxes that are not to be had."""

    open = None
    fetches = False

    def __init__(self, error: InfrastructureError) -> None:
        self.error = error

    async def fetch(self, *_: object) -> Path:
        raise self.error


class Notes:
    """An allowance that notes what it is asked."""

    def __init__(self) -> None:
        self.said: list[str] = []

    async def reserve(self, planned: PlannedTrial, launch: int) -> None:
        self.said.append(f"reserve {launch}")

    async def settle(self, outcome: Outcome) -> None:
        self.said.append(f"settle {outcome.launch}: {outcome.usage.cost_nano_usd}")

    async def forfeit(self, trial: TrialId, launch: int) -> None:
        self.said.append(f"forfeit {launch}")


async def at_once() -> None: ...


LOST = SandboxError("lost", cause="sandbox_lost")


def lose(
    folder: Path,
    *models: str,
    seals: bool = True,
    hold: Any = at_once,
    stopped: bool = False,
    error: InfrastructureError = LOST,
    launches: int = 1,
) -> tuple[list[str], BaseException | None]:
    """Run a trial whose sandbox is lost. Returns what the allowance was asked, and what came out beside an outcome."""
    notes, unused = Notes(), cast("Any", None)

    def render(*_: object) -> Any:
        return None

    crew = Crew(
        store=FileStore(folder),
        bundles=cast("Any", Losing(error)),
        sandboxes=cast("Any", Losing(error)),
        gateway=cast("Any", SealsOnly(seals)),
        grader=unused,
        render=render,
        observer=Silent(),
        writer_id="w",
        ready=at_once,
        hold=hold,
        allowance=notes,
    )

    async def run() -> BaseException | None:
        stop = asyncio.Event()
        if stopped:
            stop.set()
        try:
            await run_trial("r", planned(*models, launches=launches), crew, stop)
        except InfrastructureError as error:
            return error
        return None

    return notes.said, asyncio.run(run())


def test_a_lost_launch_costs_what_the_gateway_counted(tmp_path: Path) -> None:
    assert lose(tmp_path, "x/m", seals=True) == (["reserve 1", "settle 1: 1234"], None)


@pytest.mark.parametrize(("cause", "launches"), [("pod_lost", 3), ("admission_denied", 1), ("pod_security", 1)])
def test_what_a_cluster_refuses_is_launched_once(tmp_path: Path, cause: str, launches: int) -> None:
    said, _ = lose(tmp_path, launches=3, error=SandboxError("no pod", cause=cause))
    assert len([each for each in said if each.startswith("reserve")]) == launches


def test_the_cost_of_a_launch_whose_gateway_is_gone_is_not_known(tmp_path: Path) -> None:
    assert lose(tmp_path, "x/m", seals=False) == (["reserve 1", "settle 1: None"], None)


def test_a_lost_launch_of_an_agent_without_models_costs_nothing(tmp_path: Path) -> None:
    assert lose(tmp_path, seals=False) == (["reserve 1", "settle 1: 0"], None)


def test_what_was_set_aside_is_forfeited_when_another_driver_has_the_run(tmp_path: Path) -> None:
    async def taken() -> None:
        raise LeaseLostError("taken")

    said, error = lose(tmp_path, "x/m", seals=True, hold=taken)
    assert said == ["reserve 1", "forfeit 1"]
    assert isinstance(error, LeaseLostError)
    assert list(tmp_path.rglob("*.json")) == []  # proven before anything is launched


def test_a_launch_that_waited_while_the_run_was_stopped_is_not_started(tmp_path: Path) -> None:
    assert lose(tmp_path, "x/m", seals=True, stopped=True) == (["reserve 1", "settle 1: 0"], None)
    (path,) = tmp_path.rglob("1.json")
    outcome = Outcome.from_bytes(path.read_bytes())
    assert (outcome.outcome_class, outcome.termination_reason, outcome.error) == ("cancelled", "cancelled", None)


@pytest.mark.parametrize(
    "cause", ["store_full", "store_read_only", "store_unavailable", "bundle_cache", "trajectory_unwritable"]
)
def test_a_store_that_fails_for_all_uses_up_no_launch(tmp_path: Path, cause: str) -> None:
    said, error = lose(tmp_path, error=StoreError("no space", cause=cause))
    assert isinstance(error, StoreError)
    assert said == ["reserve 1", "forfeit 1"]
    assert list(tmp_path.rglob("*.json")) == []


@pytest.mark.parametrize("cause", ["store_not_found", "bundle_digest", "store_name", "record_unreadable"])
def test_one_object_that_cannot_be_had_is_the_launchs_trouble(tmp_path: Path, cause: str) -> None:
    said, error = lose(tmp_path, error=StoreError("gone", cause=cause))
    assert error is None
    assert said == ["reserve 1", "settle 1: 1234"]
    assert [path.name for path in tmp_path.rglob("*.json")] == ["1.json"]


def test_nothing_is_committed_once_another_driver_has_the_run(tmp_path: Path) -> None:
    asked: list[int] = []

    async def taken_meanwhile() -> None:
        asked.append(1)
        if len(asked) > 1:
            raise LeaseLostError("taken")

    said, error = lose(tmp_path, hold=taken_meanwhile)
    assert isinstance(error, LeaseLostError)
    assert said == ["reserve 1", "forfeit 1"]
    assert list(tmp_path.rglob("*.json")) == []


class Watched:
    """Sandboxes that are lost once they run; notes with what error they were left."""

    fetches = True

    def __init__(self, cause: str) -> None:
        self.cause = cause
        self.left_with: BaseException | None = None

    @contextlib.asynccontextmanager
    async def open(self, spec: object) -> AsyncIterator[Any]:
        try:
            yield self
        except BaseException as error:
            self.left_with = error
            raise

    async def running(self) -> None: ...

    async def ended(self) -> Any:
        raise SandboxError("lost", cause=self.cause)


class Knows(SealsOnly):
    """A gateway that wants nothing stopped."""

    async def stop_reason(self, launch: str) -> Any:
        await asyncio.Event().wait()


def lose_sandbox(folder: Path, cause: str, hold: Any = at_once) -> tuple[list[str], BaseException | None]:
    """Run a trial whose sandbox is lost while it runs. Returns what the allowance was asked, and with what the sandbox was left."""
    notes, unused, sandboxes = Notes(), cast("Any", None), Watched(cause)

    def render(*_: object) -> AgentProgram:
        return AgentProgram(command=("true",))

    crew = Crew(
        store=FileStore(folder),
        bundles=unused,
        sandboxes=cast("Any", sandboxes),
        gateway=cast("Any", Knows(seals=True)),
        grader=unused,
        render=render,
        observer=Silent(),
        writer_id="w",
        ready=at_once,
        hold=hold,
        allowance=notes,
    )

    async def run() -> None:
        with contextlib.suppress(LeaseLostError):
            await run_trial("r", planned("x/m"), crew, asyncio.Event())

    asyncio.run(run())
    return notes.said, sandboxes.left_with


def test_a_driver_that_was_cut_off_leaves_its_sandboxes_to_the_one_that_has_the_run(tmp_path: Path) -> None:
    asked: list[int] = []

    async def taken_while_it_ran() -> None:
        asked.append(1)
        if len(asked) > 1:
            raise LeaseLostError("taken")

    said, left_with = lose_sandbox(tmp_path, "gateway_unreachable", hold=taken_while_it_ran)
    assert isinstance(left_with, LeaseLostError)
    assert said == ["reserve 1", "forfeit 1"]


@pytest.mark.parametrize(("cause", "cost"), [("node_lost", 1234), ("gateway_restarted", None)])
def test_what_a_gateway_counted_before_it_was_started_anew_is_not_taken_for_nothing(
    tmp_path: Path, cause: str, cost: int | None
) -> None:
    said, left_with = lose_sandbox(tmp_path, cause)
    assert said == ["reserve 1", f"settle 1: {cost}"]
    assert isinstance(left_with, SandboxError)


class Adopting(Watched):
    """Sandboxes of which an earlier driver was asked to stop the first."""

    labels: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        super().__init__("")
        self.opened = 0

    async def running(self) -> None:
        self.opened += 1

    async def ended(self) -> Ending:
        await asyncio.sleep(0)
        return Ending(exit=Exit(code=0), cause="exited" if self.opened > 1 else "stopped", started=1, ended=2)

    async def freeze(self) -> Frozen:
        return Frozen(state=None, output=b"", output_blob=None, final=None)


class Passes:
    async def grade(self, run: str, trial: TrialId, waits: object = None) -> Any:
        return None


def adopting_crew(store: Path) -> Crew:
    unused, sandboxes = cast("Any", None), Adopting()

    def render(*_: object) -> AgentProgram:
        return AgentProgram(command=("true",))

    return Crew(
        store=FileStore(store),
        bundles=unused,
        sandboxes=cast("Any", sandboxes),
        gateway=cast("Any", Knows(seals=True)),
        grader=cast("Any", Passes()),
        render=render,
        observer=Silent(),
        writer_id="w",
        ready=at_once,
        hold=at_once,
        allowance=Unlimited(),
    )


def test_a_launch_that_an_earlier_driver_was_asked_to_stop_is_launched_again(tmp_path: Path) -> None:
    once = planned()  # of one launch that may be lost
    end = asyncio.run(run_trial("r", once, adopting_crew(tmp_path), asyncio.Event()))
    assert (end.outcome.launch, end.outcome.outcome_class) == (2, "result")
    assert sorted(path.name for path in tmp_path.rglob("?.json")) == ["1.json", "2.json"]


def test_what_a_sandbox_does_not_promise_is_labelled(tmp_path: Path) -> None:
    trial = planned()
    environment = trial.task.environment.model_copy(update={"now": datetime(2026, 3, 2, tzinfo=UTC)})
    task = trial.task.model_copy(update={"environment": environment, "memory": f"sha256:{'0' * 64}"})
    end = asyncio.run(run_trial("r", replace(trial, task=task), adopting_crew(tmp_path), asyncio.Event()))
    assert end.outcome.labels == {"clock": "partial", "memory": "unwatched"}


class Stoppable(Watched):
    """A sandbox that runs until it is stopped; its run is stopped once it runs."""

    labels: ClassVar[dict[str, str]] = {}

    def __init__(self, stop: asyncio.Event) -> None:
        super().__init__("")
        self.stop_run = stop
        self.stopped = asyncio.Event()

    async def running(self) -> None:
        self.stop_run.set()

    async def stop(self) -> None:
        self.stopped.set()

    async def ended(self) -> Ending:
        await self.stopped.wait()
        return Ending(exit=Exit(), cause="stopped", started=1, ended=2)

    async def freeze(self) -> Frozen:
        return Frozen(state=None, output=b"", output_blob=None, final=None)


@pytest.mark.parametrize("taken", [True, False])
def test_only_who_has_the_run_stops_its_sandboxes(tmp_path: Path, taken: bool) -> None:
    unused, asked = cast("Any", None), []

    async def hold() -> None:
        asked.append(1)
        if taken and len(asked) > 1:
            raise LeaseLostError("taken")

    def render(*_: object) -> AgentProgram:
        return AgentProgram(command=("true",))

    async def run() -> Stoppable:
        stop = asyncio.Event()
        sandbox = Stoppable(stop)
        crew = Crew(
            store=FileStore(tmp_path),
            bundles=unused,
            sandboxes=cast("Any", sandbox),
            gateway=cast("Any", Knows(seals=True)),
            grader=unused,
            render=render,
            observer=Silent(),
            writer_id="w",
            ready=at_once,
            hold=hold,
            allowance=Unlimited(),
        )
        with contextlib.suppress(LeaseLostError):
            await run_trial("r", planned(), crew, stop)
        return sandbox

    sandbox = asyncio.run(run())
    assert sandbox.stopped.is_set() != taken
    assert isinstance(sandbox.left_with, LeaseLostError) == taken
