"""What ``images build`` and ``images lock`` ask of an engine, and what they write. Real engines: ``tests/images``."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shutil
import tarfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orchestrator.driver.images import BUILD_REPOSITORY, build_images, lock_images, unused_images, with_default_image
from orchestrator.driver.workspaces import lay_workspaces
from orchestrator.errors import OrchestrateError, SandboxError, SpecError
from orchestrator.spec.image_lock import FILE
from orchestrator.spec.load import load_suite
from orchestrator.spec.loaded import LoadedTask

CHECK = "checks:\n  - {id: c, type: files, path: a}\n"


@dataclass(frozen=True)
class Kept:
    id: str
    digests: tuple[str, ...] = ()


def kept(number: int, *names: str) -> Kept:
    return Kept(f"sha256:{number:064x}", tuple(f"{name}@sha256:{number + 100:064x}" for name in names))


@dataclass
class Memory:
    """An engine whose images are in a table."""

    here: dict[str, Kept] = field(default_factory=dict)
    remote: dict[str, Kept] = field(default_factory=dict)
    broken: str = ""
    """A recipe that holds this text cannot be built."""
    built: list[dict[str, bytes]] = field(default_factory=list)
    pulled: list[str] = field(default_factory=list)
    times: set[float] = field(default_factory=set)
    folders: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """Image and path to the tar of it."""
    opened: list[str] = field(default_factory=list)

    async def image(self, reference: str) -> Kept | None:
        return self.here.get(reference)

    async def pull(self, reference: str) -> Kept:
        self.pulled.append(reference)
        if reference not in self.remote:
            raise SandboxError(f"image {reference} cannot be pulled: manifest unknown", cause="image_pull")
        self.here[reference] = self.remote[reference]
        return self.remote[reference]

    async def build(self, context: Path, *, tag: str | None = None, again: bool = False) -> Kept:
        files = {str(path.relative_to(context)): path.read_bytes() for path in context.rglob("*") if path.is_file()}
        self.times |= {path.stat().st_mtime for path in context.rglob("*")}
        if self.broken and self.broken.encode() in files["Dockerfile"]:
            raise SandboxError("STEP 2/2: RUN false", cause="image_build")
        self.built.append(files)
        image = kept(len(self.built))
        self.here[tag or ""] = image
        return image

    async def create(self, image: str) -> str:
        self.opened.append(image)
        return image

    @asynccontextmanager
    async def archive(self, container: str, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        async def pieces() -> AsyncIterator[bytes]:
            data = self.folders.get((container, path))
            if data is None:
                raise SandboxError("no such file", cause="image_path")
            for start in range(0, len(data), 1000):
                yield data[start : start + 1000]
            if self.broken:
                raise SandboxError(self.broken)

        yield pieces()

    async def remove(self, container: str) -> None:
        self.opened.remove(container)


Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Write a suite: task to the text of its environment; ``build`` tasks get a recipe."""
    monkeypatch.chdir(tmp_path)

    def write(**tasks: str) -> Path:
        (tmp_path / "s").mkdir(exist_ok=True)
        (tmp_path / "s/suite.yaml").write_text("id: s\n")
        for name, environment in tasks.items():
            folder = tmp_path / "s" / name
            (folder / "environment").mkdir(parents=True, exist_ok=True)
            (folder / "environment/Dockerfile").write_text(f"FROM {name}\n")
            if "build" not in environment:
                (folder / "environment/Dockerfile").unlink()
                (folder / "environment").rmdir()
            (folder / "task.yaml").write_text(f"id: {name}\ninstruction: x\nenvironment: {environment}\n{CHECK}")
        return tmp_path / "s"

    return write


def lock(folder: Path, engine: Memory, **how: bool) -> dict[str, object]:
    asyncio.run(lock_images(folder, engine, lambda _: None, **how))
    loaded: dict[str, object] = json.loads((folder / FILE).read_bytes())
    return loaded


def test_tags_are_locked_to_the_digest_of_their_own_registry(make: Make) -> None:
    folder = make(a="{image: 'python:3.12'}", b="{image: 'ghcr.io:5000/x/y'}", c="{image: 'python:3.12'}")
    engine = Memory(
        remote={
            "python:3.12": kept(1, "mirror.example/other", "docker.io/library/python"),
            "ghcr.io:5000/x/y": kept(2, "ghcr.io:5000/x/y"),
        }
    )
    found = lock(folder, engine)
    assert found["images"] == {
        "python:3.12": f"docker.io/library/python@sha256:{101:064x}",
        "ghcr.io:5000/x/y": f"ghcr.io:5000/x/y@sha256:{102:064x}",
    }
    assert engine.pulled == ["ghcr.io:5000/x/y", "python:3.12"]
    assert load_suite(folder).tasks[0].task.environment.image == f"docker.io/library/python@sha256:{101:064x}"


