"""The reaper: seals launches whose agent has ended and whose driver is away, and deletes what pods of dead runs are left over.

It trusts nothing but what it saw itself. A driver is away when its run's Lease did not change for a while on this process's own clock, and
every reading in between succeeded: one that failed starts the clocks of all runs anew. Nothing is deleted before a full grace, nothing that
still runs (a pod's own deadline ends it, and its freezer delivers), and only by name with the uid that was seen. A run that is driven
again within the grace finds all of its pods. Its Lease goes after its last pod; a driver that comes later makes another. Pods of a doctor
have no run and a short life: one that is seen for a full grace was left by a doctor that died.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator import wiring
from orchestrator.driver.kubernetes.doctor_pods import DOCTOR
from orchestrator.driver.kubernetes.reaper_file import ReaperConfig, read_reaper_file
from orchestrator.sandbox.kubernetes import names
from orchestrator.sandbox.kubernetes.errors import ApiError
from orchestrator.sandbox.kubernetes.resources import LEASES, PODS
from orchestrator.settings import Kubernetes

if TYPE_CHECKING:
    import aiohttp

    from orchestrator.sandbox.kubernetes.api import Api

log = logging.getLogger(__name__)
_NO_LEASE = "none"
_ENDED = frozenset({"Succeeded", "Failed"})
_SWEEP_LOOKS = 20
"""So many looks, one lists all pods."""
_RUNS = 50
"""Runs in one selector."""
_SEALS = 32
"""Launches that are sealed at one time."""
_FORGET_LOOKS = 100
"""Looks after which a seal that the gateway knew nothing of is asked for again: it may have been on its way up."""


@dataclass
class _Run:
    """What was seen of one run."""

    mark: str
    """Its Lease as it was seen last: anything of it that a driver changes."""
    since: float
    """When that was seen first, with no failed reading since."""


class Ledger:
    """For how long each run has been without a sign of life, on one clock. Pure."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}

    def note(self, runs: Mapping[str, str], now: float) -> None:
        """Take a successful reading: run to the mark of its Lease. A run that is no longer there is forgotten."""
        known = self._runs
        self._runs = {
            run: known[run] if run in known and known[run].mark == mark else _Run(mark, now)
            for run, mark in runs.items()
        }

    def failed(self) -> None:
        """Take a failed reading: whatever was seen before says nothing any more."""
        self._runs.clear()

    def silent_s(self, run: str, now: float) -> float:
        """Return the seconds for which a run's Lease was seen unchanged; 0 for one that was not seen."""
        return now - self._runs[run].since if run in self._runs else 0.0


