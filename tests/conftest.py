"""Fixtures that every folder may use."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.append(str(Path(__file__).parent / "records"))  # made
settings.register_profile("suite", deadline=None)  # a slow machine is no failure
settings.load_profile("suite")


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a path so short that unix sockets fit below it."""
    folder = Path(tempfile.mkdtemp(prefix="o-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
