"""A kubelet, a scheduler and what befalls them, played: pods go through their life as a script says.

Statuses are written at most once a ``tick``, as a kubelet does, so that quick containers are never seen running. While a pod is terminating
nothing of it is told until all of it is gone.
"""

from __future__ import annotations

import asyncio
import fnmatch
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf

from fault_objects import Key, Objects

NODE = "node-1"


@dataclass(frozen=True)
class End:
    """How a container ended."""

    code: int = 0
    reason: str = ""
    """Empty: Completed or Error, by the code."""
    message: str = ""
    signal: int | None = None


Behaviour = Callable[["Play", str], Awaitable[End]]


def ends(code: int = 0, *, after: float = 0.0, reason: str = "", message: str = "") -> Behaviour:
    """Return a container that ends by itself, or with 143 as soon as the pod is asked to go."""

    async def behave(play: Play, name: str) -> End:
        if await play.termed(after):
            return End(143)
        return End(code, reason, message)

    return behave


def freezes(code: int = 0, *, after: float = 0.0, reason: str = "", message: str = "") -> Behaviour:
    """Return a container that ends when the agent has ended, asked to go or not."""

    async def behave(play: Play, name: str) -> End:
        await play.ended["agent"].wait()
        await asyncio.sleep(after)
        return End(code, reason, message)

    return behave


def runs_for_ever() -> Behaviour:
    """Return a container that hears nothing and has to be killed."""

    async def behave(play: Play, name: str) -> End:
        await asyncio.Event().wait()
        return End()

    return behave


@dataclass(frozen=True)
class Wait:
    """A container that waits for a reason before it starts."""

    reason: str
    message: str = ""
    seconds: float = inf


@dataclass(frozen=True)
class Script:
    """The life of a pod. Seconds are real ones."""

    behaviours: Mapping[str, Behaviour] = field(default_factory=dict)
    """By container; others end at once, ``freezer`` after ``agent``."""
    waits: Mapping[str, Sequence[Wait]] = field(default_factory=dict)
    """By container, before it starts."""
    gated: float = 0.0
    """How long a scheduling gate holds it, as Kueue's."""
    unschedulable: float = 0.0
    """How long no node fits."""
    unschedulable_message: str = "0/1 nodes are available: 1 Insufficient cpu."
    schedule: float = 0.0
    befalls: Callable[[Play], Awaitable[None]] | None = None
    """Runs beside it from the moment it has a node: evictions, deletions, lost nodes."""
    silent: bool = False
    """The node never says anything."""
    tick: float | None = None


