"""Reading what a person wrote. Every function reports all problems of all its files in one SpecError."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from orchestrator.errors import Problem, SpecError, near_path, nearest
from orchestrator.spec.agents import built_in_agent, check_scripts, load_agent, model_agent
from orchestrator.spec.base import digest
from orchestrator.spec.bundle import Parts, TaskBundles, build_bundle, split_task
from orchestrator.spec.cassette_file import check_cassette
from orchestrator.spec.crosscheck import ENTRIES, TaskFolder, crosscheck, reserved_paths, unknown_replies
from orchestrator.spec.explain import validate
from orchestrator.spec.files import display, read_document
from orchestrator.spec.image_lock import ImageLock, pin, read_lock
from orchestrator.spec.loaded import LoadedAgent, LoadedSuite, LoadedTask
from orchestrator.spec.merge import merged
from orchestrator.spec.room import Room
from orchestrator.spec.solutions import wrong_solutions
from orchestrator.spec.submission import Submission
from orchestrator.spec.suite import Suite
from orchestrator.spec.task import Task
from orchestrator.spec.user import MOST_PERSONA, UserScript
from orchestrator.spec.world_file import world_file
from orchestrator.spec.yaml import Document

__all__ = [
    "LoadedAgent",
    "LoadedSuite",
    "LoadedTask",
    "built_in_agent",
    "check_scripts",
    "load_agent",
    "load_submission",
    "load_suite",
    "load_task",
    "model_agent",
    "named_in",
]

_KINDS = {"checks": "check", "invariants": "invariant", "trace": "trace check", "measures": "measure"}


def load_suite(folder: Path, *, locked: bool = True) -> LoadedSuite:
    """Read ``suite.yaml``, ``images.lock.json`` and all tasks of a suite's folder.

    Tasks come with the images that they are locked to; without ``locked``, with what their authors wrote. Raises SpecError.
    """
    problems: list[Problem] = []
    if (folder / "task.yaml").is_file():
        message = "this is the folder of a task, not of a suite; name the folder above it"
        raise SpecError([Problem(display(folder), message=message)])
    if not folder.is_dir():
        raise SpecError([Problem(display(folder), message=f"there is no such suite folder{near_path(folder)}")])
    if not (folder / "suite.yaml").exists() and (inner := sorted(folder.glob("*/suite.yaml"))):
        message = f"this is no suite; name one that is in it: {', '.join(display(each.parent) for each in inner[:8])}"
        raise SpecError([Problem(display(folder), message=message)])
    document, suite = _suite(folder, problems)
    lock = read_lock(folder, problems) if locked else None
    folders = _task_folders(folder, problems)
    tasks = [task for each in folders if (task := _task(each, document, lock, problems)) is not None]
    if not folders:
        problems.append(Problem(display(folder), message="there is no task; a task is a sub-folder with a task.yaml"))
    if suite is not None and document is not None:
        _check_quarantine(document, [each.name for each in folders], problems)
    if problems or suite is None:
        raise SpecError(problems)
    ordered = tuple(sorted(tasks, key=lambda each: each.task.id))
    content = {"suite": suite.model_dump(mode="json"), "tasks": {each.task.id: each.digest for each in ordered}}
    return LoadedSuite(suite, folder, ordered, digest(content))


def _suite(folder: Path, problems: list[Problem]) -> tuple[Document | None, Suite | None]:
    document = read_document(folder / "suite.yaml", problems)
    if document is None:
        return None, None
    suite, found = validate(Suite, document)
    problems += found
    return document, suite


def _task_folders(folder: Path, problems: list[Problem]) -> list[Path]:
    """Return the folders of tasks. A folder that looks like a task without being one is a problem, not an absence."""
    found = []
    for each in sorted(folder.iterdir()):
        if each.name.startswith(".") or not each.is_dir():
            continue
        if (each / "task.yaml").exists():
            found.append(each)
            continue
        names = [inner.name for inner in each.iterdir()]
        close = [name for name in names if nearest(name, ["task.yaml"])]
        if close or any(name in ENTRIES for name in names if name != "README.md"):
            hint = f"; is {close[0]!r} meant to be it?" if close else ""
            problems.append(Problem(display(each), message=f"this looks like a task, but there is no task.yaml{hint}"))
    return found


def _check_quarantine(document: Document, ids: list[str], problems: list[Problem]) -> None:
    entries = document.get("quarantine")
    seen: set[str] = set()
    for index in range(len(entries) if isinstance(entries, list) else 0):
        path = ("quarantine", index, "task")
        name = document.get(*path)
        if name not in ids:
            problems.append(document.problem(path, f"there is no task {name!r} in this suite{nearest(name, ids)}"))
        elif name in seen:
            problems.append(document.problem(path, f"the task {name!r} is listed twice"))
        seen.add(name)


def load_task(folder: Path) -> LoadedTask:
    """Read one task, with the defaults of the suite above it when there is one. Raises SpecError."""
    problems: list[Problem] = []
    folder = folder.resolve() if folder.name in {"", ".."} else folder
    if not folder.is_dir():
        raise SpecError([Problem(display(folder), message="there is no such task folder")])
    document, lock = None, None
    if (folder.parent / "suite.yaml").is_file():
        document, _ = _suite(folder.parent, problems)
        lock = read_lock(folder.parent, problems)
    task = _task(folder, document, lock, problems)
    if problems or task is None:
        raise SpecError(problems)
    return task


def _task(folder: Path, suite: Document | None, lock: ImageLock | None, problems: list[Problem]) -> LoadedTask | None:
    own = read_document(folder / "task.yaml", problems)
    if own is None:
        return None
    shown = display(folder)
    document = own if suite is None or not isinstance(own.data, dict) else merged(suite, ("defaults",), own)
    task, mistakes = validate(Task, document, _KINDS)
    around = TaskFolder(document, folder, shown)
    found = _without_echoes(mistakes)
    wrong: Mapping[str, tuple[str, ...]] = {}
    if isinstance(document.data, dict):
        found += crosscheck(around)
        wrong = wrong_solutions(folder, shown, around.ids(), found)
    parts = Parts(user=_user(around, found), persona=_persona(around, found), world=world_file(around, found))
    found += check_cassette(around, parts.world)
    found += _unknown_calls(around, parts)
    if found or task is None:
        problems += found
        return None
    try:
        if lock is not None:
            task = _pinned(task, around, lock)
        bundles = split_task(task, folder, shown, parts)
    except SpecError as error:
        problems += error.problems
        return None
    problems += _room_for(bundles, task, document)
    content = {
        "task": task.model_dump(mode="json", by_alias=True),
        "bundles": bundles.digests(),
        "build": bundles.build,
    }
    return LoadedTask(task, folder, digest(content), bundles, wrong)


def _user(task: TaskFolder, problems: list[Problem]) -> UserScript | None:
    """Return what the task's user can tell; None, and what is wrong, when there is no such file or it cannot be used."""
    path = task.folder / "user.yaml"
    if task.document.get("user", "replies") is None or not path.is_file():
        return None
    document = read_document(path, problems)
    if document is None:
        return None
    script, found = validate(UserScript, document)
    problems += found
    if script is not None:
        problems += unknown_replies(task, [reply.id for reply in script.replies])
    return script


