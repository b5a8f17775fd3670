"""What a task or an agent asks for and this version or backend does not give. Refused by name before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from orchestrator.errors import Problem
from orchestrator.interfaces import SandboxBackend
from orchestrator.spec.agent import RUNNABLE_AGENTS, Agent
from orchestrator.spec.checks import RUNNABLE_CHECKS, RUNNABLE_INVARIANTS, CommandCheck
from orchestrator.spec.submission import Submission
from orchestrator.spec.task import AllowlistNetwork, Environment, Task, flat_checks

_LATER = "is not run by this version"
_WITHOUT = "is not honoured by this version; take it out"


def _placement_refusals(agent: Agent, backend: SandboxBackend) -> list[str]:
    if agent.image is None:
        return []
    if agent.placement == "own" and backend.name == "bubblewrap":
        return ["placement 'own' needs a backend that runs images; use --backend container or kubernetes"]
    if agent.placement == "mounted" and not backend.fetches:
        return ["placement 'mounted' needs a cluster; use --backend kubernetes, or 'bundle' in place of 'image'"]
    if agent.placement == "mounted" and not backend.mounts_images:
        msg = (
            "placement 'mounted': the cluster is not said to mount images as volumes, which Kubernetes 1.35 and later do by themselves; "
            "have trials.imageVolumes set in the chart (kubernetes.image_volumes), or use 'bundle' in place of 'image'"
        )
        return [msg]
    return [reason for reason in backend.refusals(Environment(image=agent.image)) if reason.startswith("image ")]


def task_refusals(task: Task) -> list[str]:
    """Return one sentence for each part of the task that this version does not run. Empty: it runs all of it."""
    present: Sequence[tuple[str, object]] = (
        ("tools.allow", task.tools.allow),
        ("trace", task.trace),
        ("judges", task.judges),
        ("measures", task.measures),
    )
    found = [f"{name} {_LATER}" for name, value in present if value not in (None, ())]
    if task.fixtures is not None and task.fixtures.mode == "record":
        found.append(
            "fixtures.mode 'record': there is no cassette yet; make it with `orchestrate record`, then use 'replay'"
        )
    for check in flat_checks(task.checks):
        if check.type not in RUNNABLE_CHECKS:
            found.append(
                f"check {check.id!r}: type {check.type!r} {_LATER}; it runs {', '.join(sorted(RUNNABLE_CHECKS))}"
            )
        if isinstance(check, CommandCheck):
            found.extend(_command_refusals(check))
    found.extend(
        f"invariant {invariant.id!r}: type {invariant.type!r} {_LATER}; it runs {', '.join(sorted(RUNNABLE_INVARIANTS))}"
        for invariant in task.invariants
        if invariant.type not in RUNNABLE_INVARIANTS
    )
    return found


def _command_refusals(check: CommandCheck) -> Iterable[str]:
    if check.isolation == "in_process":
        yield f"check {check.id!r}: isolation 'in_process' {_LATER}; use 'process'"
    if check.results not in {"exit_code", "junit"}:
        yield f"check {check.id!r}: results {check.results!r} {_LATER}; use exit_code or junit"
    if check.confirm != 1:
        yield f"check {check.id!r}: confirm {_LATER}"
    if check.expect is not None and check.results == "exit_code":
        yield f"check {check.id!r}: 'expect' needs results: junit"


def submission_refusals(submission: Submission, file: str) -> list[Problem]:
    """Return one problem for each field of a submission file that this version would ignore."""
    present = {
        "kubernetes": bool(submission.kubernetes),
        "schedule": submission.schedule is not None,
    }
    return [Problem(file, field=name, message=_WITHOUT) for name, there in present.items() if there]


def refusals(
    tasks: Iterable[Task],
    agents: Iterable[tuple[str, Agent]],
    backend: SandboxBackend,
    agent_refusals: Callable[[Agent], list[str]],
) -> list[str]:
    """Return every reason why these tasks and agents cannot run on this backend, each naming its task or agent."""
    found = []
    for task in tasks:
        reasons = task_refusals(task) + backend.refusals(task.environment)
        found += [f"task {task.id}: {reason}" for reason in reasons]
    for name, agent in agents:
        if agent.type not in RUNNABLE_AGENTS:
            found.append(f"agent {name}: type {agent.type!r} {_LATER}; it runs {', '.join(sorted(RUNNABLE_AGENTS))}")
        else:
            reasons = agent_refusals(agent)
            if agent.reaches:
                outside = Environment(network=AllowlistNetwork(allowlist=agent.reaches))
                reasons += [reason for reason in backend.refusals(outside) if reason.startswith("network:")]
            reasons += _placement_refusals(agent, backend)
            found += [f"agent {name}: {reason}" for reason in reasons]
    return found
