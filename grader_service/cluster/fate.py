"""What became of a grading pod. Pure: from the cluster's word on it to results, or to whose failure it is.

What a subject does to itself (memory, disk, processes, time) is its result. What happens to prepare, to a runner or to the whole pod is
ours, and is tried again.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from grader_service.checks.case import PairEnd
from grader_service.cluster.door import PairResult
from grader_service.cluster.render import runner_name, subject_name
from grader_service.pod import wire
from orchestrator.interfaces import Ending, Frozen
from orchestrator.records.outcome import Exit
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.endings import seconds
from orchestrator.sandbox.kubernetes.podview import ContainerView, PodView

_SPILLED = re.compile(r'emptyDir volume "subject-(\d+)" exceeds the limit', re.IGNORECASE)
_NEVER_RAN = frozenset({"StartError", "ContainerCannotRun"})
_CAUSES: Mapping[int, Literal["out_of_disk", "out_of_processes", "wall_clock"]] = {
    wire.DISK: "out_of_disk",
    wire.PROCESSES: "out_of_processes",
    wire.DEADLINE: "wall_clock",
}
_PASSING = {"DeadlineExceeded": "grading_deadline", "Evicted": "evicted", "NodeLost": "node_lost"}


@dataclass(frozen=True, kw_only=True)
class Fate:
    """What the cluster's word on a pod means for the pairs that are still awaited."""

    view: PodView
    cause: str = ""
    problem: str | None = None
    """Nothing more can come, and why; None: it can."""
    spilled: tuple[int, ...] = ()
    """Pairs whose subject filled its disk, by which the pod ended: what else is awaited has to run again."""

    def ended(self, index: int) -> bool:
        """Whether a pair's subject is known to have ended."""
        container = self.view.container(subject_name(index))
        return container is not None and container.state == "terminated"


def fate_of(view: PodView, waits: Sequence[int]) -> Fate:
    """Judge a pod of which the results of pairs ``waits`` are missing."""
    if spilled := spilled_in(view):
        return Fate(view=view, spilled=spilled)
    cause, problem = _problem(view, waits)
    return Fate(view=view, cause=cause, problem=problem)


def spilled_in(view: PodView) -> tuple[int, ...]:
    """Return the pairs whose subjects took too much of the disk in a pod that ended as a whole.

    The kubelet names them, or their own first processes have ended them for it: an eviction for a full node names nobody.
    """
    if not view.reason:
        return ()
    named = {int(index) for index in _SPILLED.findall(view.message)}
    ended = {_index(each.name) for each in view.containers if each.name.startswith(names.SUBJECT) and _is_over(each)}
    return tuple(sorted(named | ended))


def _is_over(subject: ContainerView) -> bool:
    return subject.state == "terminated" and subject.exit_code == wire.DISK


def _index(name: str) -> int:
    """Return the pair of a subject's container."""
    return int(name.removeprefix(names.SUBJECT).removeprefix("-") or 0)


def _problem(view: PodView, waits: Sequence[int]) -> tuple[str, str | None]:
    if view.reason:  # only what befalls a pod as a whole has one
        return _PASSING.get(view.reason, "grading_pod"), f"{view.reason}: {view.message}"
    prepare = view.container(names.PREPARE)
    if prepare is not None and prepare.state == "terminated" and prepare.exit_code:
        return _told(prepare)
    for index in waits:
        runner, subject = view.container(runner_name(index)), view.container(subject_name(index))
        if runner is not None and runner.state == "terminated":
            cause, told = _told(runner)
            ended = subject is not None and subject.state == "terminated" and runner.exit_code == wire.SUBJECT
            return cause, f"{told}; {_words(subject)}" if subject is not None and ended else told
        if subject is not None and _never_joined(subject):
            return "grading_subject", f"the subject did not start: {_words(subject)}"
    if view.gone or view.deleting:
        disruption = view.condition("DisruptionTarget")
        why = f": {disruption.reason}: {disruption.message}" if disruption is not None else ""
        return "pod_deleted", f"somebody deleted it{why}"
    if view.phase in {"Failed", "Succeeded"} and waits:
        return (
            "grading_pod",
            f"it ended as {view.phase} without a result. {view.message}",
        )
    return "", None


def _never_joined(subject: ContainerView) -> bool:
    if subject.state != "terminated":
        return False
    return subject.reason in _NEVER_RAN or subject.exit_code == wire.NOT_JOINED


def _told(container: ContainerView) -> tuple[str, str]:
    """Return cause and words of one of our own programs that failed."""
    if container.reason == "OOMKilled":
        return "grading_memory", f"{container.name} met its memory limit"
    cause = wire.CAUSES.get(container.exit_code or 0, "grading_pod")
    message = ""
    with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):
        message = str(json.loads(container.message).get("message", ""))[:500]
    return cause, f"{container.name} ended without a result: {message or _words(container)}"


def _words(container: ContainerView) -> str:
    return f"{container.reason or 'ended'} with exit code {container.exit_code} {container.message[:300]}".strip()


def pair_end(result: PairResult, view: PodView | None, index: int) -> PairEnd:
    """Return a pair's end from its runner's report; ``view`` where its subject had ended first."""
    ending = Ending(
        exit=Exit(code=result.code, signal=result.signal),
        cause=result.cause,
        started=result.started,
        ended=result.ended,
    )
    frozen = Frozen(state=None, output=result.output, output_blob=None, final=result.final)
    container = None if view is None else view.container(subject_name(index))
    if view is not None and index in spilled_in(view):
        return PairEnd(runner=ending, frozen=frozen, subject=spilled_end().subject)
    subject = None if container is None or container.state != "terminated" else _subject_ending(container)
    return PairEnd(runner=ending, frozen=frozen, subject=subject)


def spilled_end() -> PairEnd:
    """Return the end of a pair whose subject filled its disk: the cluster ends the whole pod for that."""
    ending = Ending(exit=Exit(), cause="out_of_disk", started=0.0, ended=0.0)
    return PairEnd(runner=ending, frozen=Frozen(state=None, output=b"", output_blob=None, final=None), subject=ending)


def _subject_ending(container: ContainerView) -> Ending:
    code = container.exit_code or 0
    return Ending(
        exit=Exit(signal=code - 128) if code > 128 else Exit(code=code),
        cause="out_of_memory" if container.reason == "OOMKilled" else _CAUSES.get(code, "exited"),
        started=seconds(container.started) or 0.0,
        ended=seconds(container.finished) or 0.0,
    )
