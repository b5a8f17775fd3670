"""How an agent in a pod ended, or why nobody will know: pure, from what the cluster says of the pod.

What an agent can bring about is an Ending, what only the cluster or our own programs can is a Loss. The exit codes of the supervisor (119
to 125) are its own word: an agent's code of that range is shown as another one. A container that was ended from outside shows 143 or 137,
and so may an agent's own ending: it is believed to be the agent's only while nobody is ending the pod. So it is with 125: the freezer of
a pod that is being ended makes the stop file, too.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from orchestrator.interfaces import Ending
from orchestrator.records.outcome import Exit
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.podview import ContainerView, PodView

Cause = Literal["exited", "out_of_memory", "out_of_disk", "out_of_processes", "wall_clock", "stopped"]

_FROM_OUTSIDE = (137, 143)
_CANNOT_LOCK, _CANNOT_START, _OUT_OF_MEMORY, _STOPPED = 120, 121, 122, 125
_SUPERVISOR_FAILED = {
    _CANNOT_LOCK: "the pod was being ended before the agent could start",
    _CANNOT_START: "the supervisor could not start",
}
_AGENT_WROTE = re.compile(
    r'EmptyDir volume "(log|workspace|output|tmp|home)" exceeds the limit'
    r"|Pod ephemeral local storage usage exceeds the total limit of containers"
    rf"|Container {names.AGENT} exceeded its local ephemeral storage limit"
    rf"|Container {names.AGENT} was using \S+, request is \S+, has larger consumption of ephemeral-storage"
)
"""What a kubelet says when it evicts a pod for what its agent wrote.

The last is of a node that runs short of room. There the kubelet tells only of what lies in a container's root and logs, where only an
agent that is root in its pod can write. Of one that fills its volumes it says that the node was low, as it says of whoever is in the way.
Whose doing that was is known by the supervisor's exit code and from the pod's freezer, who look at the volumes themselves.
"""
_WE_WROTE = re.compile(r'EmptyDir volume "(ctl|inputs)" exceeds the limit')
_UNSEEN = "ContainerStatusUnknown"
"""Reason of a container that the kubelet no longer found: its exit code is made up."""
_NEVER_RAN = ("StartError", "ContainerCannotRun", "RunContainerError")
_PREPARE = {
    41: "policy_not_enforced",
    42: "canary_dead",
    43: "gateway_unreachable",
    44: "bundle",
    45: "gateway_restarted",
    46: "already_begun",
}
_FREEZER = {51: "relay_unreachable", 52: "gateway_restarted"}
_POD_REASONS = {
    "Evicted": "evicted",
    "Preempting": "preempted",
    "Terminated": "node_shutdown",
    "Shutdown": "node_shutdown",
    "NodeShutdown": "node_shutdown",
    "NodeLost": "node_lost",
    "DeadlineExceeded": "pod_deadline",
    "UnexpectedAdmissionError": "node_refused",
    "NodeAffinity": "node_refused",
}
_DISRUPTIONS = {
    "PreemptionByScheduler": "preempted",
    "PreemptionByKubeScheduler": "preempted",
    "EvictionByEvictionAPI": "evicted",
    "TerminationByKubelet": "evicted",
    "DeletionByTaintManager": "node_lost",
    "DeletionByPodGC": "node_lost",
}


@dataclass(frozen=True)
class Loss:
    """A launch that came to nothing through no act of the agent."""

    cause: str
    """Short stable word."""
    says: str
    """The cluster's own words, or ours."""
    telling: bool = True
    """False: the cluster's events may say more."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a launch beside its pod."""

    wall_seconds: float
    """Its hard deadline."""
    isolation: str = "container"
    stopped: bool = False
    """Somebody here asked for its end."""
    settled: bool = False
    """What the pod says has not changed for a while: nothing more is to be expected."""
    began: float | None = None
    """When the agent's container started, seconds since 1970, if it was ever seen to run."""
    clock: Callable[[], float] = time.time


def judge(view: PodView, facts: Facts) -> Ending | Loss | None:
    """Return how the agent ended, or why that is not known; None: it may be alive, or more is to be told soon."""
    agent = view.container(names.AGENT)
    if agent is not None and agent.state == "terminated" and agent.reason != _UNSEEN:
        return _ended(view, agent, facts)
    if agent is not None and agent.restarts and agent.state == "running" and not is_over(view):
        return Loss("container_restarted", "its node was restarted, and the agent began anew with what it had left")
    if (failed := _failed_init(view)) is not None:
        return failed
    if view.gone or (is_over(view) and facts.settled):
        return _unseen(view, facts)
    return None


