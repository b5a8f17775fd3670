from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "service"))

from grader_world import GraderWorld  # noqa: E402


@pytest.fixture
def world(short_folder: Path) -> GraderWorld:
    return GraderWorld(short_folder)
