"""Collect the files of the pod image: our programs, the modules they import, the interpreter, and the libraries that it needs.

    python3 pod_files.py SOURCE ROOT

SOURCE holds the package ``orchestrator`` and the compiled ``supervisor``; ROOT becomes the image's root.
"""

from __future__ import annotations

import compileall
import modulefinder
import py_compile
import re
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAMS = ("prepare", "freezer", "canary", "survey")
AGENTS = ("react", "http")
HOME = Path("/opt/orchestrate")
START = """#!{python} -IS
import sys

sys.path.insert(0, "{lib}")
from orchestrator.sandbox.pod.{name} import main

sys.exit(main(sys.argv[1:]))
"""


def main(source: Path, root: Path) -> None:
    """Fill ``root``."""
    python = Path(sys.executable).resolve()
    modules = modules_of(source)
    ours = [file for file in modules if file.is_relative_to(source)]
    for file in ours:
        copy(file, root / (HOME / "lib" / file.relative_to(source)).relative_to("/"))
    for file in [python, *(each for each in modules if each not in ours), *encodings(), *landmarks()]:
        copy(file, root / file.relative_to("/"))
    for file in {library for each in [python, *modules] for library in libraries(each)}:
        copy(file, root / file.relative_to("/"))
    bin_folder = root / (HOME / "bin").relative_to("/")
    copy(source / "supervisor", bin_folder / "supervisor")
    for name in PROGRAMS:
        (bin_folder / name).write_text(START.format(python=python, lib=HOME / "lib", name=name))
        (bin_folder / name).chmod(0o755)
    compileall.compile_dir(
        root, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH, stripdir=str(root)
    )
    for name in AGENTS:  # as they are: these folders are laid into sandboxes
        agents = root / (HOME / "agents" / name).relative_to("/")
        shutil.copytree(source / "orchestrator/agents" / name, agents, ignore=shutil.ignore_patterns("__pycache__"))


def modules_of(source: Path) -> set[Path]:
    """Return every file that some import of our programs, wherever it stands, leads to."""
    finder = modulefinder.ModuleFinder(
        [str(source), *sys.path[1:]], excludes=["pydoc", "test", "unittest", "doctest", "pdb"]
    )
    for name in PROGRAMS:
        finder.import_hook(f"orchestrator.sandbox.pod.{name}", None, ["main"])
    return {Path(module.__file__) for module in finder.modules.values() if module.__file__}


def encodings() -> list[Path]:
    """Return the codecs that an interpreter loads by name."""
    import encodings as package

    folder = Path(package.__file__).parent
    return [folder / f"{name}.py" for name in ("__init__", "aliases", "ascii", "latin_1", "utf_8")]


def landmarks() -> list[Path]:
    """Return the file by which an interpreter knows its library, and where libraries are, if the machine keeps a list."""
    import os

    return [file for file in (Path(os.__file__), Path("/etc/ld.so.cache")) if file.exists()]


def libraries(file: Path) -> list[Path]:
    """Return the shared libraries of a program or extension, by the paths at which they are looked for."""
    if file.suffix == ".py":
        return []
    told = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=False).stdout
    return [Path(path) for path in re.findall(r"(/\S+) \(0x", told)]


def copy(file: Path, target: Path) -> None:
    """Copy what a path leads to."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
