"""Runs that a Job of a cluster drives: start it, follow it, stop it, read its log."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.driver.kubernetes.job import delete_job, is_over, jobs_of, start_job
from orchestrator.driver.kubernetes.sight import JobWatch, look_at_job
from orchestrator.driver.kubernetes.site import Site, open_site
from orchestrator.driver.lease import read_holder
from orchestrator.driver.lookout import Lookout
from orchestrator.driver.place import KUBERNETES
from orchestrator.driver.wishes import ask_to_stop, last_wish, lift
from orchestrator.errors import OrchestrateError, SpecError
from orchestrator.report.program import program

if TYPE_CHECKING:
    from orchestrator.cli.signals import Stop
    from orchestrator.driver.lease import Holder
    from orchestrator.driver.place import Place
    from orchestrator.interfaces import ObjectStore
    from orchestrator.records.manifest import ManifestAgent, RunManifest
    from orchestrator.sandbox.kubernetes.api import Api
    from orchestrator.settings import Settings

_LOOK_SECONDS = 2.0


@dataclass(frozen=True)
class Remote:
    """Drives runs by Jobs. Implements ``run.Way``."""

    site: Site
    arguments: tuple[str, ...]
    """For the driver's command."""
    detach: bool
    store_option: str
    """What commands need to find the same store from here: empty, or `` --store URL``."""

    @property
    def settings(self) -> Settings:
        """The drivers' settings, with what belongs to this machine in its place."""
        return self.site.settings

    async def drive(
        self,
        place: Place,
        agents: Iterable[ManifestAgent],
        make: Callable[[str], Awaitable[RunManifest]],
        stop: Stop,
        *,
        spent: int = 0,
        as_json: bool,
    ) -> int:
        """Start a Job for the run and follow it to its end. Returns the exit code that a driver here would have."""
        manifest = await make("")
        run = manifest.run
        stop.hint = f"Go on with: {self._command('resume', run)}"
        before, wish = await read_holder(place.store, run), await last_wish(place.store, run)
        try:
            name = await start_job(self.site, run, self.arguments, lambda: lift(place.store, run, wish))
        except OrchestrateError as error:
            error.add_note(f"the run is kept; {self._ways(run)}")
            raise
        print(f"Job {name} in {self.site.namespace} drives run {run}", file=sys.stderr, flush=True)
        if self.detach:
            print(run)
            print(self._ways(run), file=sys.stderr)
            return 0
        stop.left = "left; the run goes on."
        stop.hint = f"Come back with: {self._command('watch', run)}"
        stop.use(RemoteRun(place.store, self.site.api, self.site.namespace, run))
        since = 0 if before is None else before.claim.epoch
        return await self._follow(place.store, run, since, as_json=as_json)

    async def _follow(self, store: ObjectStore, run: str, since: int, *, as_json: bool) -> int:
        from orchestrator.cli.watching import follow_to_its_end

        watch = JobWatch(self.site.api, self.site.namespace, run)
        return await follow_to_its_end(store, run, _LOOK_SECONDS, self.settings, watch, as_json=as_json, since=since)

    def _command(self, word: str, run: str) -> str:
        return f"{program()} {word} {run}{self.store_option}"

    def _ways(self, run: str) -> str:
        """Return what can be done with the run from here."""
        words = {"follow it": "watch", "stop it": "stop", "go on when its driver is gone": "resume"}
        return "; ".join(f"{what}: {self._command(word, run)}" for what, word in words.items())


@contextlib.asynccontextmanager
async def open_remote(
    settings: Settings, arguments: Iterable[str] = (), *, detach: bool = False
) -> AsyncIterator[Remote]:
    """Find the cluster and read what its drivers go by. Raises RefusedError, SpecError and ApiError."""
    async with open_site(settings) as site:
        theirs = settings.sources.get("store", "default") == "default"
        words = list(arguments)
        if settings.sources.get("pool", "default") != "default":
            words += ["--pool", settings.pool]
        if settings.concurrency is not None and settings.sources.get("concurrency", "default") != "default":
            words += ["-n", str(settings.concurrency)]
        yield Remote(site, tuple(words), detach, f" --store '{site.settings.store}'" if theirs else "")


