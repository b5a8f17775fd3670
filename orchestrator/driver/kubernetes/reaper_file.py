"""Configuration file of the reaper."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from orchestrator.settings.kubernetes import ENDPOINT, NAMESPACE
from orchestrator.settings.part import ADDRESS, Part
from orchestrator.settings.service_file import Secrets, read_service_file

_Namespace = Annotated[str, StringConstraints(pattern=NAMESPACE)]
_Url = Annotated[str, StringConstraints(pattern=ADDRESS)]
_Endpoint = Annotated[str, StringConstraints(pattern=ENDPOINT)]


class ReaperFile(Part):
    """``orchestrate serve reaper --config FILE``."""

    namespaces: tuple[_Namespace, ...] = Field(min_length=1)
    """Namespaces of pods, and of the runs' Leases."""
    gateways: tuple[_Url, ...] = Field(min_length=1)
    """Admin addresses of the gateways, in the order that drivers have them in."""
    token: Path
    """File with what the reaper shows at gateways."""
    listen: _Endpoint | None = None
    """Where probes ask for its health; None: nowhere."""
    context: str | None = None
    """Context of the kubeconfig; absent: its current one, or the cluster that this runs in."""
    absent_seconds: float = Field(default=60, ge=1)
    """A driver whose Lease does not change for so long is away: launches whose agent has ended are sealed."""
    grace_seconds: float = Field(default=900, ge=60)
    """After so long its pods are deleted, if they have ended or never began."""
    look_seconds: float = Field(default=15, gt=0)
    """Between two looks."""
    deletes_per_second: float = Field(default=5, gt=0, le=100)
    """Most pods that are deleted in a second."""


@dataclass(frozen=True)
class ReaperConfig:
    """The same with its token read."""

    namespaces: tuple[str, ...]
    gateways: tuple[str, ...]
    token: str = field(repr=False)
    listen: str | None = None
    context: str | None = None
    absent_seconds: float = 60
    grace_seconds: float = 900
    look_seconds: float = 15
    deletes_per_second: float = 5


def read_reaper_file(path: Path) -> ReaperConfig:
    """Return what a file says. Raises SpecError with every problem: file, field, reason."""
    file = read_service_file(path, ReaperFile, {})
    secrets = Secrets(path)
    token = secrets.token("token", file.token)
    secrets.check()
    return ReaperConfig(**file.model_dump(exclude={"token"}), token=token.get_secret_value())
