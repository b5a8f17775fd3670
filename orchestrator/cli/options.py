"""Options that several commands share, and the settings made from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from orchestrator.settings import Settings

_Result = TypeVar("_Result")

StoreOption = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="Where runs are kept; default .orchestrate/store.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Run id, unique prefix, 'last', or 'commit:SHA'.")]
BackendOption = Annotated[
    str | None, typer.Option("--backend", metavar="NAME", help="auto, bubblewrap, container or kubernetes.")
]
PoolOption = Annotated[
    str | None,
    typer.Option("--pool", metavar="NAME", help="Who runs the trials: inline, or ray (RAY_ADDRESS, or one made here)."),
]
ConcurrencyOption = Annotated[
    int | None,
    typer.Option("-n", "--concurrency", min=1, max=20000, help="Trials at one time; default: one for each processor."),
]


DetachOption = Annotated[
    bool,
    typer.Option("--detach", help="On a cluster: start the driver, print the run id, and do not wait for the end."),
]


def _usd(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = 0.0
    if not 0 < amount < float("inf"):
        msg = f"{text!r} is not an amount above 0; write US dollars, for example 5 or 0.50"
        raise typer.BadParameter(msg)
    return amount


MaxCostOption = Annotated[
    float | None,
    typer.Option("--max-cost", metavar="USD", parser=_usd, help="Most that the run may spend, in US dollars."),
]
YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Start without asking, also above the setting confirm_over_usd.")
]


def settings_from(**overrides: Any) -> Settings:
    """Return the settings with what was typed on top; None means not typed."""
    from orchestrator.settings import load_settings

    return load_settings(Path.cwd(), overrides={name: value for name, value in overrides.items() if value is not None})


def run_async(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run the one async function of a command. ``asyncio`` is loaded here, not for ``--help``."""
    import asyncio

    return asyncio.run(work)
