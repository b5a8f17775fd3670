"""A small manifest made by hand."""

from __future__ import annotations

import pytest
from made import DIGEST, made_agent, made_run, made_task

from orchestrator.records.manifest import RunManifest


def make_manifest() -> RunManifest:
    return made_run(
        made_task("a", samples=2, solutions={"wrong/lazy": DIGEST}),
        made_task("b", samples=2),
        agents=(made_agent("nop"), made_agent("wrong/lazy")),
    )


@pytest.fixture
def manifest() -> RunManifest:
    return make_manifest()


@pytest.fixture(scope="module")
def manifest_of_six() -> RunManifest:
    return make_manifest()