@dataclass(frozen=True)
class RemoteRun:
    """A run that a Job drives, as something to stop. Implements ``signals.Stoppable``."""

    store: ObjectStore
    api: Api
    namespace: str
    run: str

    async def stop(self) -> None:
        """Ask its driver to stop it in order; where there is none yet, take the Job away."""
        if (await Lookout(self.store, self.run).look()).is_driven:
            await ask_to_stop(self.store, self.run)
            return
        if done := await stop_job(self.store, self.api, self.namespace, self.run):
            print(done, file=sys.stderr, flush=True)


NEXT_STOPS = "its next driver will stop it"


async def stop_job(store: ObjectStore, api: Api, namespace: str, run: str) -> str:
    """Have a run stopped that nobody drives at the moment, whose Job may make a driver. Returns what was done, empty when there is none.

    Raises StoreError, ApiError.
    """
    open_jobs = [job for job in await jobs_of(api, namespace, run) if not is_over(job)]
    holder = await read_holder(store, run)
    if not [job for job in open_jobs if not _is_done(str(job["metadata"]["name"]), holder)]:
        return ""
    await ask_to_stop(store, run)  # before anything else: a driver may start in this very moment
    if holder is not None and not (await look_at_job(api, namespace, run)).trouble:
        return NEXT_STOPS
    for job in open_jobs:
        await delete_job(api, namespace, job)
    return "\n".join(f"Job {job['metadata']['name']} was deleted: no driver had started" for job in open_jobs)


def _is_done(job: str, holder: Holder | None) -> bool:
    """Return whether a Job that is not over yet makes no other driver: its own one has brought the run to its end, or stopped it."""
    release = None if holder is None else holder.release
    if holder is None or release is None or release.reason not in {"ended", "stopped"}:
        return False
    return holder.claim.process.host.startswith(f"{job}-")


@contextlib.asynccontextmanager
async def job_watch(settings: Settings, manifest: RunManifest) -> AsyncIterator[JobWatch | None]:
    """Give what looks at the Job of a run, if it is one of a cluster that can be reached from here; says why not where it is."""
    from orchestrator import wiring

    if manifest.backend != KUBERNETES:
        yield None
        return
    async with contextlib.AsyncExitStack() as stack:
        try:
            api = await stack.enter_async_context(wiring.cluster_api(settings.kubernetes))
        except SpecError as error:
            print(f"note: the cluster is not asked: {error}", file=sys.stderr)
            yield None
            return
        yield JobWatch(api, settings.kubernetes.drivers_namespace, manifest.run)


async def job_words(settings: Settings, manifest: RunManifest, holder: Holder | None) -> tuple[str, bool]:
    """Return what is to be said of the Job of a run that nobody drives, and whether a driver may come of it.

    ``holder`` had it last. Empty when the run has nothing to do with a cluster, and when its Job will make no other driver.
    """
    async with job_watch(settings, manifest) as watch:
        if watch is None:
            return "", False
        sight = await watch.look()
        if sight is None:
            return f"the cluster does not answer: {watch.unseen}", False
        return ("", False) if sight.may_come and _is_done(sight.name, holder) else (str(sight), sight.may_come)


async def print_driver_log(run: str, settings: Settings, *, follow: bool) -> None:
    """Print what the newest driver of a run wrote. Raises SpecError when there is none, and ApiError."""
    from orchestrator import wiring
    from orchestrator.driver.kubernetes.job import DRIVER

    namespace = settings.kubernetes.drivers_namespace
    async with wiring.cluster_api(settings.kubernetes) as api:
        sight = await look_at_job(api, namespace, run)
        if not sight.pod:
            msg = f"run {run} has no driver in {namespace}: {sight}"
            raise SpecError(msg)
        read = api.follow_log if follow else _whole_log(api)
        async for part in read(namespace, sight.pod, container=DRIVER):
            sys.stdout.write(part.decode(errors="replace"))
            sys.stdout.flush()


def _whole_log(api: Api) -> Callable[..., AsyncIterator[bytes]]:
    async def read(namespace: str, pod: str, *, container: str) -> AsyncIterator[bytes]:
        yield await api.log(namespace, pod, container=container)

    return read
