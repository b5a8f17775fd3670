"""A gateway in a short folder; what may be changed about it are the fields of GatewayConfig."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from gateway_world import World


@pytest.fixture
def world(short_folder: Path) -> Callable[..., World]:
    return lambda **config: World(short_folder, **config)