@dataclass(eq=False)
class Play:
    """One pod that is being played."""

    kubelet: Kubelet
    key: Key
    uid: str
    script: Script
    term: asyncio.Event = field(default_factory=asyncio.Event)
    """It was asked to go."""
    ended: dict[str, asyncio.Event] = field(default_factory=dict)
    started: dict[str, asyncio.Event] = field(default_factory=dict)
    states: dict[str, dict] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)
    conditions: dict[str, dict] = field(default_factory=dict)
    extra: dict = field(default_factory=dict)
    """Fields of the status that somebody has set: phase, reason, message."""
    frozen: bool = False
    """Nothing is told any more: the node is lost."""
    tasks: list[asyncio.Task] = field(default_factory=list)
    _dirty: asyncio.TimerHandle | None = None

    @property
    def pod(self) -> dict | None:
        found = self.kubelet.objects.get(self.key)
        return found if found is not None and found["metadata"]["uid"] == self.uid else None

    def annotation(self, name: str) -> str:
        return ((self.pod or {}).get("metadata", {}).get("annotations") or {}).get(name, "")

    async def termed(self, seconds: float) -> bool:
        """Wait so long, or until it is asked to go; return whether it was."""
        if seconds == inf:
            await self.term.wait()
            return True
        try:
            await asyncio.wait_for(self.term.wait(), seconds)
        except TimeoutError:
            return self.term.is_set()
        return True

    # Its status

    def say(self, *, now: bool = False) -> None:
        """Let the status be told at the next tick."""
        if now:
            self._tell()
        elif self._dirty is None:
            tick = self.script.tick if self.script.tick is not None else self.kubelet.tick
            self._dirty = asyncio.get_running_loop().call_later(tick, self._tell)

    def condition(self, kind: str, status: str, reason: str = "", message: str = "") -> None:
        self.conditions[kind] = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": self.kubelet.objects.now(),
        }

    def status(self) -> dict:
        pod = self.pod or {"spec": {}}
        init = [each["name"] for each in pod["spec"].get("initContainers", ())]
        others = [each["name"] for each in pod["spec"].get("containers", ())]
        status: dict = {"phase": self._phase(init, others), "conditions": list(self.conditions.values())}
        if self.states:
            status["startTime"] = self.kubelet.objects.now()
            status["initContainerStatuses"] = [self._container(name) for name in init]
            status["containerStatuses"] = [self._container(name) for name in others]
        return status | self.extra

    def _container(self, name: str) -> dict:
        state = self.states.get(name) or {"waiting": {"reason": "PodInitializing"}}
        return {
            "name": name,
            "state": state,
            "restartCount": self.restarts.get(name, 0),
            "ready": "running" in state,
            "image": "image",
            "imageID": "sha256:0",
        }

    def _phase(self, init: list[str], others: list[str]) -> str:
        ended = [self.states.get(name, {}).get("terminated") for name in others]
        failed = [self.states.get(name, {}).get("terminated") for name in init]
        if any(each and each["exitCode"] for each in failed):
            return "Failed"
        if others and all(ended):
            return "Succeeded" if not any(each["exitCode"] for each in ended if each) else "Failed"
        begun = any("waiting" not in self.states.get(name, {"waiting": 1}) for name in others)
        return "Running" if begun else "Pending"

    def _tell(self) -> None:
        if self._dirty is not None:
            self._dirty.cancel()
            self._dirty = None
        pod = self.pod
        if pod is None or self.frozen or pod["metadata"].get("deletionTimestamp"):
            return
        self.kubelet.objects.put("MODIFIED", self.key, {**pod, "status": {**pod.get("status", {}), **self.status()}})

    # Its life

    async def live(self) -> None:
        pod = self.pod
        if pod is None:
            return
        await self._scheduled()
        if self.script.silent:
            await self.term.wait()
            return
        befalls = asyncio.ensure_future(self.script.befalls(self)) if self.script.befalls else None
        try:
            await self._containers(pod)
        finally:
            if befalls is not None and (self.pod is None or not self.term.is_set()):
                with suppress(asyncio.CancelledError):
                    await befalls
        if not self.term.is_set():
            self.say()

    async def _scheduled(self) -> None:
        script = self.script
        for seconds, reason, message in (
            (script.gated, "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"),
            (script.unschedulable, "Unschedulable", script.unschedulable_message),
        ):
            if seconds:
                self.condition("PodScheduled", "False", reason, message)
                self.say(now=True)
                if await self.termed(seconds):
                    return
        if script.schedule:
            await asyncio.sleep(script.schedule)
        pod = self.pod
        if pod is None:
            return
        self.condition("PodScheduled", "True")
        spec = {**pod["spec"], "nodeName": self.kubelet.node_of(self)}
        self.kubelet.objects.put(
            "MODIFIED", self.key, {**pod, "spec": spec, "status": {**pod["status"], **self.status()}}
        )

    async def _containers(self, pod: dict) -> None:
        names = [each["name"] for each in pod["spec"]["containers"]]
        init = [each["name"] for each in pod["spec"].get("initContainers", ())]
        for name in (*init, *names):
            self.ended[name], self.started[name] = asyncio.Event(), asyncio.Event()
        for name in init:
            if self.term.is_set() or (await self._container_lives(name)).code:
                return
        if self.term.is_set():
            return
        self.tasks = [asyncio.ensure_future(self._container_lives(name)) for name in names]
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _container_lives(self, name: str) -> End:
        for wait in self.script.waits.get(name, ()):
            self.states[name] = {"waiting": {"reason": wait.reason, "message": wait.message}}
            self.say()
            if await self.termed(wait.seconds):
                self.ended[name].set()
                return End(143)
        since = self.kubelet.objects.now()
        self.states[name] = {"running": {"startedAt": since}}
        self.started[name].set()
        self.say()
        behave = self.script.behaviours.get(name) or (freezes() if name == "freezer" else ends())
        end = End(137)
        try:
            end = await behave(self, name)
        finally:
            self.states[name] = {"terminated": self._ending(end, since)}
            self.ended[name].set()
            self.say()
        return end

    def _ending(self, end: End, since: str) -> dict:
        said: dict = {
            "exitCode": end.code,
            "reason": end.reason or ("Error" if end.code else "Completed"),
            "startedAt": since,
            "finishedAt": self.kubelet.objects.now(),
        }
        if end.message:
            said["message"] = end.message
        if end.signal is not None:
            said["signal"] = end.signal
        return said

    # What befalls it

    async def stop(self, grace: float) -> None:
        """Ask its containers to end, and kill them when the grace is over."""
        self.term.set()
        if self.tasks:
            _, late = await asyncio.wait(self.tasks, timeout=grace)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def evict(self, message: str, *, grace: float | None = None, late: float = 0.0) -> None:
        """As a kubelet does: the pod ends as Failed/Evicted and stays. ``late``: the first event lacks the containers' endings."""
        known = dict(self.states)
        await self.stop(self.grace if grace is None else grace)
        self.extra = {"phase": "Failed", "reason": "Evicted", "message": message}
        self.condition("DisruptionTarget", "True", "TerminationByKubelet", message)
        if late:
            now, self.states = self.states, known
            self.say(now=True)
            await asyncio.sleep(late)
            self.states = now
        self.say(now=True)

    async def over_deadline(self) -> None:
        """activeDeadlineSeconds are over."""
        await self.stop(self.grace)
        self.extra = {
            "phase": "Failed",
            "reason": "DeadlineExceeded",
            "message": "Pod was active on the node longer than the specified deadline",
        }
        self.say(now=True)

    async def preempt(self, *, by: str = "PreemptionByScheduler") -> None:
        """A scheduler needs the room: the pod is marked and deleted."""
        self.condition("DisruptionTarget", "True", by, "preempting to accommodate a higher priority pod")
        self.say(now=True)
        await self.kubelet.delete(self.key)

    def lose_node(self) -> None:
        """Its node says nothing any more; what runs there goes on."""
        self.condition("Ready", "False", "NodeNotReady")
        self.say(now=True)
        self.frozen = True

    def remove(self, *, why: str = "") -> None:
        """Take it away at once, as the garbage collector of pods or a forced deletion does."""
        pod = self.pod
        if pod is None:
            return
        if why:
            self.condition("DisruptionTarget", "True", why, "PodGC: node no longer exists")
            self.extra = {"phase": "Failed"}
            self.say(now=True)
            pod = self.pod or pod
        self.kubelet.objects.put("DELETED", self.key, pod)
        self.kubelet.gone(self)

    def restart(self, name: str) -> None:
        """The node was started again: the container runs anew although it must not."""
        self.restarts[name] = self.restarts.get(name, 0) + 1
        self.states[name] = {"running": {"startedAt": self.kubelet.objects.now()}}
        self.say(now=True)

    @property
    def grace(self) -> float:
        pod = self.pod or {"spec": {}}
        return self.kubelet.grace_scale * pod["spec"].get("terminationGracePeriodSeconds", 30)


