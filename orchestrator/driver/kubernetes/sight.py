"""A driver's Job as it is seen from outside: whether a driver will come, and the cluster's own words when it does not."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.driver.kubernetes.job import DRIVER, ending, jobs_of, selector
from orchestrator.sandbox.kubernetes.errors import ApiError
from orchestrator.sandbox.kubernetes.resources import EVENTS, PODS

if TYPE_CHECKING:
    from orchestrator.sandbox.kubernetes.api import Api

JobState = Literal["none", "waiting", "running", "complete", "failed"]
"""No Job; one whose driver has not started, or is between two pods; one whose driver runs; one that ended well, or did not."""
_STARTING = frozenset({"", "ContainerCreating", "PodInitializing"})


@dataclass(frozen=True)
class JobSight:
    """The newest Job of a run, at one moment."""

    state: JobState
    name: str = ""
    pod: str = ""
    """Its newest pod; empty when it has none."""
    trouble: str = ""
    """What the cluster says that keeps a driver from starting, or why the Job failed; empty when nothing is wrong."""
    before: str = ""
    """How the last driver ended, where the Job makes another one by itself."""

    @property
    def may_come(self) -> bool:
        """Whether a driver runs, or will without anybody's doing."""
        return self.state in {"waiting", "running"}

    def __str__(self) -> str:
        """Say it in one sentence."""
        words = {
            "none": "there is no Job that drives it",
            "waiting": f"Job {self.name} has not started its driver yet",
            "running": f"Job {self.name} runs its driver in pod {self.pod}",
            "complete": f"Job {self.name} has ended",
            "failed": f"Job {self.name} failed",
        }
        if self.before:
            return f"Job {self.name} makes another driver, since {self.before}"
        return f"{words[self.state]}{f': {self.trouble}' if self.trouble else ''}"


_LONGEST_SAID = 400
_LINES = 20
"""Lines of a driver's log that are shown when it failed."""


class JobWatch:
    """Looks at a run's Job again and again. A cluster that does not answer is said once and asked again the next time."""

    def __init__(self, api: Api, namespace: str, run: str) -> None:
        self.api = api
        self.namespace = namespace
        self._run = run
        self._clock = time.monotonic
        self._trouble_since: float | None = None
        self.unseen = ""
        """Why the cluster could not be asked the last time; empty when it answered."""

    async def look(self) -> JobSight | None:
        """Return what is to be seen now; None when the cluster does not answer."""
        try:
            sight = await look_at_job(self.api, self.namespace, self._run)
        except ApiError as error:
            self.unseen = str(error)
            return None
        self.unseen = ""
        if not sight.trouble:
            self._trouble_since = None
        elif self._trouble_since is None:
            self._trouble_since = self._clock()
        return sight

    @property
    def stuck_s(self) -> float:
        """Seconds for which something has kept the driver from starting."""
        return 0.0 if self._trouble_since is None else self._clock() - self._trouble_since

    async def last_words(self, sight: JobSight) -> str:
        """Return the end of the log of a driver that failed; empty when there is none."""
        if not sight.pod:
            return ""
        try:
            log = await self.api.log(self.namespace, sight.pod, container=DRIVER, tail=_LINES)
        except ApiError:
            return ""
        return log.decode(errors="replace").rstrip()


async def look_at_job(api: Api, namespace: str, run: str) -> JobSight:
    """Return what is to be seen of a run's newest Job. Raises ApiError."""
    jobs = await jobs_of(api, namespace, run)
    if not jobs:
        return JobSight("none")
    job = jobs[-1]
    name = str(job["metadata"]["name"])
    pods = [
        pod
        for pod in await api.list(PODS, namespace, labels=selector(run))
        if (pod["metadata"].get("labels") or {}).get("batch.kubernetes.io/job-name") == name
    ]
    pod = max(pods, key=lambda each: str(each["metadata"].get("creationTimestamp", "")), default=None)
    pod_name = "" if pod is None else str(pod["metadata"]["name"])
    ended = ending(job)
    if ended is not None and ended["type"] == "Complete":
        return JobSight("complete", name, pod_name)
    if ended is not None:
        return JobSight("failed", name, pod_name, _joined([*_words(ended), *([_died(pod)] if pod else [])]))
    if pod is None:
        return JobSight("waiting", name, "", await _events(api, namespace, name))
    if (pod.get("status") or {}).get("phase") == "Failed" or "deletionTimestamp" in pod["metadata"]:
        return JobSight("waiting", name, pod_name, before=_died(pod) or f"pod {pod_name} is being deleted")
    trouble = pod_trouble(pod)
    return JobSight("running" if not trouble and _runs(pod) else "waiting", name, pod_name, trouble)


def pod_trouble(pod: Mapping[str, Any]) -> str:
    """Return what keeps a driver's pod from running, in the cluster's words; empty when nothing does."""
    status = pod.get("status") or {}
    for each in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = (each.get("state") or {}).get("waiting") or {}
        if waiting.get("reason", "") not in _STARTING:
            return _joined([str(waiting["reason"]), str(waiting.get("message", ""))])
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _joined(_words(condition))
    return _died(pod) if status.get("phase") == "Failed" else ""


def _runs(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


def _died(pod: Mapping[str, Any]) -> str:
    """Return how a pod of ours ended."""
    status = pod.get("status") or {}
    said = [part for part in (str(status.get("reason") or ""), str(status.get("message") or "")) if part]
    for each in status.get("containerStatuses") or []:
        ended = (each.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            said.append(
                f"its {each.get('name')} ended with exit code {ended['exitCode']} ({ended.get('reason', 'Error')})"
            )
        if ended.get("reason") == "StartError":
            said.append(str(ended.get("message", "")))
    return _joined(said)


async def _events(api: Api, namespace: str, job: str) -> str:
    """Return the last warning about a Job without a pod, such as a quota or a policy that refuses its pods."""
    try:
        found = await api.list(EVENTS, namespace, fields=f"involvedObject.kind=Job,involvedObject.name={job}")
    except ApiError:
        return ""
    warnings = [event for event in found if event.get("type") == "Warning"]
    last = max(warnings, key=lambda each: str(each.get("lastTimestamp") or each.get("eventTime") or ""), default=None)
    return "" if last is None else _joined(_words(last))


def _words(said: Mapping[str, Any]) -> list[str]:
    return [str(said.get("reason") or ""), str(said.get("message") or "")]


def _joined(parts: Iterable[str]) -> str:
    return ": ".join(" ".join(part.split())[:_LONGEST_SAID] for part in parts if part.strip())
