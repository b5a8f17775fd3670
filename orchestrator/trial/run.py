"""The spine: one trial from registration to verdict. Read this file first.

It never raises for the agent's fault and always for ours: what an agent does ends in an Outcome of class ``result``; what fails on our side
ends the launch as ``infra`` and leads to another launch.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from orchestrator.errors import FOR_A_PERSON, GatewayError, GraderError, InfrastructureError, LeaseLostError
from orchestrator.interfaces import Ending, Frozen, PlannedTrial, Registration, Sandbox, TrialEnd
from orchestrator.records.outcome import Outcome, Seal, Times
from orchestrator.records.state import FinalAnswer, Finding, FrozenState
from orchestrator.records.termination import outcome_class
from orchestrator.records.usage import NOTHING_USED, Usage
from orchestrator.records.verdict import Verdict
from orchestrator.trial.crew import Crew
from orchestrator.trial.ending import decide
from orchestrator.trial.final import read_adapted, read_final
from orchestrator.trial.launch import request, sandbox_spec, waiting
from orchestrator.trial.marker import commit_outcome


async def run_trial(run: str, planned: PlannedTrial, crew: Crew, stop: asyncio.Event) -> TrialEnd:
    """Launch until there is an outcome that is not ours to repeat, then have it graded. What a cluster refuses is left for ``resume``.

    Raises StoreError when an outcome cannot be committed or the store fails for all alike, LeaseLostError when another driver has the run,
    SpendingLimitError when the next launch is not covered by the run's limit, and InfrastructureError when the services are gone for good.
    """
    first = planned.first_launch
    outcome = await _launch(run, planned, first, crew, stop)
    stopped_before = outcome.outcome_class == "cancelled"  # by who drove it then; that uses up no launch
    for launch in range(first + 1, first + planned.launches_left + stopped_before):
        if outcome.outcome_class == "result" or outcome.cause in FOR_A_PERSON or stop.is_set():
            break
        outcome = await _launch(run, planned, launch, crew, stop)
    return TrialEnd(trial=planned.id, outcome=outcome, verdict=await grade(run, planned, outcome, crew))


async def take_over(run: str, planned: PlannedTrial, crew: Crew, stop: asyncio.Event) -> TrialEnd:
    """Bring a launch that was left by a process that is gone to its end, and have it graded. Nothing is launched after it.

    Raises as ``run_trial``, but for SpendingLimitError: it is paid for.
    """
    outcome = await _launch(run, planned, planned.first_launch, crew, stop)
    return TrialEnd(trial=planned.id, outcome=outcome, verdict=await grade(run, planned, outcome, crew))


async def grade(run: str, planned: PlannedTrial, outcome: Outcome, crew: Crew) -> Verdict | None:
    """Ask the grader for the verdict of a committed result; nothing else is graded.

    A grader that cannot be asked now loses nothing: the outcome is committed and ``resume`` asks again.
    """
    if outcome.outcome_class != "result":
        return None
    crew.observer.phase(planned.id, "grading")
    try:
        return await crew.grader.grade(run, planned.id, waiting(planned, crew))
    except GraderError as error:
        crew.observer.launch_failed(planned.id, outcome.launch, error.cause, str(error))
        return None


async def _launch(run: str, planned: PlannedTrial, launch: int, crew: Crew, stop: asyncio.Event) -> Outcome:
    """Run one launch and commit its outcome. What fails on our side becomes an outcome of class ``infra``.

    Raises InfrastructureError when the services are gone for good, StoreError when the store fails whatever is asked of it, so that the
    next launch would fail alike, and SpendingLimitError: none of them uses up a launch.
    """
    await crew.ready()  # nothing is set aside while the services are gone
    await crew.allowance.reserve(planned, launch)
    try:
        await crew.ready()  # that may have waited long
        await crew.hold()  # whoever takes the run from now on finds what was set aside
        committed = await _reserved(run, planned, launch, crew, stop)
    except BaseException:
        await crew.allowance.forfeit(planned.id, launch)
        raise
    await crew.allowance.settle(committed)
    return committed


async def _reserved(run: str, planned: PlannedTrial, launch: int, crew: Crew, stop: asyncio.Event) -> Outcome:
    """Run a launch that is set aside for and commit its outcome. Raises what spares no launch."""
    started = time.time()
    if stop.is_set() and not planned.left:  # asked while this launch waited to be covered: nothing is started any more
        usage = await _revoked(run, planned, launch, crew)
        return await _commit(planned, _unfinished(run, planned, launch, crew, _Unfinished(started, usage=usage)), crew)
    crew.observer.phase(planned.id, "starting")
    usage = NOTHING_USED
    try:
        registration = await crew.gateway.register(request(run, planned, launch, crew))
        try:
            return await _act(run, planned, launch, crew, registration, stop)
        except InfrastructureError as error:
            if not error.spares_none:
                usage = await _used(planned, registration, crew, error)
            raise
    except InfrastructureError as error:
        if error.spares_none:
            raise
        outcome = _unfinished(run, planned, launch, crew, _Unfinished(started, error, usage))
    return await _commit(planned, outcome, crew)


async def _commit(planned: PlannedTrial, outcome: Outcome, crew: Crew) -> Outcome:
    """Return the outcome that stands for the launch, once it is proven that the run is still ours."""
    if outcome.outcome_class == "infra":  # raised here, or seen at the gateway: the observer must know of both
        crew.observer.launch_failed(
            planned.id, outcome.launch, outcome.cause or outcome.termination_reason, outcome.error or ""
        )
    await crew.hold()
    return await commit_outcome(crew.store, outcome)


async def _used(planned: PlannedTrial, registration: Registration, crew: Crew, error: InfrastructureError) -> Usage:
    """Seal a launch that we lost and return what it used: it is paid for all the same."""
    try:
        usage = (await crew.gateway.seal(registration.launch)).usage
    except LeaseLostError:
        raise
    except InfrastructureError:  # a gateway that is gone has revoked every token, and what it counted is gone with it
        usage = None
    if (
        usage is None or error.cause == "gateway_restarted"
    ):  # the new one has counted nothing of what the pod did before
        return Usage() if planned.agent.agent.models else NOTHING_USED
    return usage


async def _revoked(run: str, planned: PlannedTrial, launch: int, crew: Crew) -> Usage:
    """Seal a launch that is not started any more and return what it used: an earlier driver may have left it running."""
    if not crew.sandboxes.fetches:
        return NOTHING_USED
    try:
        seal = await crew.gateway.seal_lost(run, planned.id, launch, crew.epoch)
    except GatewayError:
        return Usage() if planned.agent.agent.models else NOTHING_USED
    return NOTHING_USED if seal is None else seal.usage


async def _act(
    run: str, planned: PlannedTrial, launch: int, crew: Crew, registration: Registration, stop: asyncio.Event
) -> Outcome:
    """Prepare, act, prove dead, seal, freeze, commit: in this order, so that nothing changes after it was looked at.

    The sandbox is let go last: as long as the outcome is not committed, it is the only witness of what a driver after this one has to tell.
    """
    registered = time.time()
    async with crew.sandboxes.open(await sandbox_spec(planned, launch, registration, crew)) as sandbox:
        try:
            ending, cancelled = await _until_dead(sandbox, planned, registration, crew, stop)
            crew.observer.phase(planned.id, "freezing")
            await crew.hold()  # nothing dies any more, so a store that is away is waited for here, before what needs it
            seal = await crew.gateway.seal(registration.launch)
            frozen = await sandbox.freeze()
        except InfrastructureError as error:
            if not error.spares_none:
                await crew.hold()  # one that was cut off from all has lost the run: its sandboxes are the next driver's
            raise
        labels = {**crew.labels, **_unsure(planned), **sandbox.labels}
        observed = _Observed(ending, seal, frozen, registered, labels, cancelled)
        return await _commit(planned, await _outcome(run, planned, launch, crew, observed), crew)


def _unsure(planned: PlannedTrial) -> dict[str, str]:
    """Return what the trial has where its sandbox does not say that it has more."""
    found = {} if planned.task.environment.now is None else {"clock": "partial"}
    return found if planned.task.memory is None else {**found, "memory": "unwatched"}


async def _until_dead(
    sandbox: Sandbox, planned: PlannedTrial, registration: Registration, crew: Crew, stop: asyncio.Event
) -> tuple[Ending, bool]:
    """Wait for the tree's death; stop it when the gateway or an operator asks. Returns the ending and whether an operator asked."""
    ended = asyncio.create_task(sandbox.ended())
    spent = asyncio.create_task(_spent(registration.launch, crew))
    cancel = asyncio.create_task(stop.wait())
    running = asyncio.create_task(_tell_running(sandbox, planned, crew))
    try:
        await asyncio.wait({ended, spent, cancel}, return_when=asyncio.FIRST_COMPLETED)
        cancelled = not ended.done() and cancel.done()
        if not ended.done():
            if spent.done() and (failure := spent.exception()) is not None:
                raise failure
            if cancelled and crew.sandboxes.fetches:
                await crew.hold()  # in a run that another driver has taken meanwhile nothing is ours to stop
            await sandbox.stop()
        return await ended, cancelled
    finally:
        for task in (ended, spent, cancel, running):
            task.cancel()
        await asyncio.gather(ended, spent, cancel, running, return_exceptions=True)


