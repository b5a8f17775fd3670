"""No byte may land in a bundle of another audience, and every byte that matters is in exactly one digest."""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import SpecError
from orchestrator.spec.bundle import Bundle, Item, TaskBundles, folder_bundle, ignored
from orchestrator.spec.bundle_tar import tar_of, unpack
from orchestrator.spec.listing import read_listing, tree_digest
from orchestrator.spec.load import LoadedTask, load_task
from orchestrator.spec.task import Budgets, Task
from tests.spec.conftest import FILES

OWNERS = {
    "workspace": "sandbox",
    "memory": "sandbox",
    "world": "world",
    "fixtures": "world",
    "hidden": "graders",
    "solution": "oracle",
    "solution/wrong-lazy": "wrong/lazy",
}
"""Folder of a task to the one bundle that holds its files."""


def all_bundles(bundles: TaskBundles) -> dict[str, Bundle]:
    return {"sandbox": bundles.sandbox, "world": bundles.world, "graders": bundles.graders, **bundles.solutions}


def holders(task: LoadedTask, marker: bytes) -> set[str]:
    """Return the bundles in whose tar the bytes occur, in a path, a link target or a file."""
    return {name for name, bundle in all_bundles(task.bundles).items() if marker in b"".join(tar_of(bundle))}


@contextmanager
def task_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as top:
        for name, text in FILES.items():
            path = Path(top) / "small" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        yield Path(top) / "small/one"


NAMES = st.from_regex(r"[a-z]{1,6}(/[a-z]{1,6}){0,3}", fullmatch=True)


@settings(max_examples=30, deadline=None)
@given(area=st.sampled_from(sorted(OWNERS)), name=NAMES, padding=st.binary(max_size=40), in_name=st.booleans())
def test_a_byte_goes_to_its_audience_and_to_no_other(area: str, name: str, padding: bytes, in_name: bool) -> None:
    marker = uuid.uuid4().hex.encode()
    with task_folder() as folder:
        before = load_task(folder)
        # A folder of its own: a generated path never meets a file that is there.
        path = folder / area / "planted" / (f"{name}-{marker.decode()}" if in_name else name)
        path.parent.mkdir(parents=True)
        path.write_bytes(padding + marker + padding)
        after = load_task(folder)
        assert holders(after, marker) == {OWNERS[area]}
        assert after.digest != before.digest
        old, new = all_bundles(before.bundles), all_bundles(after.bundles)
        assert {each for each in old if old[each].digest != new[each].digest} == {OWNERS[area]}


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(name for name in FILES if "/" in name and name != "one/README.md")), st.data())
def test_one_changed_byte_changes_the_task_and_only_its_bundle(name: str, data: st.DataObject) -> None:
    with task_folder() as folder:
        path = folder.parent / name
        if path.name in {
            "task.yaml",
            "solve.sh",
            "user.yaml",
            "tools.yaml",
            "calls.jsonl",
        }:  # Any byte of these may break the file instead; see the tests below.
            path = folder / "hidden/expected.txt"
        before = load_task(folder)
        raw = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] ^= data.draw(st.integers(1, 255))
        path.write_bytes(raw)
        after = load_task(folder)
        old, new = all_bundles(before.bundles), all_bundles(after.bundles)
        assert after.digest != before.digest
        changed = {each for each in old if old[each].digest != new[each].digest}
        assert (
            changed == {"world", "graders"} if path.name == "seed.sql" else len(changed) == 1
        )  # goals are made from it


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("Mend it.", "Mend it all.", {"sandbox", "graders"}),
        ("id: one", "id: one\nbudgets: {max_steps: 8}", {"sandbox", "world", "graders"}),
        ("pytest -q", "pytest -v", {"graders"}),
        ('allow: ["src/**"]', 'allow: ["src/*"]', {"graders"}),
        ("id: one", "id: one\ntier: 2", {"graders"}),
        ("id: one", "id: one\ntools: {allow: [finish]}", {"world", "graders"}),
        ("replies: user.yaml", "replies: user.yaml, max_turns: 3", {"sandbox", "world", "graders"}),
        ("replies: user.yaml", "replies: user.yaml, opening: Hello!", {"sandbox", "world", "graders"}),
    ],
)
def test_a_changed_field_changes_the_bundles_that_hold_it(suite: Path, old: str, new: str, changed: set[str]) -> None:
    before = load_task(suite / "one")
    file = suite / "one/task.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    after = load_task(suite / "one")
    first, second = all_bundles(before.bundles), all_bundles(after.bundles)
    assert {name for name in first if first[name].digest != second[name].digest} == changed
    assert before.digest != after.digest


