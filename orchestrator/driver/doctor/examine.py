"""All checks of a doctor's visit, and what they come to."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel

from orchestrator import wiring
from orchestrator.driver.doctor import machine, parts
from orchestrator.driver.doctor.checks import Check, Finding, run_checks
from orchestrator.driver.kubernetes import doctor
from orchestrator.driver.kubernetes.site import CONFIGMAP, is_remote, open_site
from orchestrator.driver.place import KUBERNETES
from orchestrator.errors import Problem, SpecError
from orchestrator.settings import Settings, SettingsFile
from orchestrator.storage.health import Fact, store_health

_GROUPS = ("providers", "prices", "limits", "egress", "kubernetes")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
"""Keys that TOML takes without quotes."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting in force."""

    name: str
    value: str
    """For people; never a secret."""
    source: str
    """``flag``, a variable, ``FILE:LINE`` or ``default``."""


@dataclass(frozen=True, kw_only=True)
class Visit:
    """What a doctor found."""

    settings: tuple[Setting, ...]
    problems: tuple[Problem, ...]
    """Settings that cannot be used, and those that this version would ignore; defaults were looked at instead of wrong values."""
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """2 for settings that cannot be used, 5 when something that a run needs does not work, else 0."""
        if self.problems:
            return 2
        return 5 if any(each.state == "problem" for each in self.findings) else 0

    @property
    def hangs(self) -> bool:
        """Whether a check has not come back."""
        return any(each.hangs for each in self.findings)


def visit(settings: Settings, problems: Sequence[Problem], *, models: bool = False) -> Visit:
    """Look at everything, at the same time. ``problems`` are those of loading the settings; ``models``: also call models."""
    found = [*problems, *_store_problems(settings)]
    return Visit(
        settings=tuple(shown_settings(settings)),
        problems=tuple(found),
        findings=tuple(run_checks(checks(settings, models=models))),
    )


def checks(settings: Settings, *, models: bool) -> list[Check]:
    """Return what is looked at, in the order in which it is shown: of a cluster its own parts, not those of this machine."""
    found = [
        Check(name="program", look=machine.program),
        Check(name="clock", look=machine.clock),
        Check(name="cache", look=functools.partial(machine.folder, settings.cache, "ORCHESTRATE_CACHE")),
        Check(name="logs", look=functools.partial(machine.folder, settings.logs, "ORCHESTRATE_LOGS")),
        Check(name="scratch", look=functools.partial(machine.scratch, settings)),
    ]
    prices = Check(name="prices", look=functools.partial(parts.prices, settings))
    store = Check(name="store", look=functools.partial(_store, settings), limit_s=60)
    if settings.backend == KUBERNETES:
        cluster, chart, *more = _of_cluster(settings)  # first: the chart may have to say where the store is
        return [*found[:2], cluster, chart, store, *found[2:], *more, prices]
    found[2:2] = [
        Check(name="processors and memory", look=functools.partial(machine.capacity, settings)),
        Check(name="open files", look=functools.partial(machine.open_files, settings)),
        store,
    ]
    return [
        *found,
        Check(name="bubblewrap", look=functools.partial(parts.bubblewrap, settings), limit_s=40),
        Check(name="container", look=functools.partial(parts.container, settings), limit_s=60),
        Check(name="services", look=functools.partial(parts.services, settings, models=models), limit_s=120),
        Check(name="providers", look=functools.partial(parts.providers, settings)),
        prices,
        Check(name="ray", look=functools.partial(parts.ray, settings), limit_s=90),
    ]


def _of_cluster(settings: Settings) -> list[Check]:
    looks = {"cluster": 20, "chart": 30, "rights": 40, "services": 40, "guards": 60, "pods": 190}
    found = [
        Check(name=name, look=functools.partial(getattr(doctor, name), settings), limit_s=limit)
        for name, limit in looks.items()
    ]
    if not is_remote(settings, KUBERNETES):
        found.append(Check(name="ray", look=functools.partial(parts.ray, settings), limit_s=90))
    return found


def _is_the_chart_s(settings: Settings) -> bool:
    """Return whether runs are kept where the chart says, since nothing here says otherwise."""
    return is_remote(settings, settings.backend) and settings.sources.get("store", "default") == "default"


async def _store(settings: Settings) -> Sequence[Fact]:
    """Look at the store that ``submit`` would use."""
    if _is_the_chart_s(settings):
        async with open_site(settings) as site:
            found, where = site.settings.store, f"configmap {site.namespace}/{CONFIGMAP}"
        wiring.object_store(found)  # only what has no secret in it is told
        return [Fact(state="ok", said=f"{found}, as {where} says"), *await store_health(found)]
    try:
        return await store_health(settings.store)
    except SpecError as error:  # told as a problem of the settings, too
        return [Fact(state="problem", said=str(error))]


def _store_problems(settings: Settings) -> list[Problem]:
    try:
        wiring.object_store(settings.store)
    except SpecError as error:
        source = settings.sources.get("store", "default")
        return [Problem("--store" if source == "flag" else source, message=str(error))]
    return []


def shown_settings(settings: Settings) -> list[Setting]:
    """Return every setting in force with where it came from. Keys and headers are named, never shown."""
    found = [_store_setting(settings)]
    for name in SettingsFile.model_fields:
        if name not in {*_GROUPS, "store"}:
            source = settings.sources.get(name, "default")
            found.append(Setting(name=name, value=written(getattr(settings, name)), source=source))
    for group, values in (("providers", settings.providers), ("prices", settings.prices)):
        for name in sorted(values):
            source = settings.sources.get(f"{group}.{name}", "default")
            found.append(Setting(name=f"{group}.{name}", value=_spelled(group, values[name]), source=source))
    for name, value in settings.kubernetes:
        source = settings.sources.get(f"kubernetes.{name}", "default")
        if source != "default":
            found.append(Setting(name=f"kubernetes.{name}", value=written(value), source=source))
    for group, table in (("limits", settings.limits), ("egress", settings.egress)):
        for name, value in table:
            source = settings.sources.get(f"{group}.{name}", "default")
            found.append(Setting(name=f"{group}.{name}", value=written(value), source=source))
    return found


def _store_setting(settings: Settings) -> Setting:
    if _is_the_chart_s(settings):
        where = f"configmap {settings.kubernetes.drivers_namespace}/{CONFIGMAP}"
        return Setting(name="store", value="(the chart's, see below)", source=where)
    value = "(cannot be used)" if _store_problems(settings) else settings.store
    return Setting(name="store", value=value, source=settings.sources.get("store", "default"))


def written(value: Any) -> str:
    """Return a value as it stands in ``orchestrate.toml``; text alone without its quotes, and what is not set in words."""
    return "(not set)" if value is None else str(value) if isinstance(value, str | PurePath) else _toml(value)


def _toml(value: Any) -> str:
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_none=True)
    if isinstance(value, Mapping):
        pairs = (f"{name if _BARE.fullmatch(name) else json.dumps(name)} = {_toml(of)}" for name, of in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value if isinstance(value, bool | int | float) else str(value), ensure_ascii=False)


def _spelled(group: str, value: Any) -> str:
    if group == "prices":
        return str(value.spelled)
    headers = f", headers {', '.join(sorted(value.headers))}" if value.headers else ""
    return f"{value.base_url.partition('?')[0]}, {value.concurrency} calls at one time{headers}"
