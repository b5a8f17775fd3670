"""Settings of the grader service: what the driver says on standard input or an operator in a file, and limits from ``GRADER_SERVICE_*``."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from orchestrator.errors import Problem, SpecError, nearest
from orchestrator.sandbox.kubernetes import names
from orchestrator.spec.base import Bytes

PREFIX = "GRADER_SERVICE_"
_SERVICE_LINK = re.compile(r"HOST|PORT(_.*)?")
"""What a cluster makes of a Service that is called ``grader``, for every pod that has not said no."""
_SOCKET_BYTES = 107
_DNS_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"


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


class TokenFiles(_Model):
    """Files that hold one secret each."""

    driver: Path
    """What drivers must show."""


class GradingPods(_Model):
    """Where hidden tests run on a cluster."""

    namespace: str = Field(pattern=f"^{_DNS_LABEL}$")
    """Namespace for grading pods; nothing else is in it."""
    runner_image: str = Field(min_length=1)
    """Image with this service and pytest, by digest: lays the inputs, and runs hidden tests."""
    task_image: str | None = None
    """Image for the work of trials whose task names none: the one that agents had."""
    address: str = Field(pattern=r"^http://[^/\s]+:\d+$")
    """``http://HOST:PORT`` where grading pods reach ``grading_listen``. Names are resolved here: pods have no DNS."""
    context: str | None = None
    """Context of a kubeconfig; absent: the cluster that this runs in, else the current one."""
    owner: str = Field(default_factory=socket.gethostname, pattern=f"^{_DNS_LABEL}$")
    """Whose pods they are: a service that starts removes what its name left."""
    pods: int = Field(default=4, ge=1, le=1000)
    """Grading pods at the same time."""
    creates_per_second: float = Field(default=5, ge=0.5, le=100)
    """The most pods that are created in a second."""
    cpu_request_share: float = Field(default=0.1, gt=0, le=1)
    memory_request_share: float = Field(default=1.0, gt=0, le=1)
    """What is requested of what is allowed."""
    pull_seconds: int = Field(default=600, ge=10)
    """Time for the pod to be placed and its images to come."""
    denied: tuple[str, ...] = ()
    """``IP:PORT`` that must not answer a grading pod; its first container looks before anything is laid."""
    runtime_classes: dict[str, str] = Field(default_factory=dict)
    """RuntimeClass by the isolation that a task asks for (``gvisor``, ``vm``)."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()
    pull_secrets: tuple[str, ...] = ()
    priority_class: str | None = None
    """As in a pod's own fields."""


class ServiceFile(_Model):
    """The configuration file of a service that listens on the network."""

    store: str = Field(min_length=1)
    """URL of the object store."""
    tokens: TokenFiles
    folder: Path
    """Folder for bundles and scratch files; belongs to the service. With a ``checker`` it is mounted there at the same path, read-only."""
    folder_bytes: Bytes | None = None
    """Size of the folder's disk: states wait for one another before they take more than three quarters of it. Absent: no limit is known."""
    listen: str = Field(default=f"0.0.0.0:{names.GRADER_PORT}", pattern=r"^[^\s]+:\d+$")
    """``HOST:PORT`` for drivers and probes."""
    grading_listen: str = Field(default=f"0.0.0.0:{names.GRADING_PORT}", pattern=r"^[^\s]+:\d+$")
    """``HOST:PORT`` for grading pods; only with ``kubernetes``."""
    concurrency: int = Field(default=8, ge=1, le=256)
    """Trials graded at the same time."""
    checker: str | None = None
    """Unix socket of ``grader-service checker``, which parses what agents left. Absent: bubblewrap sandboxes of this machine do."""
    scratch_bytes: Bytes | None = None
    """Size of the disk of the checker's scratch folder: jobs wait for one another as above. Absent: no limit is known."""
    kubernetes: GradingPods | None = None
    """Hidden tests run in pods. Absent: in sandboxes of this machine."""
    backend: Literal["bubblewrap", "container"] = "bubblewrap"
    """Without ``kubernetes``: where trials ran, as above."""
    container_engine: str | None = None
    """Without ``kubernetes``: the engine and its global options."""

    @field_validator("checker")
    @classmethod
    def _short(cls, value: str | None) -> str | None:
        if value is not None and len(os.fsencode(value)) > _SOCKET_BYTES:
            msg = f"the path has {len(os.fsencode(value))} bytes, a unix socket takes at most {_SOCKET_BYTES}"
            raise ValueError(msg)
        return value


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
        raise SpecError(_problems("standard input", error, StartLine)) from None
    if len(os.fsencode(start.socket)) > _SOCKET_BYTES:
        msg = (
            f"standard input: socket: the path has {len(os.fsencode(start.socket))} bytes, "
            f"a unix socket takes at most {_SOCKET_BYTES}"
        )
        raise SpecError(msg)
    return start


def read_service_file(path: Path) -> ServiceFile:
    """Read a configuration file. Raises SpecError naming the file and every field that is wrong, never its value."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SpecError([Problem(str(path), message=f"cannot be read: {error.strerror}")]) from None
    try:
        json.loads(data)
    except ValueError as error:
        line, column = getattr(error, "lineno", 0), getattr(error, "colno", 0)
        raise SpecError([Problem(str(path), line, column, message="this is no JSON")]) from None
    try:
        return ServiceFile.model_validate_json(data)
    except ValidationError as error:
        raise SpecError(_problems(str(path), error, ServiceFile)) from None


def read_token(where: str, field: str, path: Path) -> str:
    """Return the secret in a file, without the white space around it. Raises SpecError naming field and file."""
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise SpecError([Problem(where, field=field, message=f"{path} cannot be read: {reason}")]) from None
    if not token:
        raise SpecError([Problem(where, field=field, message=f"{path} is empty; put a token into it")])
    return token


def read_settings(environ: Mapping[str, str] | None = None) -> GraderSettings:
    """Read ``GRADER_SERVICE_*``. Raises SpecError naming every variable that is wrong or unknown."""
    named = {k.removeprefix(PREFIX): v for k, v in (environ or os.environ).items() if k.startswith(PREFIX)}
    values = {name.lower(): value for name, value in named.items() if not _SERVICE_LINK.fullmatch(name)}
    try:
        return GraderSettings.model_validate(values)
    except ValidationError as error:
        raise SpecError(_problems("environment", error, GraderSettings)) from None


def _problems(where: str, error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    problems = []
    for item in error.errors(include_url=False, include_input=False):
        name = ".".join(map(str, item["loc"]))
        hint = _hint(item["loc"], model) if item["type"] == "extra_forbidden" else ""
        field = PREFIX + name.upper() if where == "environment" else name
        problems.append(Problem(where, field=field, message=item["msg"] + hint))
    return problems


def _hint(place: tuple[int | str, ...], model: type[BaseModel]) -> str:
    """Return the nearest field of the model that the place is in."""
    inner: dict[str, type[BaseModel]] = {"tokens": TokenFiles, "kubernetes": GradingPods}
    fields = inner[str(place[0])].model_fields if len(place) > 1 and place[0] in inner else model.model_fields
    return nearest(str(place[-1]), fields)
