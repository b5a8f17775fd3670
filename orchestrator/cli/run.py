"""``orchestrate submit`` and ``resume``: run trials, here or on a cluster."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from orchestrator.cli.options import (
    BackendOption,
    ConcurrencyOption,
    DetachOption,
    JsonOption,
    MaxCostOption,
    PoolOption,
    RunArgument,
    StoreOption,
    YesOption,
    run_async,
    settings_from,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from orchestrator.cli.signals import Stop
    from orchestrator.driver.order import Order
    from orchestrator.driver.place import Place
    from orchestrator.interfaces import ObjectStore
    from orchestrator.records.manifest import ManifestAgent, RunManifest
    from orchestrator.settings import Settings


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(submit)
    app.command()(resume)


def submit(  # noqa: PLR0913, PLR0917 - one parameter for each option
    target: Annotated[Path, typer.Argument(metavar="SUITE|MANIFEST", help="Folder of a suite, or a submission file.")],
    agent: Annotated[
        list[str] | None, typer.Option("--agent", metavar="NAME|FILE", help="Agent; may be repeated.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="PROVIDER/NAME", help="Main model of the agents; without --agent: the built-in loop."
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option("--samples", min=1, max=1000, help="Trials per task and agent; default: what each task says."),
    ] = None,
    tasks: Annotated[
        list[str] | None, typer.Option("--tasks", metavar="GLOB", help="Task ids to run; may be repeated.")
    ] = None,
    backend: BackendOption = None,
    pool: PoolOption = None,
    concurrency: ConcurrencyOption = None,
    store: StoreOption = None,
    run_id: Annotated[
        str | None, typer.Option("--run-id", metavar="ID", help="Name of the run; made up when absent.")
    ] = None,
    max_cost: MaxCostOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print what would run and what it may cost, and stop.")
    ] = False,
    detach: DetachOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run tasks by agents, grade them, print the report.

    Failing trials do not change the exit code.
    """
    from orchestrator.driver.limits import MAX_COST, Placed
    from orchestrator.driver.order import Order, read_order
    from orchestrator.spec.submission import RunLimits

    order = Order(
        suite=target,
        agents=tuple(agent or ()),
        model=model,
        samples=samples,
        tasks=tuple(tasks or ()),
        backend=backend,
        pool=pool,
        concurrency=concurrency,
        run_id=run_id,
        limits=(Placed(MAX_COST, RunLimits(cost_usd=max_cost)),),
    )
    order = read_order(target, order)
    settings = settings_from(store=store, backend=order.backend, pool=order.pool, concurrency=order.concurrency)
    raise typer.Exit(
        run_async(
            as_stoppable(
                lambda stop: _submit(order, settings, stop, detach=detach, dry_run=dry_run, yes=yes, as_json=as_json)
            )
        )
    )


