"""``orchestrate gc``: remove runs that nobody wants to keep, and what nothing needs any more."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.options import JsonOption, StoreOption, run_async, settings_from
from orchestrator.cli.streams import can_ask

if TYPE_CHECKING:
    from orchestrator.driver.gc.broom import Amount
    from orchestrator.driver.gc.collect import Collected
    from orchestrator.driver.gc.runs import Criteria
    from orchestrator.settings import Settings

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_GRACE = "24h"
AgeOption = Annotated[
    str | None, typer.Option("--older-than", metavar="AGE", help="Runs submitted longer ago: 30d, 12h, 2w.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(gc)


def gc(  # noqa: PLR0913, PLR0917 - one parameter for each option
    older_than: AgeOption = None,
    keep: Annotated[
        int | None, typer.Option("--keep", min=0, metavar="N", help="All but the newest N runs of each suite.")
    ] = None,
    run: Annotated[
        list[str] | None, typer.Option("--run", metavar="RUN", help="Exactly this run; may be repeated.")
    ] = None,
    grace: Annotated[
        str, typer.Option("--grace", metavar="AGE", help="Leave alone what is younger and may be in use.")
    ] = _GRACE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and stop.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove old runs and whatever no run needs any more.

    A run meets --older-than and --keep together, or is named. Rows of removed runs stay in the dataset.
    """
    from dataclasses import replace

    from orchestrator.driver.gc.runs import Criteria
    from orchestrator.errors import SpecError

    if run and (older_than is not None or keep is not None):
        msg = "--run names the runs that go; take --older-than and --keep out, or --run"
        raise SpecError(msg)
    criteria = Criteria(
        older_than_s=None if older_than is None else parse_age("--older-than", older_than),
        keep=keep,
        grace_s=parse_age("--grace", grace),
    )
    settings = settings_from(store=store)
    named = run_async(_resolved(settings, run)) if run else None
    plan = _collect(settings, replace(criteria, runs=named), dry_run=True)
    _refuse(plan, named or ())
    if dry_run or not plan.total:
        _print(replace(plan, dry_run=dry_run), as_json=as_json)
        return
    if not yes:
        _ask(plan)
    # Exactly what was shown: a run that has become old meanwhile is for the next time.
    shown = replace(criteria, runs=tuple(each.run for each in plan.runs if not each.finished), said=str(criteria))
    _print(_collect(settings, shown, dry_run=False), as_json=as_json)


def parse_age(option: str, text: str) -> float:
    """Return a length of time in seconds. Raises SpecError for anything but a number and a unit."""
    from orchestrator.errors import SpecError

    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)([smhdw])", text.strip())
    if match is None:
        msg = f"{option} {text[:40]!r}: write a number and s, m (minutes), h, d or w, such as 30d or 12h"
        raise SpecError(msg)
    return float(match[1]) * _UNITS[match[2]]


async def _resolved(settings: Settings, names: list[str]) -> tuple[str, ...]:
    """Return the runs that were named, as run ids. One whose removal an earlier gc began is named by its id."""
    from orchestrator import wiring
    from orchestrator.report.select import resolve_run

    store = wiring.object_store(settings.store)
    return tuple([await resolve_run(store, name) for name in names])


def _refuse(plan: Collected, named: tuple[str, ...]) -> None:
    """Raise RefusedError when a run that was named must stay: a person who names runs wants all of them gone, or none."""
    from orchestrator.errors import RefusedError

    if told := [f"run {each.run} stays: {each.why}" for each in plan.kept if each.run in named]:
        raise RefusedError("\n".join([*told, "nothing was removed"]))


def _collect(settings: Settings, criteria: Criteria, *, dry_run: bool) -> Collected:
    from orchestrator.driver.gc.collect import collect_garbage

    return run_async(collect_garbage(settings, criteria, dry_run=dry_run))


def _ask(plan: Collected) -> None:
    """Show what would be removed and ask. Raises SpecError where nobody can be asked, StoppedError for a no."""
    from orchestrator.errors import SpecError, StoppedError
    from orchestrator.report.text import plural

    if not can_ask():
        msg = f"{plural(len(plan.runs), 'run')} and {size(plan.total)} would be removed; add --yes, or see them with --dry-run"
        raise SpecError(msg)
    _print_tables(plan, to_error=True)
    print("remove all this for good? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        msg = "nothing was removed"
        raise StoppedError(msg)


def size(amount: Amount) -> str:
    """Return an amount for people: ``12 objects, 3.4 MB``."""
    from orchestrator.report.text import bytes_text, plural

    return f"{plural(amount.objects, 'object')}, {bytes_text(amount.size)}"


def _print(done: Collected, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(_as_json(done), indent=2))
    else:
        _print_tables(done)


def _as_json(done: Collected) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "dry_run": done.dry_run,
        "runs": [
            {
                "run": each.run,
                "suite": each.suite,
                "created_at": each.created_at.isoformat() if each.created_at else None,
                "why": each.why,
                "begun_before": each.finished,
                "objects": each.amount.objects,
                "bytes": each.amount.size,
            }
            for each in done.runs
        ],
        "kept": [{"run": each.run, "why": each.why} for each in done.kept],
        "unreadable": list(done.unreadable),
        "garbage": [
            {"kind": each.kind, "objects": each.amount.objects, "bytes": each.amount.size} for each in done.garbage
        ],
        "total": {"runs": len(done.runs), "objects": done.total.objects, "bytes": done.total.size},
    }


def _print_tables(done: Collected, *, to_error: bool = False) -> None:
    from orchestrator.report.text import clean, named, plural

    out = sys.stderr if to_error else sys.stdout
    word = "would remove" if done.dry_run else "removed"
    for each in done.runs:
        day = f"{each.created_at:%Y-%m-%d %H:%M} UTC" if each.created_at else "unknown age"
        before = "; an earlier gc had begun with it" if each.finished else ""
        print(f"{word}  {clean(each.run)}  {clean(each.suite or '?')}  {day}  {size(each.amount)}{before}", file=out)
    for kept in done.kept:
        print(f"kept  {clean(kept.run)}: {clean(kept.why)}", file=out)
    if done.unreadable:
        shown = named(done.unreadable)
        print(f"kept  {shown}: this version cannot read the manifest; name it with --run to remove it", file=out)
    for kind in (kind for kind in done.garbage if kind.amount):
        print(f"{word}  {kind.what}: {size(kind.amount)}", file=out)
    print(f"{word}  {plural(len(done.runs), 'run')}, {size(done.total)} in all", file=out)
