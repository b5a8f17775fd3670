"""The Job that drives a run: made from the chart's template, found again by the run, ended with it."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.errors import RefusedError
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.creator import Patience
from orchestrator.sandbox.kubernetes.errors import ApiError
from orchestrator.sandbox.kubernetes.resources import JOBS

if TYPE_CHECKING:
    from orchestrator.driver.kubernetes.site import Site
    from orchestrator.sandbox.kubernetes.api import Api

DRIVER = "driver"
"""Component and container of a driver's pod."""
_TRIES = 5
"""For two people who start a driver of the same run at the same time."""


def selector(run: str) -> str:
    """Return the label selector of a run's Jobs and of their pods."""
    return f"{names.COMPONENT}={DRIVER},{names.RUN_LABEL}={names.run_hash(run)}"


def render_job(template: Mapping[str, Any], run: str, number: int, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the Job number ``number`` of a run, from 1. Pure."""
    job = copy.deepcopy(dict(template))
    labels = {names.MANAGED_BY: names.OURS, names.COMPONENT: DRIVER, names.RUN_LABEL: names.run_hash(run)}
    for about in (job.setdefault("metadata", {}), job["spec"]["template"].setdefault("metadata", {})):
        about["labels"] = {**(about.get("labels") or {}), **labels}
        about["annotations"] = {**(about.get("annotations") or {}), names.RUN: run}
    job["metadata"]["name"] = f"orchestrate-{names.run_hash(run)}-{number}"
    job["metadata"].pop("namespace", None)
    containers = job["spec"]["template"]["spec"]["containers"]
    container = next((each for each in containers if each.get("name") == DRIVER), containers[0])
    container["args"] = ["resume", run, "--unattended", *arguments]
    return job


async def _nothing() -> None: ...


async def jobs_of(api: Api, namespace: str, run: str) -> list[dict[str, Any]]:
    """Return the Jobs of a run, the newest last. Raises ApiError."""
    found = await api.list(JOBS, namespace, labels=selector(run))
    return sorted((job for job in found if _annotation(job) == run), key=_number)


async def start_job(
    site: Site, run: str, arguments: Sequence[str], begins: Callable[[], Awaitable[object]] = _nothing
) -> str:
    """Make the next Job of a run and return its name; ``begins`` is awaited before, once it is known that no other one runs.

    An API server that is away for a moment is waited for; a Job that it made without saying so is known by what only this call wrote on
    it. Raises RefusedError when another one of the run's Jobs has not ended yet, and ApiError.
    """
    mine, patience, begun, others = secrets.token_hex(8), Patience(), False, 0
    while others < _TRIES:
        try:
            found = await jobs_of(site.api, site.namespace, run)
            running = next((job for job in found if not is_over(job)), None)
            if running is not None:
                return _ours(running, mine, run, site.namespace)
            if not begun:
                await begins()
                begun = True
            job = render_job(site.template, run, _number(found[-1]) + 1 if found else 1, arguments)
            job["metadata"]["annotations"][names.ASKED] = mine
            return str((await site.api.create(JOBS, site.namespace, job))["metadata"]["name"])
        except ApiError as error:
            if error.cause == "already_exists":
                others += 1
            else:
                await patience.again(error)
    msg = f"others start drivers of run {run} at the same time"
    raise RefusedError(msg)


def _ours(job: Mapping[str, Any], mine: str, run: str, namespace: str) -> str:
    name = str(job["metadata"]["name"])
    if (job["metadata"].get("annotations") or {}).get(names.ASKED) != mine:
        msg = f"Job {name} in {namespace} drives run {run} already"
        raise RefusedError(msg)
    return name


async def delete_job(api: Api, namespace: str, job: Mapping[str, Any]) -> bool:
    """Delete a Job with its pods; False: it was gone. Raises ApiError."""
    about = job["metadata"]
    return await api.delete(JOBS, namespace, about["name"], uid=about["uid"], propagation="Background")


def is_over(job: Mapping[str, Any]) -> bool:
    """Return whether no pod of a Job runs or will be made."""
    return ending(job) is not None or "deletionTimestamp" in job["metadata"]


def ending(job: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the condition with which a Job ended, ``Complete`` or ``Failed``; None while it has not."""
    conditions = (job.get("status") or {}).get("conditions") or []
    ended = (each for each in conditions if each.get("type") in {"Complete", "Failed"} and each.get("status") == "True")
    return next(ended, None)


def _annotation(job: Mapping[str, Any]) -> str:
    return str((job["metadata"].get("annotations") or {}).get(names.RUN, ""))


def _number(job: Mapping[str, Any]) -> int:
    last = str(job["metadata"]["name"]).rpartition("-")[2]
    return int(last) if last.isdecimal() else 0
