"""The probe tells a store that keeps its promise from one that does not."""

from __future__ import annotations

import asyncio
from pathlib import Path

from s3_proxy import Answer, Request, Wire
from s3_world import Seaweed, session_of

from orchestrator.storage.file import FileStore
from orchestrator.storage.open import open_store
from orchestrator.storage.probe import probe
from orchestrator.storage.s3 import S3Store
from orchestrator.storage.s3_connection import Timing
from orchestrator.storage.s3_place import parse_place


def test_a_folder_can_be_used(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    found = asyncio.run(probe(store))
    assert (found.usable, found.conditional_put, found.conditional_multipart, found.cause) == (True, True, None, None)
    assert found.sentences[0] == f"Store {tmp_path} can be used."
    assert len(asyncio.run(store.list("probes/"))) == found.rounds


def test_seaweedfs_can_be_used(s3_url: str) -> None:
    found = asyncio.run(probe(open_store(s3_url), rounds=2))
    assert (found.usable, found.conditional_put) == (True, True)
    assert found.conditional_multipart in {True, False}  # it races; nothing depends on it
    assert "Of 32 writers of one marker exactly one won, in each of 2 rounds (it must hold)." in found.sentences
    assert "(information" in found.sentences[-1]


def test_a_service_that_ignores_the_condition_cannot_be_used(wire: Wire, s3_url: str) -> None:
    """It answers as one that does not know the header: every PUT succeeds."""
    done = Answer(200, body="", headers={"ETag": '"x"'})
    first = set()

    def rule(request: Request) -> Answer | None:
        if request.summary != "PUT" or request.path not in first:
            first.add(request.path)
            return None
        return done

    wire.rule = rule
    place = parse_place(s3_url.replace(s3_url.split("endpoint=")[1], wire.endpoint))
    found = asyncio.run(probe(S3Store(place), writers=4, rounds=2))
    assert (found.usable, found.conditional_put, found.conditional_multipart) == (False, False, None)
    assert found.sentences[0].endswith("cannot be used.")
    assert found.sentences[1] == "In round 1 of 2, 4 of 4 writers of one marker won."
    assert "If-None-Match" in found.sentences[-1]


def test_a_service_without_conditions_is_told(wire: Wire, s3_url: str) -> None:
    wire.break_all(Answer(501, "NotImplemented"), when="PUT")
    place = parse_place(s3_url.replace(s3_url.split("endpoint=")[1], wire.endpoint))
    found = asyncio.run(probe(S3Store(place), writers=2, rounds=1))
    assert (found.usable, found.conditional_put, found.cause) == (False, None, "store_unsupported")
    assert "use another" in found.sentences[1]


def test_who_may_not_write_is_told(seaweed: Seaweed) -> None:
    store = S3Store(parse_place(seaweed.shared_url), session=session_of("reader"), timing=Timing(patience=1))
    found = asyncio.run(probe(store, writers=2, rounds=1))
    assert (found.usable, found.cause) == (False, "store_denied")
    assert "the identity 'reader' may not write" in found.sentences[1]


def test_only_the_multipart_information_may_be_missing(wire: Wire, s3_url: str) -> None:
    wire.break_all(Answer(501, "NotImplemented"), when="POST begin")
    place = parse_place(s3_url.replace(s3_url.split("endpoint=")[1], wire.endpoint))
    found = asyncio.run(probe(S3Store(place), writers=2, rounds=1))
    assert (found.usable, found.conditional_multipart) == (True, None)
    assert "could not be tried" in found.sentences[-1]
