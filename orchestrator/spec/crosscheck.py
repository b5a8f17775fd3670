"""Checks between fields and files of one task. They read the document itself, so they find their mistakes also when a
field elsewhere is wrong and no model could be made."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from orchestrator.errors import Problem, nearest
from orchestrator.spec.bundle import ignored
from orchestrator.spec.globs import matches
from orchestrator.spec.task import RESERVED, is_pinned
from orchestrator.spec.yaml import Document, dotted
from orchestrator.spec.yaml import Path as FieldPath

ENTRIES = (
    "task.yaml",
    "README.md",
    "workspace",
    "world",
    "fixtures",
    "memory",
    "hidden",
    "solution",
    "environment",
    "golden",
    "user.yaml",
    "user.md",
)
"""What may stand at the top of a task's folder."""

DOCKERFILES = ("Dockerfile", "Containerfile")
"""What an image's recipe is called, the first that is there."""
_HIDDEN_FIELDS = ("expect", "equals_file", "goal", "script", "rubric")
_REGEX_FIELDS = ("regex", "not_regex")
_CHECKED_FIELDS = ("path", "database", "package")
_ENDINGS = {"decline", "ask"}


@dataclass(frozen=True)
class TaskFolder:
    """A task's document (defaults merged in) and its folder."""

    document: Document
    folder: Path
    shown: str
    """How errors name the folder."""

    def entries(self) -> Iterator[tuple[FieldPath, dict[str, Any]]]:
        """Yield every check, invariant, judge and measure with its place, alternatives of ``any_of`` included."""
        for group in ("checks", "invariants", "trace", "judges", "measures"):
            for index, entry in enumerate(_list(self.document.get(group))):
                inner = _list(entry.get("any_of")) if isinstance(entry, dict) else []
                for number, each in enumerate(inner):
                    if isinstance(each, dict):
                        yield (group, index, "any_of", number), each
                if isinstance(entry, dict) and not inner:
                    yield (group, index), entry

    def ids(self) -> list[str]:
        """Return the ids of everything that decides a trial: checks, groups of them, invariants, trace checks."""
        found: list[str] = []
        groups: dict[FieldPath, list[str]] = {}
        for path, entry in self.entries():
            name = own_id(path, entry)
            if name is not None and path[0] in {"checks", "invariants", "trace"}:
                found.append(name)
                groups.setdefault(path[:2], []).append(name)
        return found + ["|".join(names) for names in groups.values() if len(names) > 1]


def own_id(path: FieldPath, entry: dict[str, Any]) -> str | None:
    """Return the id of a check or invariant; an invariant without one is called like its type."""
    name = entry.get("id", entry.get("type") if path[0] == "invariants" else None)
    return name if isinstance(name, str) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def crosscheck(task: TaskFolder) -> list[Problem]:
    """Return all problems of a task's fields and files against each other."""
    return [
        *_reserved(task),
        *_own_name(task),
        *_unknown_entries(task),
        *_ids(task),
        *_hidden_files(task),
        *_regexes(task),
        *_folders(task),
        *_image(task),
        *_unused(task),
        *_excluded(task),
        *_idle_patterns(task),
        *_ending(task),
        *_asking(task),
    ]


def reserved_paths() -> list[FieldPath]:
    """Return the paths of the words that are kept for later."""
    return [tuple(word.split(".")) for word in RESERVED]


def _reserved(task: TaskFolder) -> Iterator[Problem]:
    for word, meaning in RESERVED.items():
        path: FieldPath = tuple(word.split("."))
        outer = task.document.get(*path[:-1])
        if isinstance(outer, dict) and path[-1] in outer:
            message = f"reserved for {meaning}, which this version does not have; remove it"
            yield task.document.key_place(path).problem(message, path)


def _own_name(task: TaskFolder) -> Iterator[Problem]:
    name = task.document.get("id")
    if isinstance(name, str) and name != task.folder.name:
        yield task.document.problem(("id",), f"{name!r} must be the name of its folder, which is {task.folder.name!r}")


