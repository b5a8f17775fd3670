"""Render one launch: what the gateway is told and what the sandbox is made from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from orchestrator.interfaces import (
    AgentProgram,
    BundledInput,
    BundleRef,
    Input,
    LaunchRequest,
    PlannedTrial,
    Registration,
    SandboxLimits,
    SandboxSpec,
)
from orchestrator.sandbox.clock import told
from orchestrator.spec.task import egress_rules
from orchestrator.trial.crew import Crew


def request(run: str, planned: PlannedTrial, launch: int, crew: Crew) -> LaunchRequest:
    """Return what the gateway has to know about a launch."""
    return LaunchRequest(
        run=run,
        trial=planned.id,
        launch=launch,
        epoch=crew.epoch,
        budgets=planned.task.budgets,
        models=planned.agent.agent.models,
        prices=planned.agent.price_of(),
        seed=planned.seed,
        task=planned.task.id,
        scripts=planned.agent.scripts,
        world=planned.task.bundles.world,
        user=planned.task.user,
        user_price=None if planned.task.user_price is None else planned.task.user_price.price,
        now=planned.task.environment.now,
        egress=(*egress_rules(planned.task.environment.network), *planned.agent.agent.reaches),
        bundles=_fetched(planned),
        hosted_tools=planned.task.hosted_tools,
    )


def _fetched(planned: PlannedTrial) -> tuple[BundleRef, ...]:
    """Return the bundles that the trial's sandbox is made from. A solution is only for the agent whose program it is."""
    found = [BundleRef(audience="sandbox", digest=planned.task.bundles.sandbox)]
    if planned.agent.bundle is not None:
        found.append(BundleRef(audience="sandbox", digest=planned.agent.bundle))
    solution = planned.task.bundles.solutions.get(planned.agent.name)
    if planned.agent.agent.type == "oracle" and solution is not None:
        found.append(BundleRef(audience="solutions", digest=solution))
    return tuple(found)


async def sandbox_spec(planned: PlannedTrial, launch: int, registration: Registration, crew: Crew) -> SandboxSpec:
    """Return the sandbox of a launch: bundles fetched, agent rendered, limits set. Raises StoreError."""
    program = crew.render(planned.agent, planned.task, registration)
    if crew.sandboxes.fetches:
        common = _common(planned, launch, registration, program, crew)
        return replace(common, bundled=_bundled(planned, program), inputs=_own_files(program))
    environment = planned.task.environment
    sandbox = await crew.bundles.fetch("sandbox", planned.task.bundles.sandbox)
    inputs = [
        Input(source=sandbox / "workspace", target=environment.workdir, writable=True),
        Input(source=sandbox / "task", target="/task"),
    ]
    if await asyncio.to_thread((sandbox / "memory").is_dir):
        inputs.append(Input(source=sandbox / "memory", target="/memory"))
    inputs += await _program_inputs(program, crew)
    return replace(
        _common(planned, launch, registration, program, crew),
        inputs=tuple(inputs),
        pristine=sandbox / "workspace",
        listing=await crew.bundles.listing(planned.task.bundles.sandbox),
    )


def _common(
    planned: PlannedTrial, launch: int, registration: Registration, program: AgentProgram, crew: Crew
) -> SandboxSpec:
    """Return what does not depend on where the bundles are."""
    environment = planned.task.environment
    resources = environment.resources
    return SandboxSpec(
        name=registration.launch,
        command=program.command,
        env={**program.env, **({} if environment.now is None else told(environment.now))},
        now=environment.now,
        watched=() if planned.task.memory is None else ("/memory",),
        stdin=program.stdin,
        workdir=environment.workdir,
        image=planned.agent.agent.system_image or environment.image,
        mounted=planned.agent.agent.mounted_image,
        requires=tuple(dict.fromkeys((*environment.requires, *program.requires))),
        limits=SandboxLimits(
            cpu=resources.cpu,
            memory_bytes=resources.memory,
            disk_bytes=resources.disk,
            processes=resources.processes,
            wall_seconds=planned.task.budgets.hard_seconds,
        ),
        door=registration.door,
        sink=registration.sink,
        exclude=environment.state.exclude,
        isolation=environment.isolation,
        user=environment.user,
        left=planned.left,
        notes={"trial": str(planned.id), "launch": str(launch)},
        waits=waiting(planned, crew),
    )


def waiting(planned: PlannedTrial, crew: Crew) -> Callable[[str], None]:
    """Return what tells the observer why a trial does not get on, as often as that changes."""
    last = ""

    def tell(why: str) -> None:
        nonlocal last
        if why != last:
            last = why
            crew.observer.waits(planned.id, why)

    return tell


def _bundled(planned: PlannedTrial, program: AgentProgram) -> tuple[BundledInput, ...]:
    """Return what a sandbox fetches by itself, target by target as if it were laid from this machine."""
    task = planned.task.bundles.sandbox
    found = [
        BundledInput(bundle=_sandbox(task, "workspace"), target=planned.task.environment.workdir, writable=True),
        BundledInput(bundle=_sandbox(task, "task"), target="/task"),
        BundledInput(bundle=_sandbox(task, "memory"), target="/memory"),
    ]
    if program.bundle is not None:
        own = planned.agent.bundle_bytes
        found.append(BundledInput(bundle=_sandbox(program.bundle), target="/agent", extra_bytes=own))
    if program.solution is not None:
        solution = BundleRef(audience="solutions", digest=program.solution)
        found.append(BundledInput(bundle=solution, target="/solution"))
    return tuple(found)


def _sandbox(digest: str, folder: str = "") -> BundleRef:
    return BundleRef(audience="sandbox", digest=digest, folder=folder)


def _own_files(program: AgentProgram) -> tuple[Input, ...]:
    """Return the files of a program of ours, which a sandbox that fetches has from where it has its own programs."""
    if program.files is None or program.bundle is not None:
        return ()
    return (Input(source=program.files, target="/agent"),)


async def _program_inputs(program: AgentProgram, crew: Crew) -> list[Input]:
    inputs: list[Input] = []
    folder: Path | None = program.files
    if program.bundle is not None:
        folder = await crew.bundles.fetch("sandbox", program.bundle)
    if folder is not None:
        inputs.append(Input(source=folder, target="/agent"))
    if program.solution is not None:
        solution = await crew.bundles.fetch("solutions", program.solution)
        inputs.append(Input(source=solution, target="/solution"))
    return inputs
