from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "kubernetes"))
sys.path.insert(0, str(Path(__file__).parent.parent / "pod"))

from grader_world import GraderWorld

from grader_service.programs import Programs, lay_programs, warm_packages


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    warm_packages()
    return lay_programs(tmp_path_factory.mktemp("programs"))


@pytest.fixture
def world(short_folder: Path, programs: Programs) -> GraderWorld:
    return GraderWorld(short_folder, programs)