def test_task_files_stay_and_an_equal_lock_is_not_written_again(make: Make) -> None:
    folder = make(a="{image: 'x:1'}", b="{build: environment/}")
    engine = Memory(remote={"x:1": kept(9, "docker.io/library/x")})
    before = (folder / "a/task.yaml").read_bytes()
    lock(folder, engine)
    os.utime(folder / FILE, (1, 1))
    lock(folder, engine)
    assert (folder / FILE).stat().st_mtime == 1
    assert (folder / "a/task.yaml").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b", FILE, "suite.yaml"]


def test_images_of_this_machine_are_locked_by_id_with_the_reason(make: Make) -> None:
    folder = make(a="{image: 'localhost/own:1'}", b="{image: 'x:1'}")
    engine = Memory(here={"localhost/own:1": kept(1), "x:1": kept(2)})
    made = asyncio.run(lock_images(folder, engine, lambda _: None))
    assert [(each.reference, each.image, each.how) for each in made.resolved] == [
        ("localhost/own:1", kept(1).id, "local"),
        ("x:1", kept(2).id, "local"),
    ]
    assert "made on this machine" in made.resolved[0].note
    assert "manifest unknown" in made.resolved[1].note
    assert engine.pulled == ["x:1"]


def test_equal_folders_are_built_once_and_found_again(make: Make) -> None:
    folder = make(a="{build: environment/}", b="{build: environment/}", c="{build: environment/}")
    (folder / "b/environment/Dockerfile").write_text("FROM a\n")
    (folder / "a/environment/__pycache__").mkdir()
    (folder / "a/environment/__pycache__/x.pyc").write_bytes(b"by-product")
    engine = Memory()
    first = asyncio.run(build_images(folder, engine, lambda _: None))
    assert [each.how for each in first.builds] == ["built", "built", "built"]
    assert engine.built == [{"Dockerfile": b"FROM a\n"}, {"Dockerfile": b"FROM c\n"}]
    assert engine.times == {315619200}
    assert all(name.startswith(f"{BUILD_REPOSITORY}:") for name in engine.here)
    second = asyncio.run(build_images(folder, engine, lambda _: None))
    assert [(each.how, each.image) for each in second.builds] == [("cached", each.image) for each in first.builds]
    asyncio.run(build_images(folder, engine, lambda _: None, again=True))
    assert len(engine.built) == 4
    assert not (folder / FILE).exists()


def test_another_image_of_the_same_folder_is_told_and_locked_only_on_demand(make: Make) -> None:
    folder = make(a="{build: environment/}")
    engine = Memory()
    lock(folder, engine)
    elsewhere = Memory(built=[{}])  # the same folder gives another image there
    made = asyncio.run(build_images(folder, elsewhere, lambda _: None))
    assert [(each.image, each.locked) for each in made.differing] == [(kept(2).id, kept(1).id)]
    assert lock(folder, elsewhere)["builds"] == {"a": {"folder": made.builds[0].folder, "image": kept(2).id}}


def failure(folder: Path, engine: Memory) -> OrchestrateError:
    with pytest.raises(OrchestrateError) as caught:
        asyncio.run(lock_images(folder, engine, lambda _: None))
    assert not (folder / FILE).exists()
    return caught.value


def test_all_failures_come_at_once_and_nothing_is_written(make: Make) -> None:
    folder = make(a="{build: environment/}", b="{build: environment/}", c="{image: 'x:1'}", d="{image: 'y:1'}")
    error = failure(folder, Memory(broken="FROM"))
    assert isinstance(error, SpecError)
    assert [str(each).partition(": ")[0] for each in error.problems] == [
        "s/a/environment",
        "s/b/environment",
        "s/c/task.yaml",
        "s/d/task.yaml",
    ]
    assert "STEP 2/2: RUN false" in str(error)
    assert "environment.image: image x:1 cannot be pulled: manifest unknown" in str(error)


def test_registries_that_fail_alone_are_no_mistake_of_the_author(make: Make) -> None:
    error = failure(make(a="{image: 'x:1'}", b="{image: 'y:1'}"), Memory())
    assert isinstance(error, SandboxError)
    assert len(str(error).splitlines()) == 2


def test_a_spoilt_or_stale_lock_can_be_written_anew(make: Make) -> None:
    folder = make(a="{image: 'x:1'}")
    (folder / FILE).write_text("{")
    lock(folder, Memory(remote={"x:1": kept(3, "docker.io/library/x")}))
    make(a="{image: 'x:2'}")
    with pytest.raises(SpecError, match="orchestrate images lock s"):
        load_suite(folder)
    lock(folder, Memory(remote={"x:2": kept(4, "docker.io/library/x")}))
    assert load_suite(folder).tasks[0].task.environment.image == f"docker.io/library/x@sha256:{104:064x}"


def test_a_suite_without_images_gets_no_lock_and_loses_the_one_it_does_not_need(make: Make) -> None:
    folder = make(a="{}")
    assert not asyncio.run(lock_images(folder, Memory(), lambda _: None)).changed
    assert not (folder / FILE).exists()
    (folder / FILE).write_text('{"images": {"old:1": "' + kept(1).id + '"}}')
    assert lock(folder, Memory()) == {"builds": {}, "images": {}, "schema_version": 1}