class Kubelet:
    """Plays all pods."""

    def __init__(self, objects: Objects, *, tick: float = 0.005, grace_scale: float = 0.01) -> None:
        self.objects = objects
        self.tick = tick
        self.grace_scale = grace_scale
        """A second of grace is so many real ones."""
        self.plays: dict[Key, Play] = {}
        self.scripts: list[tuple[str, Script]] = []
        self.default = Script()
        self.nodes: dict[str, str] = {}
        self._tasks: set[asyncio.Task] = set()

    def play(self, pattern: str, script: Script) -> None:
        """Let pods whose names match the pattern live so; the newest that fits holds."""
        self.scripts.insert(0, (pattern, script))

    def node_of(self, play: Play) -> str:
        return self.nodes.get(play.key[2], NODE)

    def created(self, key: Key, pod: dict) -> None:
        script = next((script for pattern, script in self.scripts if fnmatch.fnmatch(key[2], pattern)), self.default)
        play = Play(self, key, pod["metadata"]["uid"], script)
        self.plays[key] = play
        self._spawn(play.live())

    def gone(self, play: Play) -> None:
        if self.plays.get(play.key) is play:
            del self.plays[play.key]
        play.term.set()
        for task in play.tasks:
            task.cancel()

    async def delete(self, key: Key, grace: float | None = None) -> None:
        """Delete as the API does: at once when nothing runs, else after the grace."""
        pod, play = self.objects.get(key), self.plays.get(key)
        if pod is None:
            return
        seconds = grace if grace is not None else pod["spec"].get("terminationGracePeriodSeconds", 30)
        done = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if seconds == 0 or done or not pod["spec"].get("nodeName") or play is None:
            self.objects.put("DELETED", key, pod)
            if play is not None:
                self.gone(play)
            return
        if not pod["metadata"].get("deletionTimestamp"):
            about = {
                **pod["metadata"],
                "deletionTimestamp": self.objects.now(),
                "deletionGracePeriodSeconds": int(seconds),
            }
            self.objects.put("MODIFIED", key, {**pod, "metadata": about})
        self._spawn(self._going(play, seconds * self.grace_scale))

    async def _going(self, play: Play, grace: float) -> None:
        if play.frozen:  # nobody on the node hears it
            return
        await play.stop(grace)
        pod = play.pod
        if pod is not None:
            told = {**pod, "status": {**pod.get("status", {}), **play.status()}}
            self.objects.put("DELETED", play.key, self.objects.put("MODIFIED", play.key, told))
        self.gone(play)

    def _spawn(self, life: Awaitable[None]) -> None:
        task = asyncio.ensure_future(life)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for play in list(self.plays.values()):
            self.gone(play)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _after(name: str, then: Callable[[Play], Awaitable[None]]) -> Callable[[Play], Awaitable[None]]:
    """Let something befall a pod once a container has started."""

    async def befalls(play: Play) -> None:
        while name not in play.started:
            await asyncio.sleep(0.001)
        await play.started[name].wait()
        await asyncio.sleep(2 * play.kubelet.tick)
        await then(play)

    return befalls


