"""Settings of the grader service: what the driver says on standard input, and limits from ``GRADER_SERVICE_*`` variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from orchestrator.errors import Problem, SpecError, nearest
from orchestrator.spec.base import Bytes

PREFIX = "GRADER_SERVICE_"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class StartLine(_Model):
    """The one JSON line that starts the service."""

    socket: str
    """Path of the unix socket to listen on, at most 107 bytes."""
    store: str
    """URL of the object store."""
    token: SecretStr
    """Bearer token that requests must carry."""
    folder: Path
    """Folder for bundles and scratch files; belongs to the service."""
    concurrency: int = Field(default=2, ge=1, le=256)
    """Trials graded at the same time."""
    backend: Literal["bubblewrap", "container"] = "bubblewrap"
    """Where trials ran. ``container``: what is asked of the agent's work in hidden tests runs in the task's image."""
    container_engine: str | None = None
    """The engine and its global options; the first of podman and docker when absent."""


class GraderSettings(_Model):
    """Limits that bound what a grading may take. They are part of the grader's digest."""

    check_seconds: int = Field(default=20, ge=1, le=600)
    """Processor time of one check in the limited child, in seconds."""
    check_memory_bytes: Bytes = 1 << 30
    """Memory of one check in the limited child."""
    runner_memory_bytes: Bytes = 1 << 30
    """Memory of the sandbox that runs hidden tests."""
    runner_processes: int = Field(default=64, ge=8)
    """Processes and threads of the sandbox that runs hidden tests."""


def read_start_line(line: str) -> StartLine:
    """Read the start line. Raises SpecError naming every field that is wrong, never its value."""
    try:
        start = StartLine.model_validate_json(line)
    except ValidationError as error:
        raise SpecError(_problems("standard input", error)) from None
    if len(os.fsencode(start.socket)) > 107:
        msg = f"standard input: socket: the path has {len(os.fsencode(start.socket))} bytes, a unix socket takes at most 107"
        raise SpecError(msg)
    return start


def read_settings(environ: Mapping[str, str] | None = None) -> GraderSettings:
    """Read ``GRADER_SERVICE_*``. Raises SpecError naming every variable that is wrong or unknown."""
    values = {k.removeprefix(PREFIX).lower(): v for k, v in (environ or os.environ).items() if k.startswith(PREFIX)}
    try:
        return GraderSettings.model_validate(values)
    except ValidationError as error:
        raise SpecError(_problems("environment", error)) from None


def _problems(where: str, error: ValidationError) -> list[Problem]:
    problems = []
    for item in error.errors(include_url=False, include_input=False):
        name = ".".join(map(str, item["loc"]))
        hint = nearest(name, GraderSettings.model_fields) if item["type"] == "extra_forbidden" else ""
        field = PREFIX + name.upper() if where == "environment" else name
        problems.append(Problem(where, field=field, message=item["msg"] + hint))
    return problems
