"""Render one launch: what the gateway is told and what the sandbox is made from."""

from __future__ import annotations

import asyncio
from pathlib import Path

from orchestrator.interfaces import (
    AgentProgram,
    Input,
    LaunchRequest,
    PlannedTrial,
    Registration,
    SandboxLimits,
    SandboxSpec,
)
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
        prices={**crew.prices, **planned.agent.agent.prices},
        seed=planned.seed,
        task=planned.task.id,
        scripts=planned.agent.scripts,
        world=planned.task.bundles.world,
    )


async def sandbox_spec(planned: PlannedTrial, registration: Registration, crew: Crew) -> SandboxSpec:
    """Return the sandbox of a launch: bundles fetched, agent rendered, limits set. Raises StoreError."""
    program = crew.render(planned.agent, planned.task, registration)
    environment = planned.task.environment
    sandbox = await crew.bundles.fetch("sandbox", planned.task.bundles.sandbox)
    inputs = [
        Input(source=sandbox / "workspace", target=environment.workdir, writable=True),
        Input(source=sandbox / "task", target="/task"),
    ]
    if await asyncio.to_thread((sandbox / "memory").is_dir):
        inputs.append(Input(source=sandbox / "memory", target="/memory"))
    inputs += await _program_inputs(program, crew)
    resources = environment.resources
    return SandboxSpec(
        name=registration.launch,
        command=program.command,
        env=program.env,
        stdin=program.stdin,
        workdir=environment.workdir,
        image=environment.image,
        inputs=tuple(inputs),
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
        pristine=sandbox / "workspace",
        listing=await crew.bundles.listing(planned.task.bundles.sandbox),
        exclude=environment.state.exclude,
    )


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
