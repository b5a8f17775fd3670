"""Bundles: the files of a task or an agent, split by who may see them.

A bundle is a sorted list of paths with mode and bytes. Its tree digest depends on nothing else: not on times, owners or
the order of a directory. ``task.yaml`` itself enters no bundle. Empty folders are not kept (version control does not
keep them either).
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import itertools
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from orchestrator.errors import Problem, SpecError
from orchestrator.spec.base import canonical_json
from orchestrator.spec.base import digest as digest_of
from orchestrator.spec.finishing import instruction_file
from orchestrator.spec.scripts import Script
from orchestrator.spec.task import Task
from orchestrator.spec.user import UserScript, user_prompt
from orchestrator.spec.world import World

MAX_BUNDLE_BYTES = 1 << 30
"""Most bytes of one area of a task's folder. What comes out of an image may be larger: it is never held in memory."""
_CHUNK = 1 << 20
_IN_MEMORY = 4 << 10
"""Files of folders that this program wrote stay on the disk when they are larger than this."""
_BY_PRODUCTS = ("__pycache__", ".git", ".DS_Store", ".pytest_cache", ".mypy_cache", ".ruff_cache")
_BACKUPS = ("*.pyc", "*.pyo", "*~", ".*.sw[a-p]", ".#*", "#*#")

SEED = "world/seed.sql"
"""What makes a world's database, in the bundles of its gateway and its grader."""

SANDBOX_AREAS = ("workspace", "memory")
"""Folders of a task whose files an agent may see. Nothing outside of them ever enters a sandbox bundle."""


@dataclass(frozen=True, order=True)
class Item:
    """One path of a bundle."""

    path: str
    """Relative, with ``/``."""
    type: Literal["file", "symlink", "dir"] = "file"
    """A folder is an item only when it must be there and nothing is in it."""
    mode: int = 0o644
    """0644 or 0755 for files and folders; symbolic links have 0777."""
    data: bytes = b""
    """Bytes of a file; target of a symbolic link."""
    source: Path | None = None
    """Where a file's bytes are when they are not in ``data``: a file of this program's own that nobody changes."""

    @property
    def size(self) -> int:
        """Bytes. Raises OSError when they cannot be read."""
        return len(self.data) if self.source is None else self.source.stat().st_size

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes. Raises OSError."""
        if self.source is None:
            yield self.data
            return
        with self.source.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk

    @cached_property
    def sha256(self) -> str:
        """Digest of the bytes, in hex. Raises OSError."""
        digest = hashlib.sha256()
        for chunk in self.chunks():
            digest.update(chunk)
        return digest.hexdigest()


@dataclass(frozen=True)
class Bundle:
    """Files for one audience."""

    items: tuple[Item, ...]

    @classmethod
    def of(cls, items: Iterable[Item]) -> Bundle:
        """Return the bundle of these items in order of their path bytes.

        Raises ValueError when a path is given twice.
        """
        ordered = tuple(sorted(items, key=lambda item: item.path.encode()))
        for one, two in itertools.pairwise(ordered):
            if one.path == two.path:
                msg = f"{one.path!r} is given twice"
                raise ValueError(msg)
        return cls(ordered)

    @cached_property
    def digest(self) -> str:
        """Tree digest ``sha256:…`` over type, mode, path and bytes of every item."""
        return digest_of([[item.type, item.mode, item.path, item.sha256] for item in self.items])

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(item.size for item in self.items)

    def read(self, path: str) -> bytes:
        """Return the bytes of one item. Raises KeyError."""
        for item in self.items:
            if item.path == path:
                return b"".join(item.chunks())
        raise KeyError(path)

    def write(self, folder: Path) -> None:
        """Write the files into a new folder, with the modes of the bundle whatever the umask. Raises OSError."""
        folder.mkdir(mode=0o755)
        folder.chmod(0o755)
        for item in self.items:
            write_item(folder, item, item.chunks())


def write_item(folder: Path, item: Item, chunks: Iterable[bytes]) -> None:
    """Write one path of a bundle below a folder, its bytes from ``chunks``. Raises OSError; nothing that is there is replaced."""
    # Texts instead of Path objects: with 50,000 files these took nine tenths of the time.
    path = f"{folder}/{item.path}"
    _make_folder(path.rpartition("/")[0])
    if item.type == "symlink":
        os.symlink(item.data.decode(), path)  # noqa: PTH211
        return
    if item.type == "dir":
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)  # noqa: PTH102
    else:
        with open(path, "xb") as file:  # noqa: PTH123
            file.writelines(chunks)
    os.chmod(path, item.mode)  # noqa: PTH101


def _make_folder(path: str) -> None:
    missing = []
    while not os.path.isdir(path):  # noqa: PTH112 - and no recursion: a workspace may be deeper than Python's stack
        missing.append(path)
        path = path.rpartition("/")[0]
    for each in reversed(missing):
        os.mkdir(each)  # noqa: PTH102
        os.chmod(each, 0o755)  # noqa: PTH101, S103 - who may read a bundle is decided by the folder above


def path_fault(path: str) -> str | None:
    """Say why a path cannot be one of a bundle; None when it can."""
    if path.startswith("/") or any(part in {"", ".", ".."} for part in path.split("/")):
        return "is not a plain relative path"
    return text_fault(path)


def text_fault(path: str) -> str | None:
    """Say why a path or a link's target cannot be kept as text; None when it can."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return "has a name that is not UTF-8"
    return None


