"""All checks of a doctor's visit, and what they come to."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator import wiring
from orchestrator.driver.doctor import machine, parts
from orchestrator.driver.doctor.checks import Check, Finding, run_checks
from orchestrator.driver.kubernetes import doctor
from orchestrator.driver.kubernetes.site import is_remote
from orchestrator.driver.place import KUBERNETES
from orchestrator.errors import Problem, SpecError
from orchestrator.settings import Settings, SettingsFile
from orchestrator.storage.health import Fact, store_health

_GROUPS = ("providers", "prices", "limits", "kubernetes")


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
        Check(name="store", look=functools.partial(_store, settings), limit_s=60),
        Check(name="cache", look=functools.partial(machine.folder, settings.cache, "ORCHESTRATE_CACHE")),
        Check(name="logs", look=functools.partial(machine.folder, settings.logs, "ORCHESTRATE_LOGS")),
        Check(name="scratch", look=functools.partial(machine.scratch, settings)),
    ]
    if settings.backend == KUBERNETES:
        return [*found, *_of_cluster(settings)]
    found[2:2] = [
        Check(name="processors and memory", look=functools.partial(machine.capacity, settings)),
        Check(name="open files", look=functools.partial(machine.open_files, settings)),
    ]
    return [
        *found,
        Check(name="bubblewrap", look=functools.partial(parts.bubblewrap, settings), limit_s=40),
        Check(name="container", look=functools.partial(parts.container, settings), limit_s=60),
        Check(name="services", look=functools.partial(parts.services, settings, models=models), limit_s=120),
        Check(name="providers", look=functools.partial(parts.providers, settings)),
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


async def _store(settings: Settings) -> Sequence[Fact]:
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
    wrong_store = bool(_store_problems(settings))
    found = []
    for name in SettingsFile.model_fields:
        if name in _GROUPS:
            continue
        value = getattr(settings, name)
        text = "(cannot be used)" if name == "store" and wrong_store else "(not set)" if value is None else str(value)
        found.append(Setting(name=name, value=text, source=settings.sources.get(name, "default")))
    for group, values in (("providers", settings.providers), ("prices", settings.prices)):
        for name in sorted(values):
            source = settings.sources.get(f"{group}.{name}", "default")
            found.append(Setting(name=f"{group}.{name}", value=_spelled(group, values[name]), source=source))
    for name, value in settings.kubernetes:
        source = settings.sources.get(f"kubernetes.{name}", "default")
        if source != "default":
            found.append(Setting(name=f"kubernetes.{name}", value=str(value), source=source))
    for name, value in settings.limits:
        source = settings.sources.get(f"limits.{name}", "default")
        found.append(Setting(name=f"limits.{name}", value="(not set)" if value is None else str(value), source=source))
    return found


def _spelled(group: str, value: Any) -> str:
    if group == "prices":
        return f"${value.input:g} in, ${value.output:g} out, for a million tokens"
    headers = f", headers {', '.join(sorted(value.headers))}" if value.headers else ""
    return f"{value.base_url.partition('?')[0]}, {value.concurrency} calls at one time{headers}"
