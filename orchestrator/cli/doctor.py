"""``orchestrate doctor``: is everything here that a run needs?"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.options import BackendOption, JsonOption, StoreOption

if TYPE_CHECKING:
    from orchestrator.driver.doctor.examine import Visit


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(doctor)


def doctor(
    backend: BackendOption = None,
    store: StoreOption = None,
    models: Annotated[
        bool, typer.Option("--models", help="Also call each model that has a price, once; this may cost a little.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say whether a run can work here, and what to do if not.

    Settings, store, sandboxes, services, providers, this machine; with --backend kubernetes the cluster instead. Exit code 0: all that the
    settings need works. 2: settings that cannot be used. 5: something does not work.
    """
    from orchestrator.driver.doctor.examine import visit
    from orchestrator.settings import usable_settings

    settings, problems = usable_settings(Path.cwd(), overrides={"store": store, "backend": backend})
    found = visit(settings, problems, models=models)
    if as_json:
        print(json.dumps(_as_json(found), indent=2))
    else:
        _print(found)
    if found.hangs:  # its thread would keep this process for as long as it hangs
        sys.stdout.flush()
        os._exit(found.exit_code)
    raise typer.Exit(found.exit_code)


def _as_json(found: Visit) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "exit_code": found.exit_code,
        "settings": [{"name": each.name, "value": each.value, "source": each.source} for each in found.settings],
        "setting_problems": [str(each) for each in found.problems],
        "checks": [
            {
                "name": each.name,
                "state": each.state,
                "facts": [{"state": fact.state, "said": fact.said, "advice": fact.advice} for fact in each.facts],
            }
            for each in found.findings
        ],
    }


def _print(found: Visit) -> None:
    from orchestrator.report.text import clean, plural

    width = max(len(each.name) for each in found.settings)
    print("settings")
    for setting in found.settings:
        print(f"  {setting.name:<{width}}  {clean(setting.value)}  ({clean(setting.source)})")
    for problem in found.problems:
        print(f"  problem  {clean(str(problem), 1000)}")
    print("\nchecks")
    width = max(len(each.name) for each in found.findings)
    told: dict[str, str] = {}
    for finding in found.findings:
        for number, fact in enumerate(finding.facts):
            name = finding.name if not number else ""
            advice = f"; to do: {clean(fact.advice, 1000)}" if fact.advice else ""
            first = told.setdefault(fact.said, finding.name) if fact.state == "problem" else finding.name
            said = f"{clean(fact.said, 2000)}{advice}" if first == finding.name else f"not looked at, see {first}"
            print(f"  {fact.state:<7}  {name:<{width}}  {said}")
    facts = [fact for finding in found.findings for fact in finding.facts]
    wrong = len(told) + len(found.problems)
    odd = sum(fact.state == "warning" for fact in facts)
    print(f"\n{plural(wrong, 'problem')}, {plural(odd, 'warning')}")
