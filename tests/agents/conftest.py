"""The gateway of tests/gateway serves these tests too."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "gateway"))

from gateway_world import World


@pytest.fixture
def world(short_folder: Path) -> Callable[..., World]:
    return lambda **config: World(short_folder, **config)