def resume(  # noqa: PLR0913, PLR0917 - one parameter for each option
    run: RunArgument = "last",
    pool: PoolOption = None,
    concurrency: ConcurrencyOption = None,
    max_cost: MaxCostOption = None,
    store: StoreOption = None,
    detach: DetachOption = False,
    unattended: Annotated[
        bool, typer.Option("--unattended", hidden=True, help="For Jobs: exit code 75 where another attempt may help.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Go on with a run that was interrupted.

    What is committed stays, what is missing is run, what is not graded is graded. --max-cost takes the place of the run's own limit, this
    time.
    """
    from orchestrator.errors import HeldError, InfrastructureError, LetGoError

    settings = settings_from(store=store, pool=pool, concurrency=concurrency)
    asked = Resumed(run, max_cost, attended=not unattended)
    work = as_stoppable(lambda stop: _resume(asked, settings, stop, detach=detach, as_json=as_json))
    try:
        code = run_async(work)
    except (HeldError, InfrastructureError) as error:
        if not unattended:
            raise
        print(f"{error}\nthe next attempt goes on from here", file=sys.stderr)
        code = LetGoError.exit_code
    raise typer.Exit(code)


async def as_stoppable(work: Callable[[Stop], Coroutine[Any, Any, int]]) -> int:
    """Run the work of a command that an interrupt stops in order. Returns its exit code."""
    from orchestrator.cli.signals import Stop, stoppable

    stop = Stop("Nothing was started.")
    return await stoppable(work(stop), stop)


class Way(Protocol):
    """How runs are driven: by this process, or by a Job of a cluster."""

    @property
    def settings(self) -> Settings:
        """The settings that hold for the run."""
        ...

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
        """Bring the run to its end and print its report; ``make`` publishes it, given the grader's version, which may be unknown.

        ``agents`` are those that have something to run, ``spent`` is what the run has cost so far in nano USD. Returns the exit code.
        """
        ...


@contextlib.asynccontextmanager
async def open_way(
    settings: Settings,
    backend: str,
    *,
    detach: bool = False,
    arguments: tuple[str, ...] = (),
    attended: bool = True,
) -> AsyncIterator[Way]:
    """Give the way in which runs of a backend are driven; ``arguments`` are for a driver elsewhere, ``attended`` is as in ``Resumed``.

    Raises RefusedError, and ApiError when the cluster cannot be asked.
    """
    from orchestrator.driver.kubernetes.services import refuse_outside
    from orchestrator.driver.kubernetes.site import is_remote
    from orchestrator.driver.place import KUBERNETES
    from orchestrator.errors import RefusedError

    if is_remote(settings, backend):
        from orchestrator.cli.remote import open_remote

        async with open_remote(settings, arguments, detach=detach) as remote:
            yield remote
        return
    if detach:
        msg = "--detach leaves the run to a driver on a cluster, and this one is driven here; leave it out, or use --backend kubernetes"
        raise RefusedError(msg)
    if backend == KUBERNETES:
        refuse_outside(settings.kubernetes)
    yield Here(settings, attended)


async def _submit(
    order: Order, settings: Settings, stop: Stop, *, detach: bool, dry_run: bool, yes: bool, as_json: bool
) -> int:
    async with open_way(settings, settings.backend, detach=detach) as way:
        return await _submitted(order, way, stop, dry_run=dry_run, yes=yes, as_json=as_json)


async def _submitted(order: Order, way: Way, stop: Stop, *, dry_run: bool, yes: bool, as_json: bool) -> int:
    from orchestrator.cli.announce import announce_trials, print_plan
    from orchestrator.cli.confirm import announce_estimate, confirm
    from orchestrator.driver.estimate import estimate_run
    from orchestrator.driver.images import backend_for
    from orchestrator.driver.order import load_order
    from orchestrator.driver.place import open_place
    from orchestrator.driver.prepare import make_ready, publish

    settings = way.settings
    loaded = load_order(order)
    with open_place(settings, backend_for(loaded, settings)) as place:
        ready = await make_ready(place, order, loaded)
        planned = ready.planned
        announce_trials(planned, planned.labels)
        estimate = await estimate_run(planned, order.in_force(settings), place.store, settings)
        announce_estimate(estimate)
        if dry_run:
            print_plan(planned, estimate, as_json=as_json)
            return 0
        await confirm(estimate, settings, yes=yes)

        async def manifest(grader_version: str) -> RunManifest:
            return await publish(place, ready, grader_version, lambda said: print(said, file=sys.stderr))

        return await way.drive(place, planned.agents, manifest, stop, as_json=as_json)


@dataclass(frozen=True)
class Resumed:
    """What was typed."""

    run: str
    max_cost: float | None
    attended: bool
    """A person wants that it goes on, which lifts an earlier stop; False: a Job makes another attempt."""


async def _resume(asked: Resumed, settings: Settings, stop: Stop, *, detach: bool, as_json: bool) -> int:
    from orchestrator import wiring
    from orchestrator.cli.announce import announce_resume, ending
    from orchestrator.driver.committed import load_manifest
    from orchestrator.driver.execute import nothing_left, what_is_left
    from orchestrator.driver.kubernetes.site import is_remote
    from orchestrator.driver.limits import when_resumed
    from orchestrator.driver.place import open_place
    from orchestrator.driver.prepare import check_pods, check_resume, make_ready_again, refuse_imported, refuse_persons
    from orchestrator.driver.wishes import is_stop, last_wish
    from orchestrator.report.select import resolve_run

    store = wiring.object_store(settings.store)
    stored = await load_manifest(store, await resolve_run(store, asked.run))
    refuse_imported(stored)
    limits = when_resumed(stored, asked.max_cost, settings)
    manifest = stored.model_copy(update={"limits": limits.limits})
    left = await what_is_left(stored, store)
    announce_resume(stored, left)
    if (done := nothing_left(left)) is not None:
        if not is_remote(settings, stored.backend):  # there its Job does that, and whoever submits has no right to
            await _commit_rows(store, settings, stored.run)  # a driver that was killed last of all has not
        await _print_report(store, settings, stored.run, as_json=as_json)
        return ending(stored, done, settings)
    arguments = () if asked.max_cost is None else ("--max-cost", str(asked.max_cost))
    async with open_way(settings, stored.backend, detach=detach, arguments=arguments, attended=asked.attended) as way:
        settings = way.settings
        with open_place(settings, stored.backend) as place:
            check_resume(stored, settings, limits)
            refuse_persons(planned.agent for planned in left.to_run)
            await make_ready_again(place, stored)
            await check_pods(place, stored)

            async def made(_: str) -> RunManifest:
                return manifest

            to_run = {planned.agent.name: planned.agent for planned in left.to_run}
            if not asked.attended and is_stop(await last_wish(store, stored.run)):
                to_run = {}  # nothing is begun, so no model is asked
            return await way.drive(place, to_run.values(), made, stop, spent=left.spent_nano_usd, as_json=as_json)


@dataclass(frozen=True)
class Here:
    """Drives runs in this process. Implements Way."""

    settings: Settings
    attended: bool
    """See ``Resumed``."""

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
        """Start the services, ask the models of the agents that have something to run, drive the run, print its report."""
        from orchestrator.cli.announce import announce_probe, ending
        from orchestrator.cli.progress import Progress
        from orchestrator.driver.collector import spare_the_old
        from orchestrator.driver.local import open_local
        from orchestrator.errors import InfrastructureError, LeaseLostError, RefusedError
        from orchestrator.plan.cost import nano
        from orchestrator.report.program import program

        async with open_local(self.settings, place, _say) as local:
            await local.probe(agents, announce_probe)
            manifest = await make(local.services.grader_version)
            stop.hint = f"Go on with: {program()} resume {manifest.run}"
            stop.outlived = place.backend.fetches
            limit = manifest.limits.cost_usd
            spare_the_old()
            with Progress(spent=spent, limit=None if limit is None else nano(limit)) as progress:
                try:
                    async with local.watching(manifest.run, progress.spending):
                        execution = await local.run(
                            manifest,
                            progress,
                            stop,
                            lambda holder: progress.waiting_for(str(holder)),
                            progress.store_is_silent,
                            progress.rows_not_staged,
                            attended=self.attended,
                        )
                except (RefusedError, LeaseLostError) as error:  # it is another driver's
                    error.add_note(
                        f"See it with: {program()} watch {manifest.run}\nStop it with: {program()} stop {manifest.run}"
                    )
                    raise
                except InfrastructureError as error:
                    error.add_note(stop.hint)
                    raise
        await _commit_rows(place.store, self.settings, manifest.run)
        await _print_report(place.store, self.settings, manifest.run, as_json=as_json)
        return ending(manifest, execution, self.settings, stopped_by=stop.asked_by)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


async def _commit_rows(store: ObjectStore, settings: Settings, run: str) -> None:
    """Add the run to the dataset. The run is complete without that: whatever goes wrong here is said, not raised."""
    from orchestrator.driver.dataset import commit_rows

    try:
        written = await commit_rows(store, settings, run)
    except Exception as error:  # noqa: BLE001 - the dataset can be made again at any time, a run cannot
        reason = str(error) or type(error).__name__
        print(f"warning: the dataset has no rows of this run yet: {reason}", file=sys.stderr)
        print(f"the run itself is kept; when the cause is gone: orchestrate rebuild {run}", file=sys.stderr)
        return
    if written.ignored:
        count, first = len(written.ignored), written.ignored[0]
        print(f"warning: {count} of the files with rows written ahead were not used ({first})", file=sys.stderr)
        print("the rows were made from the records of the run instead; nothing is lost", file=sys.stderr)


async def _print_report(store: ObjectStore, settings: Settings, run: str, *, as_json: bool) -> None:
    from orchestrator.cli.read import print_report

    await print_report(store, settings, run, as_json=as_json)