async def _tell_running(sandbox: Sandbox, planned: PlannedTrial, crew: Crew) -> None:
    await sandbox.running()
    crew.observer.phase(planned.id, "running")


async def _spent(launch: str, crew: Crew) -> None:
    """Wait until the gateway wants the launch stopped. Raises GatewayError.

    A sandbox that outlives its driver may have been sealed by others, who saw its agent dead: then nothing is left to stop.
    """
    try:
        await crew.gateway.stop_reason(launch)
    except GatewayError as error:
        if error.cause != "launch_sealed" or not crew.sandboxes.fetches:
            raise
        await asyncio.Event().wait()


@dataclass(frozen=True)
class _Observed:
    ending: Ending
    seal: Seal
    frozen: Frozen
    registered: float
    labels: dict[str, str]
    cancelled: bool


def _with_world(state: FrozenState | None, seal: Seal) -> FrozenState | None:
    return None if state is None else state.model_copy(update={"world": seal.world})


async def _outcome(run: str, planned: PlannedTrial, launch: int, crew: Crew, seen: _Observed) -> Outcome:
    outside = planned.agent.agent.type == "http"  # what it used, it used where nobody counts
    final, findings = await _final(planned, seen)
    decision = decide(seen.ending, seen.seal, final, cancelled=seen.cancelled, over_disk=seen.frozen.over_disk)
    wall = max(0.0, seen.ending.ended - seen.ending.started)
    waiting = min(seen.seal.waiting_s, wall)
    return Outcome(
        run=run,
        trial=str(planned.id),
        launch=launch,
        outcome_class=outcome_class(decision.reason),
        termination_reason=decision.reason,
        ended_as=final.status if final else None,
        final=final,
        questions=seen.seal.questions,
        exit=seen.ending.exit,
        state=_with_world(seen.frozen.state, seen.seal),
        output=seen.frozen.output_blob,
        trajectory=seen.seal.trajectory,
        usage=Usage() if outside else seen.seal.usage,
        unrecorded=("tokens",) if outside else (),
        user_usage=seen.seal.user_usage,
        steps=seen.seal.steps,
        tool_calls=seen.seal.tool_calls,
        fixture_misses=seen.seal.fixture_misses,
        models=seen.seal.models,
        times=Times(
            started=seen.ending.started,
            ended=seen.ending.ended,
            working_s=wall - waiting,
            waiting_s=waiting,
            setup_s=max(0.0, seen.ending.started - seen.registered),
            freeze_s=max(0.0, time.time() - seen.ending.ended),
        ),
        findings=(*seen.ending.findings, *seen.seal.findings, *seen.frozen.findings, *findings),
        labels=seen.labels,
        error=decision.error,
        cause=decision.cause,
        writer_id=crew.writer_id,
        epoch=crew.epoch,
    )