@settings(max_examples=30, deadline=None)
@given(st.text(alphabet=st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=12))
def test_what_checks_say_never_enters_the_sandbox(word: str) -> None:
    marker = f"{uuid.uuid4().hex}{word}"
    checks = [
        {"id": "cmd", "type": "command", "run": f"run {marker}"},
        {"id": "f", "type": "files", "path": f"src/{marker}", "equals": marker, "regex": marker},
        {"id": "s", "type": "sql", "database": f"{marker}.db", "query": f"select '{marker}'", "expect": [[marker]]},
        {"id": "fin", "type": "final", "status": "declined", "mentions": [[marker]], "escalation": {"who": marker}},
        {"id": "d", "type": "diff", "allow": [marker]},
    ]
    with task_folder() as folder:
        task = {
            "id": "one",
            "instruction": "Decide.",
            "environment": {"memory": "memory"},
            "world": "world",
            "fixtures": {"cassette": "fixtures/calls.jsonl"},
            "user": {"mode": "scripted", "replies": "user.yaml"},
            "expect": "decline",
            "checks": checks,
            "invariants": [{"type": "public_api_unchanged", "package": marker}],
            "origin": {"incident": marker},
        }
        (folder / "task.yaml").write_text(json.dumps(task))
        (folder / "solution/wrong-lazy/solve.sh").write_text("# fails: f\n")
        loaded = load_task(folder)
        assert holders(loaded, marker.encode()) == {"graders"}
        assert holders(loaded, b'"decline"') == {"graders", "world"}


def test_the_whole_workspace_is_there_byte_for_byte(suite: Path) -> None:
    odd = {
        "bin": bytes(range(256)),
        "empty": b"",
        "sub/deep/er/x": b"1",
        "ünï.txt": "é".encode(),
        ".hidden": b"h",
        ".gitignore": b"g",
    }
    for name, data in odd.items():
        path = suite / "one/workspace" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (suite / "one/workspace/link").symlink_to("sub/deep")
    (suite / "one/workspace/sub/deep/up").symlink_to("..")
    sandbox = load_task(suite / "one").bundles.sandbox
    assert {name: sandbox.read(f"workspace/{name}") for name in odd} == odd
    assert Item("workspace/link", "symlink", 0o777, b"sub/deep") in sandbox.items
    assert Item("workspace/sub/deep/up", "symlink", 0o777, b"..") in sandbox.items
    assert {item.path.split("/")[0] for item in sandbox.items} == {"workspace", "memory", "task"}


def test_memory_has_a_digest_of_its_own(suite: Path) -> None:
    before = load_task(suite / "one").bundles.memory
    assert before is not None
    assert [item.path for item in before.items] == ["memory/notes.md"]
    (suite / "one/workspace/src/a.py").write_text("other")
    same = load_task(suite / "one").bundles.memory
    assert same is not None
    assert same.digest == before.digest
    (suite / "one/memory/notes.md").write_text("other")
    other = load_task(suite / "one").bundles.memory
    assert other is not None
    assert other.digest != before.digest
    file = suite / "one/task.yaml"
    file.write_text(file.read_text().replace("environment:\n  memory: memory/\n", ""))
    shutil.rmtree(suite / "one/memory")
    assert load_task(suite / "one").bundles.memory is None


@pytest.mark.parametrize(
    "by_product", ["__pycache__/a.txt", "a.pyc", ".DS_Store", ".git/HEAD", "a.py~", ".a.py.swp", ".#lock", "#a#"]
)
@pytest.mark.parametrize("area", ["", "workspace/", "hidden/tests/", "solution/", "world/"])
def test_by_products_change_nothing(suite: Path, by_product: str, area: str) -> None:
    before = load_task(suite / "one")
    path = suite / "one" / f"{area}{by_product}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"noise")
    assert load_task(suite / "one").digest == before.digest


def test_times_owners_and_listing_order_change_nothing_but_the_x_bit_does(suite: Path) -> None:
    before = load_task(suite / "one")
    copy = suite.parent / "elsewhere/one"
    copy.parent.mkdir()
    shutil.copy(suite / "suite.yaml", copy.parent)
    shutil.copytree(suite / "one", copy)
    for path in sorted(copy.rglob("*"), reverse=True):
        os.utime(path, (1, 1))
        if path.is_file():
            path.chmod(0o600)
    assert load_task(copy).digest == before.digest
    (copy / "workspace/src/a.py").chmod(0o700)
    changed = load_task(copy)
    assert changed.digest != before.digest
    assert changed.bundles.graders.digest == before.bundles.graders.digest


def test_formatting_of_the_task_file_changes_nothing(suite: Path) -> None:
    before = load_task(suite / "one")
    file = suite / "one/task.yaml"
    lines = file.read_text().replace("Mend it.", "'Mend it.'").replace("memory: memory/", "memory:   'memory/'")
    file.write_text("# A comment\r\n" + lines.replace("id: one\n", "") + "id: one   # last\n")
    assert load_task(suite / "one").digest == before.digest


def test_people_s_files_change_nothing(suite: Path) -> None:
    before = load_task(suite / "one").digest
    (suite / "one/README.md").write_text("Other words.")
    assert load_task(suite / "one").digest == before


