"""One release of the chart for all tests of this folder. Without a cluster all of them are skipped, and say why."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from installed_world import Release, need_a_cluster, release


@pytest.fixture(scope="session")
def installed() -> Iterator[Release]:
    """The release; its parts may still be starting."""
    need_a_cluster()
    with release() as made:
        yield made


@pytest.fixture
def ready(installed: Release) -> Release:
    """The release with all of its parts ready."""
    installed.await_ready()
    return installed