def _unknown_entries(task: TaskFolder) -> Iterator[Problem]:
    for name in sorted(each.name for each in task.folder.iterdir()):
        if name not in ENTRIES and not ignored(name):
            shown = os.fsencode(name).decode(errors="backslashreplace")
            message = f"unknown entry in a task folder{nearest(shown, ENTRIES)}; known are {', '.join(ENTRIES)}"
            yield Problem(f"{task.shown}/{shown}", message=message)


def _ids(task: TaskFolder) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for path, entry in task.entries():
        name = own_id(path, entry)
        if name is None or path[0] == "measures":
            continue
        if name in seen:
            hint = "" if "id" in entry else "; give this one an id"
            where = (*path, "id")
            message = f"the id {name!r} is taken, first in line {seen[name]}{hint}"
            yield task.document.place(where).problem(message, where)
        seen.setdefault(name, task.document.place((*path, "id")).line)


def _hidden_files(task: TaskFolder) -> Iterator[Problem]:
    for path, entry in task.entries():
        for name in _HIDDEN_FIELDS:
            value = entry.get(name)
            # A sql check's rows are called ``expect`` too.
            if isinstance(value, str):
                yield from _hidden_file(task, (*path, name), value)


def _leads_out(value: str) -> bool:
    """Return whether a path leads out of the task's folder, which the model says already."""
    return value.startswith("/") or ".." in value.split("/")


def _hidden_file(task: TaskFolder, path: FieldPath, value: str) -> Iterator[Problem]:
    if _leads_out(value):
        return
    if not value.startswith("hidden/"):
        yield task.document.problem(path, f"{value!r} must be a file under hidden/, which no agent ever sees")
    elif not (task.folder / value).is_file():
        hidden = task.folder / "hidden"
        known = [f"hidden/{each.relative_to(hidden).as_posix()}" for each in hidden.rglob("*") if each.is_file()]
        yield task.document.problem(path, f"there is no file {task.shown}/{value}{nearest(value, known)}")


def _regexes(task: TaskFolder) -> Iterator[Problem]:
    for path, entry in task.entries():
        for name in _REGEX_FIELDS:
            value = entry.get(name)
            if isinstance(value, str) and (fault := regex_fault(value)):
                yield task.document.problem((*path, name), fault)


