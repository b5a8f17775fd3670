"""Runs made by hand, a real S3, and folders in memory for what does not care for the disk."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

for name in ("dataset", "storage", "kubernetes"):
    sys.path.insert(0, str(Path(__file__).parent.parent / name))

from s3_world import s3_url, seaweed  # noqa: E402 - found by what is above

__all__ = ["s3_url", "seaweed"]

_MEMORY = Path("/dev/shm")


@pytest.fixture
def memory() -> Iterator[Path]:
    """A new folder, in memory where the machine has such a place."""
    made = Path(tempfile.mkdtemp(prefix="orch-driver-", dir=_MEMORY if _MEMORY.is_dir() else None))
    yield made
    shutil.rmtree(made)