def _unseen(view: PodView, facts: Facts) -> Ending | Loss:
    """Judge a pod that is over and does not tell how its agent ended."""
    if facts.stopped:
        return _never_ended("stopped", facts)
    if (ours := _too_large(view, facts)) is not None:
        return ours
    if exceeded(view):
        return _never_ended("out_of_disk", facts)
    if view.reason == "DeadlineExceeded" and ran(view):
        return _never_ended("wall_clock", facts)
    agent = view.container(names.AGENT)
    if agent is not None and agent.reason == _UNSEEN and not _is_being_ended(view):
        return Loss("node_lost", agent.message or "its node has lost its containers")
    return disruption(view)


def is_over(view: PodView) -> bool:
    """Return whether nothing of the pod will run any more, as far as the cluster says."""
    return view.gone or view.phase in ("Succeeded", "Failed")


def ran(view: PodView) -> bool:
    """Return whether the agent's container was ever seen to run.

    What was evicted is shown as waiting to be initialised, with one restart more than it had.
    """
    agent = view.container(names.AGENT)
    if agent is None or agent.reason in _NEVER_RAN:
        return False
    return agent.state != "waiting" or agent.restarts > 0


def began(view: PodView) -> float | None:
    """Return when the agent's container started, seconds since 1970; None when the cluster does not say."""
    agent = view.container(names.AGENT)
    return None if agent is None else seconds(agent.started)


def exceeded(view: PodView) -> bool:
    """Return whether the pod was evicted for what its agent wrote."""
    return view.reason == "Evicted" and _AGENT_WROTE.search(view.message) is not None


def disruption(view: PodView) -> Loss:
    """Say who ended a pod that did not end by itself."""
    for kind in ("DisruptionTarget", "TerminationTarget"):
        condition = view.condition(kind)
        if condition is not None and condition.status == "True":
            cause = _DISRUPTIONS.get(condition.reason) or ("preempted" if "reempt" in condition.reason else "evicted")
            return Loss(cause, f"{condition.reason}: {condition.message}")
    if view.reason:
        fallback = "node_refused" if view.reason.startswith("OutOf") else "pod_failed"
        return Loss(_POD_REASONS.get(view.reason, fallback), f"{view.reason}: {view.message}")
    if view.deleting or view.gone:
        return Loss("pod_deleted", "somebody deleted it", telling=False)
    return Loss("pod_failed", view.message or f"it is {view.phase} without a reason", telling=bool(view.message))


def freezer_loss(view: PodView) -> Loss | None:
    """Return why no state will come from a freezer that has failed; None: it runs, ended well, or was never there."""
    freezer = view.container(names.FREEZER)
    if freezer is None or freezer.state != "terminated" or freezer.exit_code == 0:
        return None
    cause = _FREEZER.get(freezer.exit_code or 0, "freezer_failed")
    return Loss(cause, f"the freezer ended with {freezer.exit_code} {freezer.reason}: {_message(freezer)}")


def freezer_done(view: PodView) -> bool:
    """Return whether the freezer says that it has delivered."""
    freezer = view.container(names.FREEZER)
    return freezer is not None and freezer.state == "terminated" and freezer.exit_code == 0


def freezer_out_of_memory(view: PodView) -> bool:
    """Return whether what the agent left was too much for the freezer's memory."""
    freezer = view.container(names.FREEZER)
    return freezer is not None and freezer.reason == "OOMKilled"