def link_fault(path: str, target: str) -> str | None:
    """Say why a link may not be kept; None when it may. ``..`` may only lead, so that following it never depends on other links."""
    parts = PurePosixPath(target).parts
    up = sum(1 for part in parts if part == "..")
    if not target or target.startswith("/"):
        return f"is a symbolic link to {target!r}; only relative targets are kept"
    if ".." in parts[up:] or up > len(PurePosixPath(path).parts) - 1:
        return f"is a symbolic link to {target!r}, which leaves the folder"
    return None


def ignored(name: str) -> bool:
    """Return whether a file or folder of that name is a by-product that no bundle holds and no digest sees."""
    return name in _BY_PRODUCTS or any(fnmatch.fnmatchcase(name, pattern) for pattern in _BACKUPS)


@dataclass
class Reader:
    """Reads folders into items and collects what is wrong with them, so that one look finds everything."""

    show: Mapping[Path, str] = field(default_factory=dict)
    """How to name a folder in errors; its path otherwise."""
    problems: list[Problem] = field(default_factory=list)
    everything: bool = False
    """Read by-products and empty folders too: for folders that this program wrote."""
    size: int = 0

    def tree(self, folder: Path, prefix: str = "", *, skip: tuple[str, ...] = ()) -> list[Item]:
        """Return the items below a folder, ``prefix`` before their paths; ``skip`` are patterns of names at its top."""
        items: list[Item] = []
        pending = [(folder, "")]
        while pending:
            here, inner = pending.pop()
            entries = self._entries(here)
            if self.everything and inner and not entries:
                items.append(Item(prefix + inner.rstrip("/"), "dir", 0o755))
            for entry in entries:
                if not self.everything and ignored(entry.name):
                    continue
                if not inner and any(fnmatch.fnmatchcase(entry.name, pattern) for pattern in skip):
                    continue
                relative = f"{inner}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    pending.append((Path(entry.path), f"{relative}/"))
                elif (item := self._item(folder, relative)) is not None:
                    items.append(replace(item, path=prefix + item.path))
        return items

    def file(self, folder: Path, relative: str, target: str) -> list[Item]:
        """Return one file as an item named ``target``."""
        item = self._item(folder, relative)
        return [] if item is None else [replace(item, path=target)]

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self._complain(folder, f"cannot be read: {error.strerror}")
            return []

    def _item(self, folder: Path, relative: str) -> Item | None:
        path = folder / relative
        fault = path_fault(relative)
        try:
            status = path.lstat()
            if fault is None and stat.S_ISLNK(status.st_mode):
                target = str(path.readlink())
                fault = text_fault(target) and "is a symbolic link to a name that is not UTF-8"
                fault = fault or link_fault(relative, target)
                if fault is None:
                    return Item(relative, "symlink", 0o777, target.encode())
            elif fault is None and stat.S_ISREG(status.st_mode):
                return self._regular(path, relative, status)
            fault = fault or "is no file, folder or symbolic link"
        except OSError as error:
            fault = f"cannot be read: {error.strerror}"
        self._complain(path, fault)
        return None

    def _regular(self, path: Path, relative: str, status: os.stat_result) -> Item | None:
        mode = 0o755 if status.st_mode & 0o100 else 0o644
        if self.everything and status.st_size > _IN_MEMORY:
            return Item(relative, "file", mode, source=path)
        self.size += status.st_size
        if self.size > MAX_BUNDLE_BYTES and not self.everything:
            self._complain(path, f"makes the files larger than {MAX_BUNDLE_BYTES} bytes together, which is the most")
            return None
        return Item(relative, "file", mode, path.read_bytes())

    def _complain(self, path: Path, message: str) -> None:
        for folder, shown in self.show.items():
            if path.is_relative_to(folder):
                name = f"{shown}/{path.relative_to(folder)}"
                break
        else:
            name = str(path)
        self.problems.append(Problem(os.fsencode(name).decode(errors="backslashreplace"), message=message))