after = _after
LONG: Mapping[str, Behaviour] = {"agent": ends(after=60)}


async def _lost(play: Play) -> None:
    play.lose_node()


async def _lost_and_collected(play: Play) -> None:
    play.lose_node()
    await asyncio.sleep(0.02)
    play.frozen = False
    play.remove(why="DeletionByPodGC")


async def _comes_back(play: Play) -> None:
    play.lose_node()
    await asyncio.sleep(0.1)
    play.frozen = False
    play.say(now=True)


async def _stuck(play: Play) -> None:
    play.frozen = True
    await play.kubelet.delete(play.key)


async def _collected(play: Play) -> None:
    play.remove()


async def _rebooted(play: Play) -> None:
    await play.ended["agent"].wait()
    play.say(now=True)
    play.restart("agent")


async def _regresses(play: Play) -> None:
    await play.ended["agent"].wait()
    play.say(now=True)
    ending = play.states["agent"]
    play.states["agent"] = {"waiting": {"reason": "ContainerCreating"}}
    play.say(now=True)
    play.states["agent"] = ending
    play.say(now=True)


_DISK = 'Usage of EmptyDir volume "workspace" exceeds the limit "64Mi".'
_PRESSURE = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 20Mi."
_OOM = {"agent": ends(137, reason="OOMKilled")}
_PULL = "failed to pull and unpack image: dial tcp 198.18.0.9:443: i/o timeout"

