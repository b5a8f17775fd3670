"""``orchestrate images build`` and ``images lock``: the container images of a suite."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import JsonOption, run_async, settings_from

if TYPE_CHECKING:
    from orchestrator.driver.images import SuiteImages

SuiteArgument = Annotated[Path, typer.Argument(metavar="SUITE", help="Folder of a suite.")]
AgainOption = Annotated[
    bool, typer.Option("--no-cache", help="Build again what was built before, for example when a base image moved.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    images = typer.Typer(
        help="Build and pin the container images of a suite.", no_args_is_help=True, rich_markup_mode=None
    )
    images.command()(build)
    images.command()(lock)
    app.add_typer(images, name="images")


def build(suite: SuiteArgument, no_cache: AgainOption = False, as_json: JsonOption = False) -> None:
    """Build the images of tasks with 'environment.build' on this machine.

    Exit code 1 when an image is another one than images.lock.json names.
    """
    raise typer.Exit(run_async(_run(suite, locking=False, again=no_cache, as_json=as_json)))


def lock(suite: SuiteArgument, no_cache: AgainOption = False, as_json: JsonOption = False) -> None:
    """Pin every image of a suite in images.lock.json beside suite.yaml.

    Folders are built, tags are resolved to what they stand for now. Task files stay as they are; commit the lock file.
    """
    raise typer.Exit(run_async(_run(suite, locking=True, again=no_cache, as_json=as_json)))


async def _run(folder: Path, *, locking: bool, again: bool, as_json: bool) -> int:
    from orchestrator import wiring
    from orchestrator.driver.images import build_images, lock_images

    engine = wiring.container_engine(settings_from())
    work = lock_images if locking else build_images
    made = await work(folder, engine, lambda line: print(line, file=sys.stderr, flush=True), again=again)
    if as_json:
        print(json.dumps(made.as_json(), indent=2))
    else:
        _print(made, locking=locking)
    if locking or not made.differing:
        return 0
    _print_differing(made)
    return 1


def _print(made: SuiteImages, *, locking: bool) -> None:
    from orchestrator.spec.files import display

    for built in made.builds:
        print(f"{built.task}  {built.how}  {built.image}")
    for each in made.resolved:
        print(f"{each.reference}  {each.how}  {each.image}")
        if each.note:
            print(f"  {each.note}")
    if not made.builds and not made.resolved:
        print(f"{made.suite.suite.id}: no task has an image to {'pin' if locking else 'build'}")
    elif locking:
        word = "written" if made.changed else "unchanged"
        print(f"{display(made.lock)}: {word}")
    elif any(built.locked is None for built in made.builds):
        print(f"not pinned yet; next: {_lock_command(made)}")


def _print_differing(made: SuiteImages) -> None:
    for built in made.differing:
        words = f"task {built.task}: its folder gives {built.image} here, the lock names {built.locked}"
        print(words, file=sys.stderr)
    print(
        "a base image, or what a build fetched, is another one now; results of the two are not comparable. "
        f"Pin the new ones with: {_lock_command(made)}",
        file=sys.stderr,
    )


def _lock_command(made: SuiteImages) -> str:
    from orchestrator.report.program import program
    from orchestrator.spec.files import display

    return f"{program()} images lock {shlex.quote(display(made.suite.folder))}"
