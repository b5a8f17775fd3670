"""``orchestrate serve``: services of a run. On one machine the driver starts them; on a cluster the chart does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import run_async

serve = typer.Typer(name="serve", help="Run a service of a cluster.", no_args_is_help=True)

ConfigOption = Annotated[Path, typer.Option("--config", metavar="FILE", help="JSON file with its configuration.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(serve, hidden=True)


@serve.callback()
def _services() -> None:
    pass


@serve.command()
def gateway(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="JSON file with its configuration; else one JSON line on standard input."
        ),
    ] = None,
) -> None:
    """Serve the gateway: of a cluster, until SIGTERM; without a file that of one machine, with the relay in it."""
    from orchestrator.wiring import serve_cluster_gateway, serve_gateway

    if config is None:
        run_async(serve_gateway(sys.stdin.buffer.readline()))
        return
    _settle_in()
    run_async(serve_cluster_gateway(config))


@serve.command()
def relay(config: ConfigOption) -> None:
    """Serve a relay of a cluster until SIGTERM."""
    from orchestrator.wiring import serve_relay

    _settle_in()
    run_async(serve_relay(config))


@serve.command()
def reaper(config: ConfigOption) -> None:
    """Clean up after dead drivers of a cluster until SIGTERM."""
    from orchestrator.driver.kubernetes.reaper import serve_reaper

    _settle_in()
    run_async(serve_reaper(config))


def _settle_in() -> None:
    """Log what services say as plain lines on standard error, and live long."""
    import logging

    from orchestrator.driver.collector import spare_the_old

    spare_the_old()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    for noisy in ("botocore", "boto3", "urllib3", "aiohttp", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
