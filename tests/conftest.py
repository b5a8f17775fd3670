"""Fixtures that every folder may use."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a path so short that unix sockets fit below it."""
    folder = Path(tempfile.mkdtemp(prefix="o-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