@dataclass(frozen=True)
class TaskBundles:
    """A task's files by audience."""

    sandbox: Bundle
    """``task/instruction.md``, ``workspace/``, ``memory/``: the only thing that an agent's sandbox gets."""
    world: Bundle
    """``task.json`` (budgets, tools), ``world/``, ``world.json``, ``fixtures/``, ``user.json``: the gateway's."""
    graders: Bundle
    """``task.json`` (the whole task), ``hidden/``, ``world/seed.sql`` (what goals are made from): the grader's."""
    solutions: Mapping[str, Bundle]
    """``oracle`` and ``wrong/NAME``; ``solve.sh`` is at the top of each."""
    build: str | None = None
    """Digest of the folder that the image is built from. No audience gets it; the task's digest depends on it."""

    @property
    def memory(self) -> Bundle | None:
        """What the agent is said to remember, a part of ``sandbox``; None: nothing."""
        items = [item for item in self.sandbox.items if item.path == "memory" or item.path.startswith("memory/")]
        return Bundle.of(items) if items else None

    def digests(self) -> dict[str, Any]:
        """Return the tree digests: ``sandbox``, ``world``, ``graders`` as texts, ``solutions`` by name."""
        return {
            "sandbox": self.sandbox.digest,
            "world": self.world.digest,
            "graders": self.graders.digest,
            "solutions": {name: bundle.digest for name, bundle in self.solutions.items()},
        }


def task_json(task: Task) -> bytes:
    """Return the whole task as canonical JSON; ``Task.model_validate_json`` reads it back."""
    return canonical_json(task.model_dump(mode="json", by_alias=True))


def world_json(task: Task) -> bytes:
    """Return what the gateway needs of a task. No check is among it."""
    fields = {"id", "version", "expect", "budgets", "tools", "hosted_tools", "world", "upstream", "fixtures", "user"}
    now = task.environment.model_dump(mode="json", include={"now"})
    return canonical_json(task.model_dump(mode="json", by_alias=True, include=fields) | now)


@dataclass(frozen=True)
class Parts:
    """What is written in files beside ``task.yaml``."""

    user: UserScript | None = None
    """``user.yaml``."""
    persona: str | None = None
    """``user.md``."""
    world: World | None = None
    """``world/tools.yaml``."""


def split_task(task: Task, folder: Path, shown: str | None = None, parts: Parts | None = None) -> TaskBundles:
    """Split a task's folder by audience. ``shown`` names the folder in errors.

    Raises SpecError, for all files at once, when one cannot be kept: a device, a FIFO, a link that leads out, an
    unreadable file, or a folder that is named for an audience that must not see it.
    """
    reader = Reader({folder: shown or str(folder)})
    bundles = TaskBundles(
        sandbox=_sandbox(task, folder, reader),
        world=_world(task, folder, reader, parts or Parts()),
        graders=_graders(task, folder, reader),
        solutions=_solutions(folder, reader),
        build=None if (build := _build(task, folder, reader)) is None else build.digest,
    )
    if reader.problems:
        raise SpecError(reader.problems)
    return bundles


def _area(reader: Reader, folder: Path, relative: str, area: str) -> Path | None:
    """Return a folder that is, without any link on the way, in its area; None when it is not there."""
    parts = PurePosixPath(relative).parts
    here = folder
    if parts[:1] != (area,):
        reader.problems.append(Problem(reader.show[folder], message=f"{relative!r} must be {area!r} or a folder in it"))
        return None
    for part in parts:
        here = here / part
        if here.is_symlink():
            shown = f"{reader.show[folder]}/{here.relative_to(folder)}"
            reader.problems.append(Problem(shown, message="must be a folder itself, not a symbolic link"))
            return None
    return here if here.is_dir() else None


