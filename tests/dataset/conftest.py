"""Folders in memory where the machine has them: these tests write thousands of small files, and none cares for the disk."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A new folder."""
    made = Path(tempfile.mkdtemp(prefix="orch-dataset-", dir=MEMORY if MEMORY.is_dir() else None))
    yield made
    shutil.rmtree(made)
