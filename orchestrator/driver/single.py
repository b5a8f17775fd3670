"""Run an order of a few trials without a progress display: for ``try`` and ``validate``."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.driver.attended import Terminal, attended
from orchestrator.driver.images import backend_for
from orchestrator.driver.kubernetes.services import refuse_outside
from orchestrator.driver.local import Stopper, open_local
from orchestrator.driver.order import Loaded, Order, load_order
from orchestrator.driver.place import KUBERNETES, open_place
from orchestrator.driver.prepare import make_ready, publish
from orchestrator.errors import InfrastructureError
from orchestrator.interfaces import Phase, TrialEnd
from orchestrator.plan.trials import all_trials
from orchestrator.records.ids import TrialId
from orchestrator.records.manifest import RunManifest
from orchestrator.settings import Settings


class Collector:
    """An observer that keeps the ends of trials."""

    def __init__(self) -> None:
        self.ends: list[TrialEnd] = []

    def begins(self, planned: int, before: int) -> None:
        """Nothing to keep."""

    def phase(self, trial: TrialId, phase: Phase) -> None:
        """Nothing to keep."""

    def waits(self, trial: TrialId, why: str) -> None:
        """Nothing to keep."""

    def launch_failed(self, trial: TrialId, launch: int, cause: str, message: str) -> None:
        """Nothing to keep: the outcome says it too."""

    def ended(self, end: TrialEnd) -> None:
        """Keep it."""
        self.ends.append(end)


async def run_order(
    order: Order, loaded: Loaded, settings: Settings, stopper: Stopper, terminal: Terminal | None = None
) -> tuple[RunManifest, list[TrialEnd]]:
    """Run a whole order in this process: its trials are few. With a terminal there is one, and its agent is the person there.

    Raises SpendingLimitError, and InfrastructureError when the run was paused by repeated failures of ours.
    """
    settings = settings.model_copy(update={"pool": "inline"})
    collector = Collector()
    backend = backend_for(loaded, settings)
    if backend == KUBERNETES:
        refuse_outside(settings.kubernetes)
    with open_place(settings, backend) as place:
        if terminal is not None:
            place = replace(place, backend=attended(place.backend, terminal.channel))  # noqa: PLW2901 - the same place
        ready = await make_ready(place, order, loaded)
        async with open_local(settings, place) as local:
            await local.probe(ready.planned.agents)
            manifest = await publish(place, ready, local.services.grader_version)
            execution = await local.run(manifest, collector, stopper)
    if execution.limited is not None:
        raise execution.limited
    if execution.paused is not None:
        raise execution.paused
    return manifest, collector.ends


async def run_single(
    order: Order, settings: Settings, stopper: Stopper, terminal: Terminal | None = None
) -> tuple[str, TrialId]:
    """Run an order of one trial and return its run and its name. Raises as ``run_order``, also when the trial did not end."""
    return await run_single_of(order, load_order(order), settings, stopper, terminal)


async def run_single_of(
    order: Order, loaded: Loaded, settings: Settings, stopper: Stopper, terminal: Terminal | None = None
) -> tuple[str, TrialId]:
    """Run an order of one trial that has been read. Raises as ``run_single``."""
    manifest, ends = await run_order(order, loaded, settings, stopper, terminal)
    trial = all_trials(manifest)[0].id
    if not ends:
        msg = f"{trial} did not end"
        raise InfrastructureError(msg)
    return manifest.run, trial