def _sandbox(task: Task, folder: Path, reader: Reader) -> Bundle:
    reader.size = 0
    has_tools = task.world is not None or bool(task.upstream) or task.fixtures is not None
    text = instruction_file(
        task.instruction,
        task.budgets,
        task.user,
        now=task.environment.now,
        has_tools=has_tools,
        apis=[each.name for each in task.upstream if each.http],
    )
    items = [Item("task/instruction.md", data=text)]
    wanted = {"workspace": task.environment.workspace, "memory": task.environment.memory}
    for area in SANDBOX_AREAS:
        relative = wanted[area]
        if isinstance(relative, str) and (source := _area(reader, folder, relative, area)) is not None:
            items += reader.tree(source, f"{area}/")
    return Bundle.of(with_folder(items, "workspace"))


def with_folder(items: list[Item], folder: str) -> list[Item]:
    """Add a folder that readers of the bundle may rely on, unless something is in it anyway."""
    filled = any(item.path.startswith(f"{folder}/") for item in items)
    return items if filled else [*items, Item(folder, "dir", 0o755)]


def _world(task: Task, folder: Path, reader: Reader, parts: Parts) -> Bundle:
    reader.size = 0
    items = [Item("task.json", data=world_json(task))]
    for relative, area in ((task.world or "world", "world"), ("fixtures", "fixtures")):
        if os.path.lexists(folder / area) and (source := _area(reader, folder, relative, area)) is not None:
            items += reader.tree(source, f"{area}/")
    for name, part in (("user.json", parts.user), ("world.json", parts.world)):
        if part is not None:
            items.append(Item(name, data=canonical_json(part.model_dump(mode="json", by_alias=True))))
    if parts.persona is not None:
        items.append(Item("persona.md", data=user_prompt(parts.persona).encode()))
    return Bundle.of(items)


def _graders(task: Task, folder: Path, reader: Reader) -> Bundle:
    reader.size = 0
    items = [Item("task.json", data=task_json(task))]
    if os.path.lexists(folder / "hidden") and (source := _area(reader, folder, "hidden", "hidden")) is not None:
        items += reader.tree(source, "hidden/")
    if task.world is not None and (source := _area(reader, folder, task.world, "world")) is not None:
        items += [item for item in reader.tree(source, "world/") if item.path == SEED]
    return Bundle.of(with_folder(items, "hidden"))


def _solutions(folder: Path, reader: Reader) -> dict[str, Bundle]:
    found: dict[str, Bundle] = {}
    if not os.path.lexists(folder / "solution"):
        return found
    top = _area(reader, folder, "solution", "solution")
    if top is None:
        return found
    if (top / "solve.sh").is_file():
        reader.size = 0
        found["oracle"] = Bundle.of(reader.tree(top, skip=("wrong-*",)))
    for each in sorted(top.glob("wrong-*")):
        source = _area(reader, folder, f"solution/{each.name}", "solution")
        if source is not None:
            reader.size = 0
            found[f"wrong/{each.name.removeprefix('wrong-')}"] = Bundle.of(reader.tree(source))
    return found


def _build(task: Task, folder: Path, reader: Reader) -> Bundle | None:
    relative = task.environment.build
    source = None if relative is None else _area(reader, folder, relative, "environment")
    reader.size = 0
    return None if source is None else Bundle.of(reader.tree(source))


def build_bundle(task: Task, folder: Path, shown: str | None = None) -> Bundle | None:
    """Return what the task's image is built from; None without ``environment.build``. Raises SpecError."""
    reader = Reader({folder: shown or str(folder)})
    bundle = _build(task, folder, reader)
    if reader.problems:
        raise SpecError(reader.problems)
    return bundle


def folder_bundle(folder: Path, shown: str | None = None) -> Bundle:
    """Return a whole folder as a bundle, for example an agent's own files. Raises SpecError."""
    reader = Reader({folder: shown or str(folder)})
    bundle = Bundle.of(reader.tree(folder))
    if reader.problems:
        raise SpecError(reader.problems)
    return bundle


def scripts_bundle(scripts: Mapping[str, Script]) -> Bundle:
    """Return the conversation files of an agent: one ``<task>.json`` for each task."""
    return Bundle.of(
        Item(f"{task}.json", data=canonical_json(script.model_dump(mode="json", by_alias=True)))
        for task, script in scripts.items()
    )
