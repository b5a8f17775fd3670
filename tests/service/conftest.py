from __future__ import annotations

from pathlib import Path

import pytest
from grader_world import GraderWorld


@pytest.fixture
def world(short_folder: Path) -> GraderWorld:
    return GraderWorld(short_folder)
