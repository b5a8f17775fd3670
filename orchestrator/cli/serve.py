"""``orchestrate serve``: services of a run. The driver starts them; people start them only to look."""

from __future__ import annotations

import sys

import typer

from orchestrator.cli.options import run_async

serve = typer.Typer(
    name="serve", help="Run a service. Its configuration is one JSON line on standard input.", no_args_is_help=True
)


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(serve, hidden=True)


@serve.callback()
def _services() -> None:
    pass


@serve.command()
def gateway() -> None:
    """Serve the gateway and relay until standard input ends."""
    from orchestrator.wiring import serve_gateway

    run_async(serve_gateway(sys.stdin.buffer.readline()))
