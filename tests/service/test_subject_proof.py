"""A subject's side that does not work before the agent's code could act is the service's failure: no score, asked again."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from grader_world import RUN, TRIAL, GraderWorld, lines
from test_grading_programs import BEFORE, CHECK, HIDDEN, graded

from grader_service.grade import grade
from grader_service.local import pairs
from grader_service.programs import Programs
from orchestrator.errors import SandboxError
from orchestrator.interfaces import SandboxSpec
from orchestrator.sandbox.bubblewrap.backend import BubblewrapBackend

RIGHT = {"src/auth.py": "def check(password):\n    return bool(password)\n"}
BROKEN = {
    "server": ("server.py", "def protect(): raise PermissionError('not on this kernel')\n"),
    "requests": ("process.py", "def run(*_, **__): raise OSError('not on this kernel')\n"),
    "restoring": ("leftovers.py", "SharedMemory.forget = lambda self: open('/not on this kernel')\n"),
    "answers": ("callee.py", "raise SystemExit('not on this kernel')\n"),
}


def broken(programs: Programs, folder: Path, way: str) -> Programs:
    """Return the programs, one of them broken as by another kernel."""
    name, words = BROKEN[way]
    lib = folder / "broken"
    shutil.copytree(programs.lib, lib)
    place = lib / "grader_service/subject" / name
    text = place.read_text()
    place.write_text(
        text.replace("\nif __name__", f"\n{words}\nif __name__") if "\nif __name__" in text else text + words
    )
    return replace(programs, lib=lib)


@pytest.mark.parametrize("way", BROKEN)
def test_on_this_machine(short_folder: Path, programs: Programs, way: str) -> None:
    world = GraderWorld(short_folder, broken(programs, short_folder, way))
    world.task(BEFORE, [CHECK], hidden=HIDDEN)
    world.left(RIGHT)
    with pytest.raises(SandboxError, match=r"(?s)before it served, with .*not on this kernel") as caught:
        asyncio.run(grade(world.grading(), RUN, TRIAL))
    assert caught.value.cause == "grading_subject"
    assert world.stored_verdicts() == []


@pytest.mark.parametrize("way", ["server", "answers"])
def test_in_a_pod(short_folder: Path, programs: Programs, way: str) -> None:
    world = GraderWorld(short_folder, broken(programs, short_folder, way))
    with pytest.raises(SandboxError, match="it ended before it served") as caught:
        graded(world, RIGHT)
    assert caught.value.cause == "grading_subject"
    assert world.stored_verdicts() == []


def test_a_check_that_never_asks_is_not_judged_beside_a_broken_subject(short_folder: Path, programs: Programs) -> None:
    world = GraderWorld(short_folder, broken(programs, short_folder, "server"))
    world.task(BEFORE, [{"id": "shell", "type": "command", "run": "true"}])
    world.left(RIGHT)
    with pytest.raises(SandboxError):
        asyncio.run(grade(world.grading(), RUN, TRIAL))


def test_a_subject_that_says_nothing_is_given_up(
    world: GraderWorld, monkeypatch: pytest.MonkeyPatch, silent: None
) -> None:
    monkeypatch.setattr(pairs, "_READY_SECONDS", 0.3)
    monkeypatch.setattr(pairs, "_WORDS_SECONDS", 0.1)
    world.task(BEFORE, [CHECK], hidden=HIDDEN)
    world.left(RIGHT)
    with pytest.raises(SandboxError, match=r"did not serve within 0\.3 s") as caught:
        asyncio.run(grade(world.grading(), RUN, TRIAL))
    assert caught.value.cause == "grading_subject"


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subjects that start and do nothing."""
    opens = BubblewrapBackend.open

    def open_silent(self: BubblewrapBackend, spec: SandboxSpec) -> object:
        waits = replace(spec, command=("sleep", "60")) if spec.name.endswith("-subject") else spec
        return opens(self, waits)

    monkeypatch.setattr(BubblewrapBackend, "open", open_silent)


def test_work_that_ends_its_server_has_failed(world: GraderWorld) -> None:
    world.task(BEFORE, [CHECK], hidden=HIDDEN)
    world.left({"src/auth.py": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n"})
    verdict = world.grade()
    assert verdict.result == "failed", lines(verdict)