def test_a_dockerfile_is_in_the_digest_and_in_no_bundle(suite: Path) -> None:
    file = suite / "one/task.yaml"
    file.write_text(file.read_text().replace("environment:\n", "environment:\n  build: environment/\n"))
    (suite / "one/environment").mkdir()
    (suite / "one/environment/Dockerfile").write_text("FROM scratch-one")
    before = load_task(suite / "one")
    (suite / "one/environment/Dockerfile").write_text("FROM scratch-two")
    after = load_task(suite / "one")
    assert holders(after, b"scratch-two") == set()
    assert after.digest != before.digest


def test_solutions_stand_at_the_top_of_their_bundles(suite: Path) -> None:
    solutions = load_task(suite / "one").bundles.solutions
    assert {name: [item.path for item in bundle.items] for name, bundle in solutions.items()} == {
        "oracle": ["extra/file.txt", "solve.sh"],
        "wrong/lazy": ["solve.sh"],
    }


def test_graders_read_the_task_back(suite: Path) -> None:
    loaded = load_task(suite / "one")
    assert Task.model_validate_json(loaded.bundles.graders.read("task.json")) == loaded.task
    world = json.loads(loaded.bundles.world.read("task.json"))
    assert world["budgets"]["max_steps"] == 7
    assert not {"checks", "invariants", "instruction", "judges", "trace"} & set(world)


@pytest.mark.parametrize("area", ["workspace", "hidden", "memory", "world", "solution"])
def test_a_whole_area_may_not_be_a_link(suite: Path, area: str) -> None:
    shutil.move(suite / "one" / area, suite / "moved")
    (suite / "one" / area).symlink_to(suite / "moved")
    with pytest.raises(SpecError, match="not a symbolic link"):
        load_task(suite / "one")


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../hidden/expected.txt", "../../one/hidden", "src/../../hidden", ".."]
)
def test_links_that_lead_out_are_refused(suite: Path, target: str) -> None:
    (suite / "one/workspace/link").symlink_to(target)
    with pytest.raises(SpecError, match="small/one/workspace/link: is a symbolic link"):
        load_task(suite / "one")


def test_other_kinds_of_files_are_refused_all_at_once(suite: Path) -> None:
    os.mkfifo(suite / "one/workspace/pipe")
    (suite / "one/workspace" / os.fsdecode(b"bad\xff")).write_text("x")
    os.mkfifo(suite / "one/hidden/pipe")
    with pytest.raises(SpecError) as caught:
        load_task(suite / "one")
    assert [str(problem) for problem in caught.value.problems] == [
        "small/one/hidden/pipe: is no file, folder or symbolic link",
        "small/one/workspace/bad\\xff: has a name that is not UTF-8",
        "small/one/workspace/pipe: is no file, folder or symbolic link",
    ]


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(NAMES.map(lambda name: f"d-{name.replace('/', '-')}/f"), st.binary(max_size=50), max_size=6))
def test_tars_are_the_same_for_the_same_bundle_and_read_back(files: dict[str, bytes]) -> None:
    items = [Item(path, "file", 0o755 if len(data) % 2 else 0o644, data) for path, data in files.items()]
    one, two = Bundle.of(items), Bundle.of(reversed(items))
    tar = b"".join(tar_of(one))
    assert tar == b"".join(tar_of(two))
    with tempfile.TemporaryDirectory() as top:
        listed = unpack(io.BytesIO(tar), Path(top) / "unpacked")
        assert tree_digest(listed) == one.digest
        assert read_listing(Path(top) / "unpacked") == listed
        assert folder_bundle(Path(top) / "unpacked") == one
        one.write(Path(top) / "out")
        assert folder_bundle(Path(top) / "out").digest == one.digest


def test_names_that_only_look_like_by_products_are_kept() -> None:
    assert not any(
        ignored(name) for name in (".gitignore", ".gitattributes", "git", "a.pyx", ".env", "swp", "#", "pycache")
    )


def test_the_section_on_finishing_depends_on_budgets_alone(suite: Path) -> None:
    file = suite / "one/task.yaml"
    texts = set()
    for expect in ("complete", "decline", "ask", "ask_then_complete"):
        text = FILES["one/task.yaml"].replace("id: one\n", f"id: one\nexpect: {expect}\n")
        more = "checks:\n  - {id: end, type: final, status: declined}\n  - {id: asked, type: asked, replies: [sure]}\n"
        file.write_text(text.replace("checks:\n", more))
        texts.add(load_task(suite / "one").bundles.sandbox.read("task/instruction.md"))
    assert len(texts) == 1
    text = texts.pop().decode()
    budgets = Budgets(max_steps=7)
    assert text.startswith("Mend it.\n\n---\n\n## Whom you can ask\n")
    assert text.count("---\n\n## How to work and how to finish") == 1
    assert f"{budgets.max_steps} model responses" in text
    assert "15 minutes of working time" in text
    for word in (
        "$ORCHESTRATE_GATEWAY/tools/finish",
        "Bearer $ORCHESTRATE_TOKEN",
        "/output/final.json",
        "declined",
        "asked",
    ):
        assert word in text
    example = text.split("```json\n")[1].split("\n```")[0]
    assert json.loads(example)["status"] == "completed"
