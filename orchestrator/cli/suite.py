"""``orchestrate validate``, ``try`` and ``schema``: for people who write tasks."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import BackendOption, ConcurrencyOption, JsonOption, StoreOption, run_async, settings_from

if TYPE_CHECKING:
    from orchestrator.cli.signals import Stop
    from orchestrator.driver.proof import TaskProof
    from orchestrator.records.manifest import RunManifest
    from orchestrator.settings import Settings


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(validate)
    app.command("try")(try_task)
    app.command()(record)
    app.command()(shell)
    app.command()(schema)


def validate(
    suite: Annotated[Path, typer.Argument(metavar="SUITE", help="Folder of a suite.")],
    tasks: Annotated[
        list[str] | None, typer.Option("--tasks", metavar="GLOB", help="Task ids to validate; may be repeated.")
    ] = None,
    backend: BackendOption = None,
    concurrency: ConcurrencyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Prove that the tasks of a suite measure something.

    The reference solution passes, doing nothing fails, each wrong solution fails by the checks that it names.
    """
    settings = settings_from(backend=backend, concurrency=concurrency)
    raise typer.Exit(run_async(_validate(suite, tuple(tasks or ()), settings, as_json=as_json)))


def try_task(
    task: Annotated[Path, typer.Argument(metavar="TASK", help="Folder of a task in a suite.")],
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="NAME|FILE", help="Agent to try it with; oracle without --model."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="PROVIDER/NAME", help="Main model of the agent.")
    ] = None,
    backend: BackendOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run one trial of one task and show it.

    Ending, each check, what changed, last output. Exit code 1 when it does not pass.
    """
    settings = settings_from(store=store, backend=backend, concurrency=1)
    _check_is_task(task)
    raise typer.Exit(run_async(_try(task.resolve(), agent, model, settings, as_json=as_json)))


def record(
    task: Annotated[Path, typer.Argument(metavar="TASK", help="Folder of a task in a suite.")],
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="NAME|FILE", help="Agent that makes the calls; oracle without --model."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="PROVIDER/NAME", help="Main model of the agent.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Replace what was recorded before.")] = False,
    backend: BackendOption = None,
    store: StoreOption = None,
) -> None:
    """Run one live trial and record what tools answer.

    The world of the task answers, and the cassette that the task names is written.
    Exit code 1 when that would replace recorded calls and --yes is not given.
    """
    settings = settings_from(store=store, backend=backend, concurrency=1)
    _check_is_task(task)
    raise typer.Exit(run_async(_record(task.resolve(), agent, model, settings, replace=yes)))


def shell(
    task: Annotated[Path, typer.Argument(metavar="TASK", help="Folder of a task in a suite.")],
    as_trial: Annotated[
        bool, typer.Option("--as-trial", help="Keep and grade what you did, as a trial of the agent 'human'.")
    ] = False,
    backend: BackendOption = None,
    store: StoreOption = None,
) -> None:
    """Be the agent: a shell in a sandbox of a task.

    It has the task's files, limits and tools. Without --as-trial nothing is kept. With it exit code 1 when it does not pass.
    """
    settings = settings_from(store=store, backend=backend, concurrency=1)
    _check_is_task(task)
    raise typer.Exit(run_async(_shell(task.resolve(), settings, as_trial=as_trial)))


def schema(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="task, suite, agent, submission, script, user or settings.")
    ] = None,
) -> None:
    """Print the JSON Schema of a file, for editors.

    All of them without a name.
    """
    from orchestrator.errors import SpecError, nearest
    from orchestrator.spec.schema import schemas

    known = schemas()
    if name is not None and name not in known:
        msg = f"no schema {name!r}{nearest(name, known)}; there are {', '.join(sorted(known))}"
        raise SpecError(msg)
    print(json.dumps(known if name is None else known[name], indent=2))


async def _validate(folder: Path, patterns: tuple[str, ...], settings: Settings, *, as_json: bool) -> int:
    from orchestrator.cli.signals import Stop, stoppable
    from orchestrator.driver.kubernetes.site import is_remote
    from orchestrator.driver.scratch import scratch_folder
    from orchestrator.driver.validate import validate_suite

    stop = Stop("Nothing is kept of a validation.")
    if is_remote(settings, settings.backend):
        proofs = await stoppable(_validated_there(folder, patterns, settings, stop), stop)
    else:
        with scratch_folder(settings) as scratch:
            own = settings.model_copy(update={"store": f"file://{scratch}/store"})
            proofs = await stoppable(validate_suite(folder, patterns, own, stop), stop)
    if stop.asked_by is not None:
        print("stopped", file=sys.stderr)
        return 130
    good = sum(proof.ok for proof in proofs)
    if as_json:
        tasks = [proof.as_json() for proof in proofs]
        print(json.dumps({"schema_version": 1, "suite": str(folder), "tasks": tasks}, indent=2))
    else:
        _print_proofs(folder, proofs)
        print(f"{good} of {len(proofs)} tasks are valid")
    return 0 if good == len(proofs) else 1


async def _validated_there(folder: Path, patterns: tuple[str, ...], settings: Settings, stop: Stop) -> list[TaskProof]:
    """Have a Job of a cluster run the trials of a validation, as any run, and read what it left. Raises as submitting does."""
    from orchestrator.cli.run import open_way
    from orchestrator.driver.images import backend_for
    from orchestrator.driver.order import load_order
    from orchestrator.driver.place import open_place
    from orchestrator.driver.prepare import make_ready, publish
    from orchestrator.driver.validate import kept_ends, proofs, validation

    order = validation(folder, patterns)
    loaded = load_order(order)
    async with open_way(settings, settings.backend) as way:
        with open_place(way.settings, backend_for(loaded, way.settings)) as place:
            ready = await make_ready(place, order, loaded)
            made: list[RunManifest] = []

            async def manifest(grader_version: str) -> RunManifest:
                made.append(await publish(place, ready, grader_version, lambda said: print(said, file=sys.stderr)))
                return made[0]

            with contextlib.redirect_stdout(sys.stderr):  # the report of the run; the answer of this command is another
                await way.drive(place, ready.planned.agents, manifest, stop, as_json=False)
            return proofs(order, loaded, await kept_ends(place.store, made[0]))


def _print_proofs(folder: Path, proofs: list[TaskProof]) -> None:
    from orchestrator.report.program import program
    from orchestrator.report.text import clean

    width = max((len(proof.task) for proof in proofs), default=0)
    for proof in proofs:
        wrong = "  ".join(f"wrong-{item.name} {item.words()}" for item in proof.wrong)
        print(f"{proof.task:<{width}}  oracle {proof.oracle}  nop {proof.nop}  {wrong}".rstrip())
        for fault in proof.faults:
            print(f"  {fault.message}")
            for line in fault.details:
                print(f"    {clean(line)}")
            agent = "" if fault.agent == "oracle" else f" --agent {fault.agent}"
            print(f"    see more: {program()} try {shlex.quote(str(folder / proof.task))}{agent}")


def _check_is_task(folder: Path) -> None:
    """Raise SpecError for a suite, and for a folder that is none of a task."""
    from orchestrator.errors import SpecError

    if (folder / "task.yaml").exists():
        return
    inside = sorted(each.parent for each in folder.glob("*/task.yaml"))
    if inside:
        msg = f"{folder} is a suite; name a task in it, for example {inside[0]}"
        raise SpecError(msg)
    what = "there is no task.yaml in it" if folder.is_dir() else "there is no such folder"
    msg = f"{folder} is no task: {what}"
    raise SpecError(msg)


async def _try(folder: Path, agent: str | None, model: str | None, settings: Settings, *, as_json: bool) -> int:
    from orchestrator import wiring
    from orchestrator.cli.read import print_trial
    from orchestrator.cli.signals import Stop, stoppable
    from orchestrator.driver.order import Order
    from orchestrator.driver.single import run_single

    agents = (agent,) if agent else () if model else ("oracle",)
    order = Order(suite=folder.parent, agents=agents, model=model, samples=1, tasks=(folder.name,))
    stop = Stop("Try it again.")
    run, trial = await stoppable(run_single(order, settings, stop), stop)
    passed = await print_trial(wiring.object_store(settings.store), settings, run, trial, as_json=as_json)
    return 0 if passed else 1


async def _record(folder: Path, agent: str | None, model: str | None, settings: Settings, *, replace: bool) -> int:
    from orchestrator.cli.signals import Stop, stoppable
    from orchestrator.driver.order import Order
    from orchestrator.driver.record import record_task
    from orchestrator.report.program import program
    from orchestrator.report.text import plural
    from orchestrator.spec.files import display

    agents = (agent,) if agent else () if model else ("oracle",)
    order = Order(suite=folder.parent, agents=agents, model=model, samples=1, tasks=(folder.name,))
    stop = Stop("Record it again.")
    recorded = await stoppable(record_task(order, settings, stop), stop)
    for change in recorded.changes:
        words = f"{change.new} new, {change.gone} gone, {change.changed} with other answers"
        print(f"{change.tool}: {plural(change.calls, 'call')}; {words}")
    print(f"the trial: {program()} show {recorded.run}")
    file = display(recorded.file)
    if recorded.replaces and not replace:
        print(f"{file} is as it was: this would replace recorded calls; --yes does", file=sys.stderr)
        return 1
    recorded.write()
    print(f"wrote {file}")
    return 0


async def _shell(folder: Path, settings: Settings, *, as_trial: bool) -> int:
    import tempfile

    from orchestrator import wiring
    from orchestrator.cli.read import print_trial
    from orchestrator.cli.signals import Stop, stoppable
    from orchestrator.driver.attended import own_terminal
    from orchestrator.driver.order import Order
    from orchestrator.driver.single import run_single

    terminal = own_terminal()
    order = Order(suite=folder.parent, agents=("human",), samples=1, tasks=(folder.name,), attended=True)
    stop = Stop("Open it again.")
    with tempfile.TemporaryDirectory(prefix="orchestrate-") as thrown_away:
        if not as_trial:
            settings = settings.model_copy(update={"store": f"file://{thrown_away}"})
        with terminal.joined():
            run, trial = await stoppable(run_single(order, settings, stop, terminal), stop)
        if not as_trial:
            return 0
    return 0 if await print_trial(wiring.object_store(settings.store), settings, run, trial, as_json=False) else 1
