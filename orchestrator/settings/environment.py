"""The only module that reads and sets variables of this process, but for the grader's own and programs inside a sandbox."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

_ENGINE_VARIABLES = {
    *(
        "PATH",
        "HOME",
        "TMPDIR",
        "XDG_RUNTIME_DIR",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "STORAGE_DRIVER",
        "STORAGE_OPTS",
    ),
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "DOCKER_API_VERSION"),
    *("CONTAINER_HOST", "CONTAINER_CONNECTION"),
    *("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "CONTAINERS_REGISTRIES_CONF"),
}
"""Variables that tell podman and docker where things are; none of them is a secret."""


def variables(environ: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Return the variables to go by: those given, or else this process's own."""
    return os.environ if environ is None else environ


def engine_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that a container engine is started with: those that say where its daemon, storage and settings are."""
    return {name: value for name, value in variables(environ).items() if name in _ENGINE_VARIABLES}


_BUILD_VARIABLES = re.compile(
    r"PATH|HOME|LANG|LC_ALL|TMPDIR|USER|(HTTPS?|NO|ALL)_PROXY|(PIP|UV|NPM_CONFIG|CARGO|GO)[A-Z_]*|SSL_CERT_(FILE|DIR)|NODE_EXTRA_CA_CERTS"
    r"|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE",
    re.IGNORECASE,
)
"""Variables that tell package managers where registries, proxies, certificates and their own settings are."""


def build_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that an agent's build command is started with. Keys of model providers and of stores are not among them.

    Programs of this environment come last in ``PATH``: its ``python3`` may lack pip, where the machine's has it.
    """
    found = {name: value for name, value in variables(environ).items() if _BUILD_VARIABLES.fullmatch(name)}
    own = str(Path(sys.prefix) / "bin")
    if "PATH" in found and sys.prefix != sys.base_prefix:
        found["PATH"] = os.pathsep.join(sorted(found["PATH"].split(os.pathsep), key=own.__eq__))
    return found


def otlp_headers(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the headers that a collector wants to be shown: ``NAME=VALUE,NAME=VALUE``, URL-encoded, as OpenTelemetry has it."""
    pairs = (pair.partition("=") for pair in variables(environ).get("OTEL_EXPORTER_OTLP_HEADERS", "").split(","))
    return {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs if name.strip()}


def ray_address() -> str | None:
    """Return the address of the Ray cluster that this user works with, as Ray's own tools take it; None: there is none."""
    return os.environ.get("RAY_ADDRESS", "").strip() or None


def local_ray_variables(token: Path) -> dict[str, str]:
    """Return the variables for a Ray cluster on this machine that only the owner of the token file can use.

    Every process of it, and every process that connects to it, must have them before it loads Ray.
    """
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on every system: listen on the loopback interface alone
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def set_variables(variables: Mapping[str, str]) -> None:
    """Set variables of this process, for libraries that read nothing else."""
    os.environ.update(variables)