async def _final(planned: PlannedTrial, seen: _Observed) -> tuple[FinalAnswer | None, tuple[Finding, ...]]:
    """Return how the agent said that it ended: to the gateway, else in its file, else in its own form on its output."""
    if seen.seal.finish is not None:
        return seen.seal.finish, ()
    if seen.frozen.final is not None:
        return await read_final(seen.frozen.final)
    adapter = planned.agent.agent.adapter
    return (None, ()) if adapter is None else await read_adapted(adapter, seen.frozen.output)


@dataclass(frozen=True)
class _Unfinished:
    started: float
    error: InfrastructureError | None = None
    """None: an operator stopped it before it started."""
    usage: Usage = NOTHING_USED


def _unfinished(run: str, planned: PlannedTrial, launch: int, crew: Crew, what: _Unfinished) -> Outcome:
    now = time.time()
    return Outcome(
        run=run,
        trial=str(planned.id),
        launch=launch,
        outcome_class="infra" if what.error else "cancelled",
        termination_reason="infra_lost" if what.error else "cancelled",
        usage=what.usage,
        times=Times(started=what.started, ended=now, working_s=0, waiting_s=max(0.0, now - what.started)),
        error=str(what.error) if what.error else None,
        cause=what.error.cause if what.error else None,
        writer_id=crew.writer_id,
        epoch=crew.epoch,
    )