def _unknown_calls(task: TaskFolder, parts: Parts) -> Iterator[Problem]:
    """Find the tools that replies of the user call and that the user does not have in the world."""
    known = [] if parts.world is None else [tool.name for tool in parts.world.tools if tool.caller == "user"]
    for number, reply in enumerate(() if parts.user is None else parts.user.replies):
        if reply.call is not None and reply.call.tool not in known:
            there = f"; there are {', '.join(known)}" if known else "; the world has none with caller: user"
            message = f"the user has no tool {reply.call.tool!r}{nearest(reply.call.tool, known)}{there}"
            yield Problem(f"{task.shown}/user.yaml", field=f"replies[{number}].call.tool", message=message)


def _persona(task: TaskFolder, problems: list[Problem]) -> str | None:
    """Return what ``user.md`` says; None, and what is wrong, when it cannot be used."""
    path = task.folder / "user.md"
    if task.document.get("user", "persona") is None or not path.is_file():
        return None
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        problems.append(Problem(f"{task.shown}/user.md", message="is not UTF-8 text"))
        return None
    if not 0 < len(text.strip()) <= MOST_PERSONA:
        message = f"must say in 1 to {MOST_PERSONA:,} characters who the user is, and has {len(text.strip()):,}"
        problems.append(Problem(f"{task.shown}/user.md", message=message))
    return text


def _pinned(task: Task, around: TaskFolder, lock: ImageLock) -> Task:
    """Return the task with the image that the lock names. Raises SpecError when the lock is stale."""
    build = build_bundle(task, around.folder, around.shown)
    pinned, stale = pin(task, None if build is None else build.digest, lock, around.document, around.folder.parent)
    if stale:
        raise SpecError(stale)
    return pinned


def _room_for(bundles: TaskBundles, task: Task, document: Document) -> list[Problem]:
    """Say when the workspace does not fit on the disk that it would be laid on, however a backend gives it to the agent."""
    room = Room(task.environment.resources.disk)
    for item in bundles.sandbox.items:
        if item.path.startswith("workspace/"):
            room.take(item.size)
    problem = room.problem()
    if problem is None:
        return []
    message = f"the workspace does not fit: {problem}; give it room to work in, too"
    return [document.problem(("environment", "resources", "disk"), message)]


def _without_echoes(mistakes: list[Problem]) -> list[Problem]:
    """Leave out what the checks between fields say better: reserved words and ids given twice."""
    kept = {".".join(str(part) for part in path) for path in reserved_paths()}
    return [
        each
        for each in mistakes
        if not (each.field in kept and each.message.startswith("unknown key"))
        and not (not each.field and each.message.startswith("check ids must be unique"))
    ]


def load_submission(path: Path) -> Submission:
    """Read a submission file; the suite and agents that it names are not read. Raises SpecError."""
    problems: list[Problem] = []
    document = read_document(path, problems)
    if document is None:
        raise SpecError(problems)
    submission, found = validate(Submission, document)
    if submission is None:
        raise SpecError(found)
    return submission


def named_in(path: Path) -> tuple[str | None, tuple[str, ...]]:
    """Return the suite and the agents that a submission file names, as far as a file with mistakes can be read."""
    document = read_document(path, [])
    if document is None:
        return None, ()
    suite, agents = document.get("suite"), document.get("agents")
    listed = agents if isinstance(agents, list) else []
    return suite if isinstance(suite, str) and suite else None, tuple(each for each in listed if isinstance(each, str))
