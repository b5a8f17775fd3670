"""The images of a suite: built from its folders, resolved from its references, and pinned in ``images.lock.json``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from orchestrator import wiring
from orchestrator.driver.order import Loaded
from orchestrator.driver.place import KUBERNETES
from orchestrator.errors import Problem, RefusedError, SandboxError, SpecError
from orchestrator.interfaces import ImageEngine, LocalImage
from orchestrator.settings import Settings
from orchestrator.spec.bundle import Bundle, build_bundle
from orchestrator.spec.files import display
from orchestrator.spec.image_lock import FILE, FILE_TIME, ImageLock, LockedBuild, read_lock
from orchestrator.spec.load import load_suite
from orchestrator.spec.loaded import LoadedSuite, LoadedTask
from orchestrator.spec.task import ImageWorkspace, Task, is_pinned

CONTAINER = "container"
"""The backend that runs tasks in their images."""
BUILD_REPOSITORY = "localhost/orchestrate-build"
"""What built images are called on this machine, with the digest of their folder as tag."""

Tell = Callable[[str], None]
"""Hears what takes long, before it begins."""


@dataclass(frozen=True)
class Built:
    """An image of a task's folder."""

    task: str
    folder: str
    """Tree digest of the folder."""
    image: str
    """Id of the image."""
    how: Literal["built", "cached"]
    locked: str | None
    """Id of the image that the lock names for this folder, if it names one."""


@dataclass(frozen=True)
class Resolved:
    """What a reference stands for."""

    reference: str
    tasks: tuple[str, ...]
    """Tasks that use it, sorted."""
    image: str
    """``name@sha256:…``; the id, when no registry gives the image."""
    id: str
    how: Literal["pulled", "local"]
    note: str = ""
    """Why it was not asked for at its registry, or what follows from it."""


@dataclass(frozen=True)
class SuiteImages:
    """What was made of a suite's images."""

    suite: LoadedSuite
    builds: tuple[Built, ...]
    resolved: tuple[Resolved, ...] = ()
    changed: bool = False
    """Whether the lock file was written anew."""

    @property
    def lock(self) -> Path:
        """The lock file."""
        return self.suite.folder / FILE

    @property
    def differing(self) -> list[Built]:
        """Images that are not those that the lock names for the same folders."""
        return [built for built in self.builds if built.locked is not None and built.locked != built.image]

    def as_json(self) -> dict[str, Any]:
        """Return the published form."""
        return {
            "schema_version": 1,
            "suite": self.suite.suite.id,
            "lock": display(self.lock),
            "changed": self.changed,
            "builds": [
                {"task": each.task, "folder": each.folder, "image": each.image, "how": each.how, "locked": each.locked}
                for each in self.builds
            ],
            "images": [
                {
                    "reference": each.reference,
                    "tasks": list(each.tasks),
                    "image": each.image,
                    "id": each.id,
                    "how": each.how,
                    "note": each.note,
                }
                for each in self.resolved
            ],
        }


async def build_images(folder: Path, engine: ImageEngine, tell: Tell, *, again: bool = False) -> SuiteImages:
    """Build the image of every task that has ``environment.build``.

    A folder that was built before is not built again, unless ``again``. Raises SpecError with all that cannot be built, and SandboxError.
    """
    suite, locked = _load(folder)
    work = _Work(engine, tell, again=again)
    builds = await work.builds(suite, locked or ImageLock())
    work.settle()
    return SuiteImages(suite, builds)


async def lock_images(folder: Path, engine: ImageEngine, tell: Tell, *, again: bool = False) -> SuiteImages:
    """Build what is to be built, ask registries what the tags of the suite stand for now, and write the lock file.

    Task files stay as they are, and so does the lock when something fails. Raises SpecError with all that cannot be built,
    SandboxError with all that cannot be fetched.
    """
    suite, locked = _load(folder, spoilt="ignored")
    work = _Work(engine, tell, again=again)
    builds = await work.builds(suite, locked or ImageLock())
    resolved = await work.references(suite)
    work.settle()
    lock = ImageLock(
        images={each.reference: each.image for each in resolved},
        builds={each.task: LockedBuild(folder=each.folder, image=each.image) for each in builds},
    )
    changed = await asyncio.to_thread(_write, suite.folder / FILE, lock)
    return SuiteImages(suite, builds, resolved, changed)


