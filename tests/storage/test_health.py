"""What is told of a store before it is used."""

from __future__ import annotations

import asyncio
import errno
import functools
import os
from pathlib import Path

import pytest
from s3_proxy import Answer, Request, Wire
from s3_world import Seaweed, environment

from orchestrator.storage import health
from orchestrator.storage.health import Fact, file_system, space, store_health


def look(url: str | Path) -> list[Fact]:
    return asyncio.run(store_health(str(url)))


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe has tests of its own, with as many writers as it has."""
    monkeypatch.setattr(health, "probe", functools.partial(health.probe, writers=4, rounds=2))


def states(facts: list[Fact]) -> list[str]:
    return [fact.state for fact in facts]


def test_a_folder_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    absent = tmp_path / "a/store"
    facts = look(absent)
    assert states(facts) == ["ok", "ok"]
    assert "not there yet, can be made" in facts[0].said
    assert "exactly one won" in facts[0].said
    assert "GiB free" in facts[1].said
    assert list(tmp_path.iterdir()) == []
    absent.mkdir(parents=True)
    assert "folder, writable" in look(absent)[0].said
    assert list(absent.iterdir()) == []


def test_a_folder_that_cannot_be_one_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file/store"):
        (fact,) = look(path)
        assert (fact.state, fact.said) == ("problem", f"{tmp_path}/file is a file, not a folder")
    (fact,) = look("/proc/store")
    assert fact.state == "problem"
    assert "/proc cannot be written" in fact.said


def test_a_file_system_without_links_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refused)
    fact = look(tmp_path / "store")[0]
    assert fact.state == "problem"
    assert "cannot be used" in fact.said
    assert "may lack hard links" in fact.said
    assert list(tmp_path.iterdir()) == []


def test_a_network_file_system_and_little_room_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert file_system(Path("/proc")) == "proc"
    assert file_system(Path("/proc/self")) == "proc"
    monkeypatch.setattr(health, "file_system", lambda folder: "nfs4")
    monkeypatch.setattr(health, "LOW_BYTES", 1 << 60)
    facts = look(tmp_path)
    assert states(facts) == ["ok", "warning", "warning"]
    assert "network file system (nfs4)" in facts[2].said
    monkeypatch.setattr(health, "LEAST_BYTES", 1 << 60)
    assert space(tmp_path).state == "problem"


@pytest.mark.parametrize(
    ("ahead", "state", "word"), [(1.9, "ok", ""), (-45, "warning", "45 s behind"), (900, "problem", "900 s ahead of")]
)
def test_the_clock_is_judged_by_the_service_s(ahead: float, state: str, word: str) -> None:
    fact = health._skew(ahead)
    assert (fact.state, word in fact.said) == (state, True)


def test_a_bucket_says_who_asks_and_holds(s3_url: str) -> None:
    facts = look(s3_url)
    assert states(facts) == ["ok", "ok", "ok"]
    assert facts[0].said == "asked by the identity 'admin', credentials from env"
    assert "clock" in facts[1].said
    assert "exactly one won" in facts[2].said
    assert "multipart" in facts[2].said


def test_a_bucket_that_lets_two_writers_win_cannot_be_used(wire: Wire, seaweed: Seaweed, s3_url: str) -> None:
    seen: set[str] = set()

    def every_put_succeeds(request: Request) -> Answer | None:
        if request.summary != "PUT" or request.path not in seen:
            seen.add(request.path)
            return None
        return Answer(200, body="", headers={"ETag": '"x"'})

    wire.rule = every_put_succeeds
    fact = look(seaweed.url(endpoint=wire.endpoint))[-1]
    assert fact.state == "problem"
    assert "cannot be used" in fact.said
    assert "writers of one marker won" in fact.said


def test_an_identity_without_rights_is_told_what_it_lacks(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment("reader").items():
        monkeypatch.setenv(name, value)
    facts = look(seaweed.shared_url)
    assert states(facts) == ["ok", "ok", "problem"]
    assert "the identity 'reader' may not write" in facts[-1].said
    assert "s3:PutObject" in facts[-1].said