def regex_fault(pattern: str) -> str | None:
    """Say why a text is no regular expression; None when it is one."""
    try:
        re.compile(pattern, re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        return f"not a regular expression: {error}"
    return None


def _folders(task: TaskFolder) -> Iterator[Problem]:
    """Check every path that names something of the task's folder: it must be in the area of its audience, and there."""
    named: list[tuple[FieldPath, str, bool]] = [
        (("environment", "workspace"), "workspace", True),
        (("environment", "memory"), "memory", True),
        (("environment", "build"), "environment", True),
        (("world",), "world", True),
        (("fixtures", "cassette"), "fixtures", False),
        (("user", "replies"), "user.yaml", False),
        (("user", "persona"), "user.md", False),
    ]
    for path, area, is_folder in named:
        value = task.document.get(*path)
        if isinstance(value, str) and not _leads_out(value) and (fault := _area_fault(task, value, area, is_folder)):
            yield task.document.problem(path, fault)


def _image(task: TaskFolder) -> Iterator[Problem]:
    """Check that the task has one image at most, and one where its workspace comes out of it."""
    image, build = (task.document.get("environment", name) for name in ("image", "build"))
    if image is not None and build is not None:
        message = "give one of environment.image and environment.build, not both"
        yield task.document.problem(("environment", "build"), message)
    if isinstance(image, str) and "@" in image and not is_pinned(image):
        message = f"{image!r} has a digest that is none; after @ there must be sha256: and 64 hex digits"
        yield task.document.problem(("environment", "image"), message)
    where: FieldPath = ("environment", "workspace", "image_path")
    if task.document.get(*where) is not None and image is None and build is None:
        message = "there is no image to take it from; add environment.image or environment.build"
        yield task.document.problem(where, message)
    path = task.document.get(*where)
    if isinstance(path, str) and path.startswith("/") and (path == "/" or os.path.normpath(path) != path.rstrip("/")):
        yield task.document.problem(where, f"{path!r} must be the plain path of a folder below /")
    if isinstance(build, str) and not _leads_out(build):
        folder = task.folder / build
        if folder.is_dir() and not any((folder / name).is_file() for name in DOCKERFILES):
            message = f"there is no {' or '.join(DOCKERFILES)} in {task.shown}/{build}"
            yield task.document.problem(("environment", "build"), message)


def _unused(task: TaskFolder) -> Iterator[Problem]:
    """Find material that nothing names: it would stay behind without a word."""
    users: dict[str, FieldPath] = {
        "memory": ("environment", "memory"),
        "environment": ("environment", "build"),
        "world": ("world",),
        "fixtures": ("fixtures",),
        "user.yaml": ("user", "replies"),
        "user.md": ("user", "persona"),
    }
    for name, path in users.items():
        if (task.folder / name).exists() and task.document.get(*path) is None:
            message = f"nothing uses this; name it in {dotted(path)} or remove it"
            yield Problem(f"{task.shown}/{name}", message=message)
    if (task.folder / "workspace").exists() and isinstance(task.document.get("environment", "workspace"), dict):
        message = "nothing uses this, since environment.workspace names another source; remove one of the two"
        yield Problem(f"{task.shown}/workspace", message=message)


def _area_fault(task: TaskFolder, value: str, area: str, is_folder: bool) -> str | None:
    parts = PurePosixPath(value).parts
    is_file = area in {"user.yaml", "user.md"}
    if parts[:1] != (area,) or (is_file and len(parts) > 1):
        wanted = f"{area}/ or a folder in it" if is_folder else area if is_file else f"a file in {area}/"
        return f"{value!r} must be {wanted}; other folders belong to other audiences"
    place = task.folder.joinpath(*parts)
    if is_folder:
        return None if place.is_dir() else f"there is no folder {task.shown}/{value}"
    if place.is_file() or task.document.get("fixtures", "mode") == "record":
        return None
    made = f"; `orchestrate record {task.shown}` makes it" if area == "fixtures" else ""
    return f"there is no file {task.shown}/{value}{made}"


def _excluded(task: TaskFolder) -> Iterator[Problem]:
    where: FieldPath = ("environment", "state", "exclude")
    for index, pattern in enumerate(_list(task.document.get(*where))):
        if not isinstance(pattern, str):
            continue
        for path, text in _checked(task):
            if matches(pattern, _sample(text)):
                message = f"{pattern!r} leaves out what {dotted(path)} checks ({text})"
                yield task.document.problem((*where, index), message)


def _checked(task: TaskFolder) -> Iterator[tuple[FieldPath, str]]:
    """Yield the workspace paths and patterns that checks, invariants and measures look at."""
    for path, entry in task.entries():
        for name in _CHECKED_FIELDS:
            if isinstance(entry.get(name), str):
                yield (*path, name), entry[name]
        for name in ("paths", "required", "data"):
            for index, value in enumerate(_list(entry.get(name))):
                if isinstance(value, str):
                    yield (*path, name, index), value


def _idle_patterns(task: TaskFolder) -> Iterator[Problem]:
    """Find patterns that can match nothing: a guard over them would pass whatever an agent did."""
    there: list[str] | None = None
    for path, entry in task.entries():
        if entry.get("type") == "diff":
            yield from _folder_patterns(task, path, entry)
        for index, pattern in enumerate(_list(entry.get("paths"))):
            if not isinstance(pattern, str) or _leads_out(pattern) or entry.get("type") != "paths_unchanged":
                continue
            there = _workspace_files(task) if there is None else there
            if there is not None and pattern != "**" and not any(matches(pattern, each) for each in there):
                message = f"{pattern!r} matches no file of the workspace{_instead(pattern, there)}"
                yield task.document.problem((*path, "paths", index), message)


def _folder_patterns(task: TaskFolder, path: FieldPath, entry: dict[str, Any]) -> Iterator[Problem]:
    """Find patterns of a diff check that end like a folder. Those of files that are yet to be made are right."""
    for name in ("allow", "required", "ignore"):
        for index, pattern in enumerate(_list(entry.get(name))):
            if isinstance(pattern, str) and pattern.endswith("/") and not _leads_out(pattern):
                message = f"{pattern!r} matches no file; {_below(pattern)}"
                yield task.document.problem((*path, name, index), message)


def _below(pattern: str) -> str:
    return f"everything below a folder is {pattern.rstrip('/') + '/**'!r}"


def _instead(pattern: str, files: list[str]) -> str:
    """Return what was probably meant by a pattern that matches no file."""
    folders = {parent.as_posix() for each in files for parent in PurePosixPath(each).parents} - {"."}
    plain = pattern.rstrip("/")
    if pattern.endswith("/") or any(matches(plain, folder) for folder in folders):
        return f"; {_below(pattern)}"
    return nearest(pattern, [*files, *(f"{folder}/**" for folder in sorted(folders))])


def _workspace_files(task: TaskFolder) -> list[str] | None:
    """Return the files that an agent starts from; None when they are in no folder of the task."""
    source = task.document.get("environment", "workspace") or "workspace"
    if not isinstance(source, str) or _leads_out(source) or PurePosixPath(source).parts[:1] != ("workspace",):
        return None
    top = task.folder / source
    if not top.is_dir() and task.document.get("environment", "workspace"):
        return None  # which is told where it is named
    found = []
    for here, folders, files in os.walk(top):
        folders[:] = [name for name in folders if not ignored(name)]
        linked = [name for name in folders if Path(here, name).is_symlink()]
        found += [Path(here, name).relative_to(top).as_posix() for name in (*files, *linked) if not ignored(name)]
    return found


def _sample(pattern: str) -> str:
    """Return one path that a pattern fits; a plain path is its own."""
    return pattern.rstrip("/").replace("**", "a/b").replace("*", "a").replace("?", "a")


def _ending(task: TaskFolder) -> Iterator[Problem]:
    expect = task.document.get("expect")
    if not isinstance(expect, str) or expect not in _ENDINGS:
        return
    finals = [(path, entry) for path, entry in task.entries() if path[0] == "checks" and entry.get("type") == "final"]
    if not finals:
        message = f"a task that expects {expect!r} needs a check of type 'final'; without one any words would pass"
        yield task.document.problem(("expect",), message)
    for path, entry in finals:
        if entry.get("status") == "completed":
            message = f"the task expects {expect!r}, so an agent that completes it has failed; write declined or asked"
            yield task.document.problem((*path, "status"), message)


def _asking(task: TaskFolder) -> Iterator[Problem]:
    """Check that there is somebody to ask where questions are wanted, and something that sees whether they were asked."""
    asked = [(path, entry) for path, entry in task.entries() if path[0] == "checks" and entry.get("type") == "asked"]
    if task.document.get("user") is None:
        for path, _ in asked:
            yield task.document.problem((*path, "type"), "there is nobody to ask: the task has no 'user'")
    if task.document.get("user", "mode") == "model":
        for path, entry in asked:
            if entry.get("replies"):
                message = "replies have names only in a user.yaml; a user whom a model plays has none, so check what is done instead"
                yield task.document.problem((*path, "replies"), message)
    if task.document.get("expect") == "ask_then_complete" and not any(entry.get("replies") for _, entry in asked):
        message = "a task that expects 'ask_then_complete' needs a check of type 'asked' with replies; without one a guess passes"
        yield task.document.problem(("expect",), message)


def unknown_replies(task: TaskFolder, known: list[str]) -> Iterator[Problem]:
    """Find the replies that a check of type ``asked`` names and the user does not have."""
    for path, entry in task.entries():
        for index, name in enumerate(_list(entry.get("replies")) if entry.get("type") == "asked" else ()):
            if isinstance(name, str) and name not in known:
                where = (*path, "replies", index)
                yield task.document.problem(where, f"there is no reply {name!r} in user.yaml{nearest(name, known)}")