async def present_images(images: Mapping[str, str], engine: ImageEngine) -> Mapping[str, str]:
    """Return pinned images with their ids, once all are on this machine; ``images`` is who runs in it (``task a``,
    ``agent b``) to pinned image.

    What is not here is fetched by its digest. Raises RefusedError with all that only a person can bring here, SandboxError with all that
    a registry did not give.
    """
    found: dict[str, str] = {}
    missing, failed = [], []
    for image in dict.fromkeys(images.values()):
        here = await engine.image(image)
        users = ", ".join(user for user, used in images.items() if used == image)
        if here is None and "@" not in image:
            missing.append(
                f"{users}: image {image} is not on this machine, and no registry has it; "
                "make it with: orchestrate images build SUITE"
            )
            continue
        try:
            found[image] = (here or await engine.pull(image)).id
        except SandboxError as error:
            if error.cause != "image_pull":
                raise
            failed.append(f"{users}: {error}")
    if missing:
        raise RefusedError("\n".join([*missing, *failed]))
    if failed:
        raise SandboxError("\n".join(failed), cause="image_pull")
    return found


def backend_for(loaded: Loaded, settings: Settings) -> str:
    """Return the backend of an order: the one that was asked for, or ``container`` when images are needed and an engine is there."""
    if settings.backend != "auto":
        return settings.backend
    own = any(agent.agent.system_image is not None for agent in loaded.agents)
    if own or any(needs_image(task.task) for task in loaded.tasks):
        with contextlib.suppress(RefusedError):
            wiring.container_engine(settings)
            return CONTAINER
    return "bubblewrap"


def with_default_image(tasks: Sequence[LoadedTask], image: str | None) -> tuple[tuple[LoadedTask, ...], dict[str, str]]:
    """Return the tasks with an image for those that name and build none, and the label that says so.

    The manifest then holds the image of every task: a cluster whose default changes meanwhile does not change the run.
    """
    given: list[LoadedTask] = []
    for each in tasks:
        environment = each.task.environment
        if environment.image is None and environment.build is None and image is not None:
            changed = each.task.model_copy(update={"environment": environment.model_copy(update={"image": image})})
            given.append(replace(each, task=changed))
    if not given:
        return tuple(tasks), {}
    by_id = {each.task.id: each for each in given}
    count = f"{len(given)} {'task names none and runs' if len(given) == 1 else 'tasks name none and run'}"
    return tuple(by_id.get(each.task.id, each) for each in tasks), {"images": f"{count} in {image}"}


def unused_images(backend: str, images: Mapping[str, str | None]) -> dict[str, str]:
    """Return the label of a run whose tasks name images that its backend does not use; ``images`` is task to image."""
    without = sum(image is not None for image in images.values())
    if backend in {CONTAINER, KUBERNETES} or not without:
        return {}
    return {"images": f"not used, though {without} {'task names' if without == 1 else 'tasks name'} one"}


def needs_image(task: Task) -> bool:
    """Return whether a task runs in an image only: it has one and does not say what it needs of a machine without."""
    environment = task.environment
    if environment.build is not None or isinstance(environment.workspace, ImageWorkspace):
        return True
    return environment.image is not None and not environment.requires


def _load(folder: Path, spoilt: Literal["refused", "ignored"] = "refused") -> tuple[LoadedSuite, ImageLock | None]:
    problems: list[Problem] = []
    suite = load_suite(folder, locked=False)
    locked = read_lock(folder, problems)
    if problems and spoilt == "refused":
        raise SpecError(problems)
    return suite, locked


def _write(path: Path, lock: ImageLock) -> bool:
    """Write the lock unless it is there already, all of it or nothing. A suite without images gets none."""
    data = lock.to_bytes()
    if path.is_file() and path.read_bytes() == data:
        return False
    if not path.exists() and not lock.images and not lock.builds:
        return False
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{FILE}.", delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    return True


