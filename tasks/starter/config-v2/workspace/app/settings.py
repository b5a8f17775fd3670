"""Read the configuration, version 2."""

import tomllib
from dataclasses import dataclass


@dataclass(frozen=True)
class Upstream:
    """One server that mail goes to."""

    name: str
    scheme: str
    host: str
    port: int
    timeout_seconds: int
    retries: int
    weight: int
    tls: bool
    enabled: bool
    tags: list
    password_env: str | None = None
    limits: dict | None = None


def load(path):
    """Return ``(service, upstreams, limits)``. Raises ValueError for another version."""
    with open(path, "rb") as file:
        document = tomllib.load(file)
    if document.get("version") != 2:
        raise ValueError(f"{path} is not version 2")
    return document["service"], [Upstream(**row) for row in document["upstreams"]], document["limits"]
