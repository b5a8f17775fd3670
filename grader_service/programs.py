"""The programs that run inside of the grader's sandboxes, laid out and compiled once per service.

They are copies: a service grades with the code it started with, and a sandbox starts faster with compiled files.
"""

from __future__ import annotations

import compileall
import hashlib
import shutil
import stat
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import orchestrator.sandbox.keeper.linux
import orchestrator.sandbox.pod.usage
import orchestrator.sandbox.world.database
import orchestrator.sandbox.world.statements
import orchestrator.spec.globs

LIB = "/grader/lib"
"""Import path of the programs in a sandbox."""
RUNNER = "/grader/runner"
"""Import path of hidden tests in the runner."""
PACKAGES = "/packages"
"""Where a sandbox shows the Python packages that it was given."""
RUNNER_PACKAGES = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")
_HERE = Path(__file__).parent
_SHARED = tuple(
    Path(str(module.__file__))
    for module in (
        orchestrator.spec.globs,
        orchestrator.sandbox.keeper.linux,
        orchestrator.sandbox.pod.usage,
        orchestrator.sandbox.world.database,
        orchestrator.sandbox.world.statements,
    )
)
"""What the programs have in common with the rest of the project; each imports the standard library and the others alone."""
_PYTEST_PROGRAM = '#!/bin/sh\nexec python3 -m pytest "$@"\n'


@dataclass(frozen=True)
class Programs:
    """Folders to lay into sandboxes."""

    lib: Path
    """``grader_service.child``, ``grader_service.subject`` and what they import."""
    runner: Path
    """``subject``, the results plugin, and ``bin/pytest``."""


def lay_programs(folder: Path) -> Programs:
    """Copy the programs below ``folder`` and compile them."""
    lib, runner = folder / "lib", folder / "runner"
    for name in ("child", "subject"):
        _copy(_HERE / name, lib / "grader_service" / name)
    for file in _SHARED:
        place = lib / file.relative_to(_HERE.parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    _copy(_HERE / "runner", runner)
    (runner / "bin").mkdir(exist_ok=True)
    (runner / "bin" / "pytest").write_text(_PYTEST_PROGRAM)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
    for place in (lib, runner):
        compileall.compile_dir(place, quiet=2, stripdir=str(place))
    return Programs(lib, runner)


def _copy(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.glob("*.py")):
        shutil.copyfile(file, target / file.name)


def warm_packages() -> None:
    """Compile the packages that sandboxes load, where they are not compiled yet: a sandbox cannot keep what it compiles."""
    names = [name for name in RUNNER_PACKAGES if name != "pygments"]  # large, and only a terminal makes pytest load it
    for package in packages_of((*names, "griffe", "ruamel"), sys.path):
        if package.is_file():
            continue
        caches = package.rglob("__pycache__/*.pyc")
        if next(caches, None) is None and package.stat().st_mode & stat.S_IWUSR:
            compileall.compile_dir(package, quiet=2)


def runner_packages() -> tuple[Path, ...]:
    """Return what hidden tests run with; pytest's header, which ``-q`` leaves out, asks for the version of pluggy."""
    return packages_of((*RUNNER_PACKAGES, f"pluggy-{version('pluggy')}.dist-info"), sys.path)


def packages_of(names: Iterable[str], path: Sequence[str]) -> tuple[Path, ...]:
    """Return the folders (or files) of top-level packages. Raises FileNotFoundError for one that is not installed."""
    found = []
    for name in names:
        folders = [Path(entry) / name for entry in path if entry]
        places = [f for f in folders if f.is_dir()] or [
            f.with_suffix(".py") for f in folders if f.with_suffix(".py").is_file()
        ]
        if not places:
            msg = f"package {name!r} is not installed; install orchestrate with its dependencies"
            raise FileNotFoundError(msg)
        found.append(places[0].resolve())
    return tuple(found)


def service_version() -> str:
    """Return ``VERSION+SOURCES``: the release, and a digest of all that decides how this service grades."""
    digest = hashlib.sha256()
    files = [*sorted(_HERE.rglob("*.py")), *_SHARED]
    for file in files:
        digest.update(f"{file.relative_to(_HERE.parent)}\0".encode() + file.read_bytes() + b"\0")
    for package in ("pytest", "griffelib", "ruamel.yaml"):
        digest.update(f"{package} {version(package)}\0".encode())
    digest.update(".".join(map(str, sys.version_info[:3])).encode())
    return f"{version('orchestrate')}+{digest.hexdigest()[:16]}"
