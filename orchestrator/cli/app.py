"""The command line: commands, exit codes, and how an error is shown."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from orchestrator.cli import (
    agents,
    data,
    doctor,
    gc,
    golden,
    images,
    imports,
    overview,
    read,
    rerun,
    run,
    serve,
    steer,
    suite,
    view,
)
from orchestrator.errors import InfrastructureError, OrchestrateError, SpecError

app = typer.Typer(
    name="orchestrate",
    help="Measure LLM agents: run tasks many times in sandboxes, grade the world they leave, report rates with intervals.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
run.add_to(app)
rerun.add_to(app)
overview.add_to(app)
read.add_to(app)
golden.add_to(app)
view.add_to(app)
steer.add_to(app)
suite.add_to(app)
images.add_to(app)
agents.add_to(app)
data.add_to(app)
imports.add_to(app)
gc.add_to(app)
doctor.add_to(app)
serve.add_to(app)


def _version(wanted: bool) -> None:
    if wanted:
        from orchestrator import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def version() -> None:
    """Print the version."""
    _version(True)


def run_command(arguments: list[str]) -> int:
    """Run one command and return its exit code; errors are printed on standard error."""
    try:
        try:
            app(arguments)
        finally:
            sys.stdout.flush()  # here, where a full disk still has a message and a code
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    except OrchestrateError as error:
        _print_error(error)
        return error.exit_code
    except Exception:  # noqa: BLE001 - exit code 1 would read as "the agent regressed"; a bug of ours must not
        import traceback

        traceback.print_exc()
        print("this is a bug of orchestrate, not a result; what was committed is kept", file=sys.stderr)
        return InfrastructureError.exit_code
    return 0


def _print_error(error: OrchestrateError) -> None:
    print(str(error), file=sys.stderr)
    if isinstance(error, SpecError) and len(error.problems) > 1:
        print(f"{len(error.problems)} problems; nothing was started", file=sys.stderr)
    if isinstance(error, InfrastructureError):
        print(f"(infrastructure: {error.cause})", file=sys.stderr)
    for note in getattr(error, "__notes__", ()):
        print(note, file=sys.stderr)