class _Work:
    """Asks the engine for one image after the other and collects what fails, so that one call tells all of it."""

    def __init__(self, engine: ImageEngine, tell: Tell, *, again: bool) -> None:
        self._engine = engine
        self._tell = tell
        self._again = again
        self._recipes: list[Problem] = []
        self._registries: list[Problem] = []
        self._made: dict[str, tuple[str, Literal["built", "cached"]]] = {}

    def settle(self) -> None:
        """Raise what was collected, if anything was."""
        if self._recipes:
            raise SpecError([*self._recipes, *self._registries])
        if self._registries:
            raise SandboxError("\n".join(map(str, self._registries)), cause="image_pull")

    async def builds(self, suite: LoadedSuite, lock: ImageLock) -> tuple[Built, ...]:
        """Build the folders of all tasks, equal ones once."""
        found = []
        for task in suite.tasks:
            bundle = build_bundle(task.task, task.folder, display(task.folder))
            if bundle is not None and (made := await self._build(task, bundle)) is not None:
                entry = lock.builds.get(task.task.id)
                locked = entry.image if entry is not None and entry.folder == bundle.digest else None
                found.append(Built(task.task.id, bundle.digest, *made, locked))
        return tuple(found)

    async def _build(self, task: LoadedTask, bundle: Bundle) -> tuple[str, Literal["built", "cached"]] | None:
        if bundle.digest in self._made:
            return self._made[bundle.digest]
        tag = f"{BUILD_REPOSITORY}:{bundle.digest.removeprefix('sha256:')}"
        image = None if self._again else await self._engine.image(tag)
        if image is not None:
            self._made[bundle.digest] = image.id, "cached"
            return self._made[bundle.digest]
        self._tell(f"building {task.task.id} ({task.task.environment.build})")
        try:
            with tempfile.TemporaryDirectory(prefix="orchestrate-context-") as folder:
                context = Path(folder) / "context"
                await asyncio.to_thread(_lay, bundle, context)
                image = await self._engine.build(context, tag=tag, again=self._again)
        except SandboxError as error:
            if error.cause != "image_build":
                raise
            shown = f"{display(task.folder)}/{(task.task.environment.build or '').rstrip('/')}"
            self._recipes.append(Problem(shown, message=f"the image of task {task.task.id} cannot be built: {error}"))
            return None
        self._made[bundle.digest] = image.id, "built"
        return self._made[bundle.digest]

    async def references(self, suite: LoadedSuite) -> tuple[Resolved, ...]:
        """Resolve every reference that its author did not pin."""
        users: dict[str, list[str]] = {}
        for task in suite.tasks:
            reference = task.task.environment.image
            if reference is not None and not is_pinned(reference):
                users.setdefault(reference, []).append(task.task.id)
        found = [await self._resolve(suite, reference, tuple(tasks)) for reference, tasks in sorted(users.items())]
        return tuple(each for each in found if each is not None)

    async def _resolve(self, suite: LoadedSuite, reference: str, tasks: tuple[str, ...]) -> Resolved | None:
        here = await self._engine.image(reference)
        if here is not None and reference.startswith("localhost/"):
            return _local(reference, tasks, here, "made on this machine, so it is pinned by its id")
        self._tell(f"pulling {reference}")
        try:
            image = await self._engine.pull(reference)
        except SandboxError as error:
            if error.cause != "image_pull":
                raise
            if here is None:
                shown = display(suite.task(tasks[0]).folder / "task.yaml")
                self._registries.append(Problem(shown, field="environment.image", message=str(error)))
                return None
            return _local(reference, tasks, here, f"taken as it is on this machine, since it cannot be pulled: {error}")
        return Resolved(reference, tasks, _registry_name(reference, image) or image.id, image.id, "pulled")


def _lay(bundle: Bundle, context: Path) -> None:
    """Write what was digested, and nothing else, with one time for all files."""
    bundle.write(context)
    for here, folders, files in os.walk(context, topdown=False):
        for name in (*files, *folders):
            os.utime(f"{here}/{name}", (FILE_TIME, FILE_TIME), follow_symlinks=False)


def _local(reference: str, tasks: tuple[str, ...], image: LocalImage, note: str) -> Resolved:
    return Resolved(reference, tasks, _registry_name(reference, image) or image.id, image.id, "local", note)


def _registry_name(reference: str, image: LocalImage) -> str | None:
    """Return the name with digest by which the reference's own registry gives the image, or any registry does."""
    repository = reference.rpartition(":")[0] if ":" in reference.rpartition("/")[2] else reference
    own = [each for each in image.digests if each.partition("@")[0].endswith(repository)]
    return next(iter((*own, *image.digests)), None)
