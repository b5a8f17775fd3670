"""``orchestrate agents build``: the files of agents that a command makes."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import JsonOption, run_async, settings_from

FilesArgument = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Agent files with a 'build'.")]
AgainOption = Annotated[bool, typer.Option("--no-cache", help="Build again what was built before.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    agents = typer.Typer(help="Build the files of agents.", no_args_is_help=True, rich_markup_mode=None)
    agents.callback()(lambda: None)  # so that ``build`` is named although it is the only one
    agents.command()(build)
    app.add_typer(agents, name="agents")


def build(files: FilesArgument, no_cache: AgainOption = False, as_json: JsonOption = False) -> None:
    """Run the build command of each agent file and keep what it makes.

    It runs on this machine, and every run from here on has the files. The command gets no key of a model provider. A recipe that was
    built before is not built again.
    """
    raise typer.Exit(run_async(_build(files, again=no_cache, as_json=as_json)))


async def _build(files: list[Path], *, again: bool, as_json: bool) -> int:
    from orchestrator.driver.builds import build_agents

    cache = settings_from().cache
    made = await build_agents(files, cache, lambda line: print(line, file=sys.stderr, flush=True), again=again)
    if as_json:
        print(json.dumps({"schema_version": 1, "agents": [asdict(each) for each in made]}, indent=2))
        return 0
    for each in made:
        print(f"{each.agent}  {each.how}  {each.size / (1 << 20):,.1f} MiB  {each.digest}")
    return 0