def seconds(text: str) -> float | None:
    """Return an RFC 3339 time in seconds since 1970; None when it is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


# --- the agent's container has ended ------------------------------------------------------------------------------------------------------


def _ended(view: PodView, agent: ContainerView, facts: Facts) -> Ending | Loss | None:
    if _whole_sandbox_died(view, agent, facts):
        return _ending(agent, "out_of_memory", facts)
    if agent.reason in _NEVER_RAN:
        return Loss("agent_start", f"its container could not start: {agent.message or agent.reason}")
    if agent.reason == "OOMKilled" or agent.exit_code == _OUT_OF_MEMORY:
        return _ending(agent, "out_of_memory", facts)
    if exceeded(view):
        return _ending(agent, "out_of_disk", facts)
    if agent.exit_code in _SUPERVISOR_FAILED:
        return _never_started(view, agent, facts)
    if agent.exit_code in (*_FROM_OUTSIDE, _STOPPED):
        if _is_being_ended(view) or facts.stopped:
            return _ended_from_outside(view, agent, facts)
        if not facts.settled:
            return None  # who ends it may still be told
    return _ending(agent, _own_cause(agent, facts), facts)


def _own_cause(agent: ContainerView, facts: Facts) -> Cause:
    match agent.exit_code:
        case 119:
            return "out_of_disk"
        case 123:
            return "out_of_processes"
        case 125:
            return "stopped"
        case 124 if _length(agent) > facts.wall_seconds - 1:  # times are whole seconds
            return "wall_clock"
    return "exited"


def _is_being_ended(view: PodView) -> bool:
    disrupted = any(each.type == "DisruptionTarget" and each.status == "True" for each in view.conditions)
    return view.gone or bool(view.deleting) or bool(view.reason) or disrupted


def _ended_from_outside(view: PodView, agent: ContainerView, facts: Facts) -> Ending | Loss:
    if facts.stopped:
        return _ending(agent, "stopped", facts)
    if view.reason == "DeadlineExceeded":
        return _ending(agent, "wall_clock", facts)
    return _too_large(view, facts) or disruption(view)


def _never_started(view: PodView, agent: ContainerView, facts: Facts) -> Ending | Loss:
    if facts.stopped:
        return replace(_ending(agent, "stopped", facts), exit=Exit())
    if _is_being_ended(view):
        return disruption(view)
    return Loss("agent_start", f"{_SUPERVISOR_FAILED[agent.exit_code or 0]}: {_message(agent)}")


def _whole_sandbox_died(view: PodView, agent: ContainerView, facts: Facts) -> bool:
    """gVisor charges all containers of a pod to one sandbox: memory that the agent takes too much of ends the freezer as well."""
    if facts.isolation != "gvisor" or agent.reason in ("Completed", ""):
        return False
    freezer = view.container(names.FREEZER)
    died = freezer is not None and freezer.state == "terminated" and freezer.exit_code in (128, 137)
    return died and agent.exit_code in (128, 137) and not view.deleting and not view.reason


# --- endings ------------------------------------------------------------------------------------------------------------------------------


def _ending(agent: ContainerView, cause: Cause, facts: Facts) -> Ending:
    started, ended = _times(agent, facts.clock())
    return Ending(exit=_exit(agent), cause=cause, started=started, ended=ended)


def _never_ended(cause: Cause, facts: Facts) -> Ending:
    """Return the ending of an agent whose container nobody saw end."""
    now = facts.clock()
    return Ending(exit=Exit(), cause=cause, started=min(facts.began or now, now), ended=now)


def _exit(agent: ContainerView) -> Exit:
    """Return what the agent's program ended with: the supervisor's word for it, where it fits the container's."""
    said = _said(agent)
    code, signal = said.get("code"), said.get("signal")
    shown = agent.exit_code or 0
    if isinstance(signal, int) and shown == 128 + signal:
        return Exit(signal=signal)
    if isinstance(code, int) and code == shown:
        return Exit(code=code)
    return Exit(signal=shown - 128) if 128 < shown < 128 + 65 else Exit(code=shown)


def _times(agent: ContainerView, now: float) -> tuple[float, float]:
    """Return when the agent ran. The kubelet's times are whole seconds; the supervisor's are believed within them.

    A node whose clock is ahead of ours must not end an agent in the future.
    """
    first, last = seconds(agent.started), seconds(agent.finished)
    if first is None or last is None or last < first:
        return now, now
    said = _said(agent)
    started, ended = said.get("started"), said.get("ended")
    if not (isinstance(started, int | float) and first <= started < last + 1):
        started = first
    if not (isinstance(ended, int | float) and max(started, last) <= ended < last + 1):
        ended = max(started, last)
    ahead = max(0.0, ended - now)
    return started - ahead, ended - ahead


def _length(agent: ContainerView) -> float:
    first, last = seconds(agent.started), seconds(agent.finished)
    return 0.0 if first is None or last is None else last - first


def _too_large(view: PodView, facts: Facts) -> Loss | None:
    """Return a loss where the pod was evicted for what was laid for its agent, and not for what that wrote."""
    before = exceeded(view) and not ran(view) and facts.began is None
    if before or (view.reason == "Evicted" and _WE_WROTE.search(view.message)):
        return Loss("bundle_too_large", f"{view.reason}: {view.message}; raise environment.resources.disk")
    return None


# --- before the agent ---------------------------------------------------------------------------------------------------------------------


def _failed_init(view: PodView) -> Loss | None:
    for each in view.init:
        if each.state != "terminated" or each.exit_code == 0:
            continue
        cause = _PREPARE.get(each.exit_code or 0)
        if cause is None and _is_being_ended(view) and each.exit_code in _FROM_OUTSIDE:
            return None  # not its own failure
        return Loss(
            cause or "prepare_failed", f"{each.name} ended with {each.exit_code} {each.reason}: {_message(each)}"
        )
    return None


def _message(container: ContainerView) -> str:
    said = _said(container).get("message")
    text = said if isinstance(said, str) else container.message
    return " ".join(text.split())[:500] or "it said nothing"


def _said(container: ContainerView) -> dict[str, Any]:
    """Return a container's last words where they are JSON. An agent that takes its supervisor along has the last word itself."""
    try:
        said = json.loads(container.message)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