@dataclass
class Reaper:
    """Looks again and again."""

    api: Api
    config: ReaperConfig
    seal: Callable[[int, str], Any]
    """Asks a gateway, by its index, to seal a launch; awaitable, returns whether it need not be asked again."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Any] = asyncio.sleep
    looked: float | None = None
    """When a look succeeded last."""
    _ledger: Ledger = field(default_factory=Ledger)
    _doctors: Ledger = field(default_factory=Ledger)
    """The same for pods of doctors, by their uid."""
    _sealed: dict[str, int] = field(default_factory=dict)
    """Pods by uid whose launch need not be sealed any more, with the number of the look."""
    _strays: set[str] = field(default_factory=set)
    """Runs that had pods and no Lease when all pods were listed last."""
    _looks: int = 0

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await self.look()
            await self.sleep(self.config.look_seconds)

    async def look(self) -> None:
        """Read what is needed once, and do what is due. What cannot be read now is read the next time."""
        self._looks += 1
        try:
            leases = await self._leases()
            marks = {run: f"{about.get('uid')} {about.get('resourceVersion')}" for run, about in leases.items()}
            self._ledger.note({**dict.fromkeys(self._strays, _NO_LEASE), **marks}, self.clock())
            pods = await self._pods(leases)
            left = await self._left_by_doctors()
        except ApiError as error:
            self._ledger.failed()
            self._doctors.failed()
            log.warning("nothing is done before all can be read: %s", error)
            return
        now = self.looked = self.clock()
        away = [(pod, silent) for pod in pods if (silent := self._silent_s(pod, now)) >= self.config.absent_seconds]
        old = [pod for pod, silent in away if silent >= self.config.grace_seconds]
        await self._delete_all([pod for pod in (*old, *left) if may_go(pod)], now)
        await self._seal_all([pod for pod, _ in away if agent_has_ended(pod)])
        await self._delete_leases(leases, {_run_of(pod) for pod in pods}, now)

    def _silent_s(self, pod: Mapping[str, Any], now: float) -> float:
        return self._ledger.silent_s(_run_of(pod), now)

    async def _pods(self, leases: Iterable[str]) -> list[dict[str, Any]]:
        """Return the pods of runs whose driver is away, and now and then all: there are some of runs without a Lease.

        Pods without a run, such as a grader's, belong to who made them.
        """
        if self._sweeps:
            pods = await self._listed(names.RUN_LABEL)
            self._strays = {_run_of(pod) for pod in pods} - set(leases)
            there = {pod["metadata"]["uid"] for pod in pods}
            self._sealed = {uid: look for uid, look in self._sealed.items() if uid in there}
            return pods
        now = self.clock()
        away = [
            run for run in (*leases, *self._strays) if self._ledger.silent_s(run, now) >= self.config.absent_seconds
        ]
        return [
            pod
            for first in range(0, len(away), _RUNS)
            for pod in await self._listed(f"{names.RUN_LABEL} in ({','.join(away[first : first + _RUNS])})")
        ]

    @property
    def _sweeps(self) -> bool:
        """Whether this look lists all pods."""
        return self._looks % _SWEEP_LOOKS == 1

    async def _left_by_doctors(self) -> list[dict[str, Any]]:
        """Return, now and then, the pods of doctors that were there for a full grace."""
        if not self._sweeps:
            return []
        pods, now = await self._listed(f"{names.COMPONENT}={DOCTOR}"), self.clock()
        self._doctors.note({pod["metadata"]["uid"]: "there" for pod in pods}, now)
        return [pod for pod in pods if self._doctors.silent_s(pod["metadata"]["uid"], now) >= self.config.grace_seconds]

    async def _listed(self, labels: str) -> list[dict[str, Any]]:
        found = [
            await self.api.list(PODS, each, labels=f"{names.SELECTOR},{labels}") for each in self.config.namespaces
        ]
        return [pod for pods in found for pod in pods]

    async def _leases(self) -> dict[str, Mapping[str, Any]]:
        """Return the metadata of each run's Lease."""
        return {
            _run_of(lease): lease["metadata"]
            for namespace in self.config.namespaces
            for lease in await self.api.list(LEASES, namespace, labels=f"{names.SELECTOR},{names.RUN_LABEL}")
        }

    async def _delete_leases(self, leases: Mapping[str, Mapping[str, Any]], with_pods: Set[str], now: float) -> None:
        """Delete the Leases of runs that have no pods and were not driven for a full grace, if they are still as they were read."""
        for run, about in leases.items():
            if run in with_pods or self._ledger.silent_s(run, now) < self.config.grace_seconds:
                continue
            if self.clock() - now >= self.config.look_seconds:
                return
            where = about["namespace"], about["name"]
            try:
                if await self.api.delete(LEASES, *where, uid=about["uid"], version=about["resourceVersion"]):
                    log.info("lease %s was deleted: its run has no pods and is not driven any more", about["name"])
            except ApiError as error:
                log.warning("lease %s is left for the next look: %s", about["name"], error)
            await self.sleep(1 / self.config.deletes_per_second)

    def _is_sealed(self, uid: str) -> bool:
        number = self._sealed.get(uid, 0)
        return number > 0 and self._looks - number < _FORGET_LOOKS

    async def _delete_all(self, pods: Iterable[Mapping[str, Any]], now: float) -> None:
        """Delete pods one after the other. What takes long is left for the next look: a driver that has come back is seen by then."""
        for pod in pods:
            if self.clock() - now >= self.config.look_seconds:
                return
            await self._delete(pod["metadata"])

    async def _delete(self, about: Mapping[str, Any]) -> None:
        """Delete one pod, and wait for the next one's turn."""
        try:
            if await self.api.delete(PODS, about["namespace"], about["name"], uid=about["uid"]):
                log.info("pod %s in %s was deleted: nobody needs it any more", about["name"], about["namespace"])
        except ApiError as error:
            log.warning("pod %s in %s is left for the next look: %s", about["name"], about["namespace"], error)
        await self.sleep(1 / self.config.deletes_per_second)

    async def _seal_all(self, pods: Iterable[Mapping[str, Any]]) -> None:
        """Have launches sealed, some at a time: a gateway that is away must not keep others from it."""
        places = asyncio.Semaphore(_SEALS)

        async def seal(about: Mapping[str, Any]) -> None:
            async with places:
                await self._seal(about)

        await asyncio.gather(*(seal(pod["metadata"]) for pod in pods if not self._is_sealed(pod["metadata"]["uid"])))

    async def _seal(self, about: Mapping[str, Any]) -> None:
        marks = about.get("annotations") or {}
        index, launch = str(marks.get(names.GATEWAY_INDEX, "")), str(marks.get(names.LAUNCH_ID, ""))
        if not index.isdecimal() or int(index) >= len(self.config.gateways) or not launch:
            return
        if await self.seal(int(index), launch):
            self._sealed[about["uid"]] = self._looks
            log.info(
                "launch %s of pod %s was sealed: its agent has ended and its driver is away", launch, about["name"]
            )


