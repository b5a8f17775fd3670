"""``orchestrate rerun``: repeat trials of an earlier run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import (
    ConcurrencyOption,
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
    from orchestrator.cli.signals import Stop
    from orchestrator.driver.rerun import Choice
    from orchestrator.records.manifest import RunManifest
    from orchestrator.settings import Settings


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(rerun)


def rerun(  # noqa: PLR0913, PLR0917 - one parameter for each option
    run: RunArgument,
    failed: Annotated[bool, typer.Option("--failed", help="Trials that were graded and did not pass.")] = False,
    infra: Annotated[bool, typer.Option("--infra", help="Trials lost for our reasons.")] = False,
    tasks: Annotated[
        list[str] | None, typer.Option("--tasks", metavar="GLOB", help="Only of these tasks; may be repeated.")
    ] = None,
    pool: PoolOption = None,
    concurrency: ConcurrencyOption = None,
    max_cost: MaxCostOption = None,
    store: StoreOption = None,
    run_id: Annotated[
        str | None, typer.Option("--run-id", metavar="ID", help="Name of the new run; made up when absent.")
    ] = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Repeat trials of a run, as a run of its own.

    With the same tasks, agents and seeds, from what the store holds; all trials without --failed, --infra and --tasks. --max-cost takes the
    place of the old run's limit.
    """
    from orchestrator.cli.run import as_stoppable
    from orchestrator.driver.rerun import Choice

    choice = Choice(failed=failed, infra=infra, tasks=tuple(tasks or ()))
    settings = settings_from(store=store, pool=pool, concurrency=concurrency)
    raise typer.Exit(
        run_async(
            as_stoppable(lambda stop: _rerun(run, (choice, run_id, max_cost), settings, stop, yes=yes, as_json=as_json))
        )
    )


async def _rerun(
    text: str,
    wanted: tuple[Choice, str | None, float | None],
    settings: Settings,
    stop: Stop,
    *,
    yes: bool,
    as_json: bool,
) -> int:
    from orchestrator import wiring
    from orchestrator.cli.announce import announce_trials
    from orchestrator.cli.confirm import announce_estimate, confirm
    from orchestrator.cli.run import open_way
    from orchestrator.dataset.rows import collect
    from orchestrator.driver.estimate import estimate_run
    from orchestrator.driver.limits import when_resumed
    from orchestrator.driver.place import open_place
    from orchestrator.driver.prepare import make_ready_again, refuse_persons
    from orchestrator.driver.rerun import check_rerun, choose, plan_rerun, publish_rerun
    from orchestrator.report.select import resolve_run

    choice, run_id, max_cost = wanted
    store = wiring.object_store(settings.store)
    data = await collect(store, await resolve_run(store, text))
    limits = when_resumed(data.manifest, max_cost, settings)
    planned = plan_rerun(data.manifest, choose(data, choice), choice, run_id)
    planned = planned.model_copy(update={"limits": limits.limits})
    async with open_way(settings, planned.backend) as way:
        settings = way.settings
        with open_place(settings, planned.backend) as place:
            await check_rerun(data.manifest, planned, limits, place)
            refuse_persons(planned.agents)
            labels = dict(await make_ready_again(place, planned))
            announce_trials(planned, labels)
            print(f"from run {data.manifest.run}, which had {len(data.rows)}", file=sys.stderr, flush=True)
            estimate = await estimate_run(planned, limits, place.store, settings)
            announce_estimate(estimate)
            await confirm(estimate, settings, yes=yes)

            async def manifest(grader_version: str) -> RunManifest:
                return await publish_rerun(planned, place, labels, grader_version)

            return await way.drive(place, planned.agents, manifest, stop, as_json=as_json)