PLAYS: dict[str, Script] = {
    "unschedulable": Script(
        unschedulable=inf, unschedulable_message="0/3 nodes are available: 3 node(s) didn't match selector."
    ),
    "no_room_for_a_while": Script(unschedulable=0.05),
    "scheduling_gated": Script(gated=inf),
    "scheduling_gated_for_a_while": Script(gated=0.05),
    "image_pull_back_off": Script(
        waits={"agent": [Wait("ErrImagePull", _PULL, 0.02), Wait("ImagePullBackOff", "Back-off pulling image")]}
    ),
    "image_pull_recovers": Script(
        waits={"agent": [Wait("ErrImagePull", _PULL, 0.02), Wait("ImagePullBackOff", "Back-off", 0.03)]}
    ),
    "image_not_found": Script(waits={"agent": [Wait("ErrImagePull", "rpc error: code = NotFound: not found")]}),
    "image_never_pulled": Script(
        waits={"agent": [Wait("ErrImageNeverPull", "is not present with pull policy of Never")]}
    ),
    "image_name": Script(waits={"agent": [Wait("InvalidImageName", 'couldn\'t parse image name "Bad::"')]}),
    "pull_qps_exceeded": Script(waits={"agent": [Wait("ErrImagePull", "pull QPS exceeded", 0.05)]}),
    "container_config": Script(waits={"agent": [Wait("CreateContainerConfigError", 'configmap "x" not found')]}),
    "container_create": Script(waits={"agent": [Wait("CreateContainerError", "policy agent is away", 0.05)]}),
    "container_create_for_ever": Script(waits={"agent": [Wait("CreateContainerError", "context deadline exceeded")]}),
    "runtime_class": Script(waits={"agent": [Wait("RunContainerError", 'no runtime for "gvisor" is configured')]}),
    "node_silent": Script(silent=True),
    "prepare_fails": Script(behaviours={"prepare": ends(49, message='{"cause": "prepare_failed", "message": "boom"}')}),
    "policy_not_enforced": Script(
        behaviours={
            "prepare": ends(41, message='{"cause": "policy_not_enforced", "message": "198.18.96.1:443 answered"}')
        }
    ),
    "agent_fails": Script(behaviours={"agent": ends(3)}),
    "agent_out_of_memory": Script(behaviours=_OOM),
    "agent_child_out_of_memory": Script(behaviours={"agent": ends(0, reason="OOMKilled")}),
    "freezer_out_of_memory": Script(behaviours={"freezer": freezes(137, reason="OOMKilled")}),
    "freezer_fails": Script(behaviours={"freezer": freezes(59, message='{"cause": "other", "message": "boom"}')}),
    "freezer_cannot_start": Script(behaviours=_OOM | {"freezer": freezes(128, reason="StartError")}),
    "evicted_disk": Script(LONG, befalls=after("agent", lambda play: play.evict(_DISK))),
    "evicted_disk_late": Script(LONG, befalls=after("agent", lambda play: play.evict(_DISK, late=0.03))),
    "evicted_node_pressure": Script(LONG, befalls=after("agent", lambda play: play.evict(_PRESSURE, grace=0))),
    "evicted_by_api": Script(LONG, befalls=after("agent", lambda play: play.kubelet.delete(play.key))),
    "preempted_by_scheduler": Script(LONG, befalls=after("agent", lambda play: play.preempt())),
    "preempted_by_kueue": Script(LONG, befalls=after("agent", lambda play: play.preempt(by="TerminationByKueue"))),
    "deadline_exceeded": Script(LONG, befalls=after("agent", lambda play: play.over_deadline())),
    "deadline_exceeded_while_freezing": Script(
        behaviours={"freezer": freezes(after=60)}, befalls=after("freezer", lambda play: play.over_deadline())
    ),
    "node_lost": Script(LONG, befalls=after("agent", _lost)),
    "node_lost_and_collected": Script(LONG, befalls=after("agent", _lost_and_collected)),
    "node_comes_back": Script({"agent": ends(after=0.05)}, befalls=after("agent", _comes_back)),
    "stuck_terminating": Script(LONG, befalls=after("agent", _stuck)),
    "collected_before_seen": Script(LONG, befalls=after("agent", _collected)),
    "restarted_by_reboot": Script({"freezer": freezes(after=0.05)}, befalls=after("agent", _rebooted)),
    "status_regresses": Script({"freezer": freezes(after=0.05)}, befalls=after("agent", _regresses)),
}
"""Lives by name: every failure of a pod."""


def long(script: Script, seconds: float) -> Script:
    """Return the same with an agent that goes on so long."""
    return replace(script, behaviours={**script.behaviours, "agent": ends(after=seconds)})