def agent_has_ended(pod: Mapping[str, Any]) -> bool:
    """Return whether the cluster says that the agent's container has ended."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return any(each.get("name") == names.AGENT and "terminated" in (each.get("state") or {}) for each in statuses)


def may_go(pod: Mapping[str, Any]) -> bool:
    """Return whether nothing of a pod runs: all of it has ended, or none of it has begun. One that goes already is left alone."""
    status = pod.get("status") or {}
    if "deletionTimestamp" in pod["metadata"]:
        return False
    return status.get("phase") in _ENDED or not (status.get("startTime") or pod["spec"].get("nodeName"))


def _run_of(found: Mapping[str, Any]) -> str:
    return str((found["metadata"].get("labels") or {}).get(names.RUN_LABEL, ""))


def sealer(session: aiohttp.ClientSession, gateways: Iterable[str], token: str) -> Callable[[int, str], Any]:
    """Return what asks gateways to seal."""
    urls = [url.rstrip("/") for url in gateways]
    headers = {"Authorization": f"Bearer {token}"}

    async def seal(index: int, launch: str) -> bool:
        import aiohttp

        url = f"{urls[index]}/reaper/launches/{launch}/seal"
        try:
            async with session.post(url, headers=headers) as response:
                await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            log.warning("gateway %d did not answer: %s", index, str(error) or type(error).__name__)
            return False
        if response.status not in {200, 404}:
            log.warning("gateway %d refused to seal %s: HTTP %d", index, launch, response.status)
        return response.status in {200, 404}

    return seal


@contextlib.asynccontextmanager
async def answering(reaper: Reaper, listen: str | None) -> AsyncIterator[None]:
    """Answer ``GET /healthz`` while the context is open: 200 once a look has succeeded and as long as looks do."""
    if listen is None:
        yield
        return
    from aiohttp import web

    async def healthz(_: web.Request) -> web.Response:
        late = None if reaper.looked is None else reaper.clock() - reaper.looked
        well = late is not None and late < 10 * reaper.config.look_seconds
        return web.json_response({"ok": well, "seconds_since_look": late}, status=200 if well else 503)

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    host, _, port = listen.rpartition(":")
    try:
        await web.TCPSite(runner, host.strip("[]"), int(port)).start()
        yield
    finally:
        await runner.cleanup()


async def serve_reaper(path: Path) -> None:
    """Look until SIGTERM, as a file says. Raises SpecError with every problem of the file, and where there is no cluster."""
    import aiohttp

    config = read_reaper_file(path)
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    timeout = aiohttp.ClientTimeout(total=30)
    async with (
        wiring.cluster_api(Kubernetes(context=config.context)) as api,
        aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
    ):
        reaper = Reaper(api, config, sealer(session, config.gateways, config.token))
        async with answering(reaper, config.listen):
            looking, told = asyncio.create_task(reaper.run()), asyncio.create_task(over.wait())
            await asyncio.wait({looking, told}, return_when=asyncio.FIRST_COMPLETED)
            for task in (looking, told):
                task.cancel()
            await asyncio.gather(told, return_exceptions=True)
            with contextlib.suppress(asyncio.CancelledError):
                await looking  # a mistake in it comes out here