def folder_tar(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        top = tarfile.TarInfo("testbed")
        top.type = tarfile.DIRTYPE
        archive.addfile(top)
        for name, data in files.items():
            info = tarfile.TarInfo(f"testbed/{name}")
            info.size = len(data)
            if name.startswith("link"):
                info.type, info.linkname, info.size = tarfile.SYMTYPE, data.decode(), 0
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


BOXED = "{image: " + kept(1).id + ", workspace: {image_path: /testbed}, resources: {disk: 1Mi}}"


def boxed(**files: bytes) -> Memory:
    return Memory(here={kept(1).id: kept(1)}, folders={(kept(1).id, "/testbed"): folder_tar(**files)})


def lay(folder: Path, engine: Memory) -> LoadedTask:
    tasks = load_suite(folder).tasks
    [task] = asyncio.run(lay_workspaces(tasks, engine, folder.parent / "cache"))
    assert engine.opened == []
    return task


def test_a_workspace_of_an_image_is_as_one_of_a_folder(make: Make) -> None:
    large = bytes(range(256)) * 1000
    task = lay(make(a=BOXED), engine := boxed(code=b"print(1)", large=large))
    plain = load_suite(make(a=BOXED)).tasks[0]
    (folder := make(b="{}") / "b/workspace").mkdir()
    (folder / "code").write_bytes(b"print(1)")
    (folder / "large").write_bytes(large)
    other = load_suite(make(b="{}")).tasks[1]
    assert task.bundles.sandbox.digest == other.bundles.sandbox.digest
    assert task.bundles.sandbox.read("workspace/large") == large
    assert task.digest == plain.digest
    assert task.bundles.sandbox.digest != plain.bundles.sandbox.digest
    engine.folders.clear()
    shutil.rmtree(folder.parent)
    assert lay(make(a=BOXED), engine).bundles.sandbox.digest == task.bundles.sandbox.digest


def test_a_kept_workspace_that_was_changed_is_taken_out_again(make: Make) -> None:
    folder = make(a=BOXED)
    first = lay(folder, boxed(code=b"print(1)"))
    [kept_file] = (folder.parent / "cache").rglob("code")
    kept_file.write_bytes(b"print(2)")
    assert lay(folder, boxed(code=b"print(1)")).bundles.sandbox.digest == first.bundles.sandbox.digest


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (Memory(), f"image {kept(1).id} is not on this machine"),
        (Memory(here={kept(1).id: kept(1)}), f"there is no /testbed in image {kept(1).id}"),
        (
            boxed(link=b"/usr/bin/python3", code=b""),
            "link is a symbolic link to '/usr/bin/python3'; only relative targets",
        ),
        (boxed(code=bytes(2 << 20)), "its files take 2,097,152 bytes, and the disk has 1,048,576; raise environment"),
    ],
)
def test_a_workspace_that_cannot_be_is_told_at_its_field(make: Make, engine: Memory, words: str) -> None:
    folder = make(a=BOXED)
    with pytest.raises(SpecError, match=re.escape(words)) as caught:
        lay(folder, engine)
    assert {(each.file, each.field) for each in caught.value.problems} == {
        ("s/a/task.yaml", "environment.workspace.image_path")
    }
    assert not list((folder.parent / "cache").rglob("tree"))


def test_a_guard_over_nothing_is_told(make: Make) -> None:
    folder = make(a=BOXED)
    with (folder / "a/task.yaml").open("a") as file:
        file.write('invariants:\n  - {type: paths_unchanged, paths: ["cod", "code", "**"]}\n')
    with pytest.raises(SpecError, match=r"invariant 'paths_unchanged': 'cod' matches no file .*did you mean 'code'"):
        lay(folder, boxed(code=b"x"))


def test_an_engine_that_breaks_in_the_middle_leaves_nothing(make: Make) -> None:
    engine = boxed(code=bytes(5000))
    engine.broken = "podman was killed"
    with pytest.raises(SandboxError, match="podman was killed"):
        lay(folder := make(a=BOXED), engine)
    assert engine.opened == []
    assert [path for path in (folder.parent / "cache/bundles/workspaces").iterdir() if path.is_dir()] == []


def test_a_run_that_does_without_images_that_its_tasks_name_says_so() -> None:
    images = {"one": "python:3.12", "two": None, "three": "python:3.12"}
    assert unused_images("bubblewrap", images) == {"images": "not used, though 2 tasks name one"}
    assert unused_images("bubblewrap", {"two": None}) == {}
    assert unused_images("container", images) == {}


def test_tasks_without_an_image_get_the_default_and_the_run_says_so(tmp_path: Path) -> None:
    suite = load_suite(Path(__file__).parents[2] / "tasks/starter")
    tasks, label = with_default_image(suite.tasks, f"task@sha256:{'1' * 64}")
    assert {each.task.environment.image for each in tasks} == {f"task@sha256:{'1' * 64}"}
    assert [each.digest for each in tasks] == [each.digest for each in suite.tasks]
    assert label == {"images": f"{len(tasks)} tasks name none and run in task@sha256:{'1' * 64}"}
    assert with_default_image(suite.tasks, None) == (suite.tasks, {})
