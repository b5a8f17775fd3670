"""A gateway in a short folder; what may be changed about it are the fields of its configuration."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from gateway_world import World
from tcp_world import PodWorld

sys.path.insert(0, str(Path(__file__).parent.parent / "storage"))
sys.path.insert(0, str(Path(__file__).parent / "dialects"))

from s3_world import s3_url, seaweed

__all__ = ["s3_url", "seaweed"]


@pytest.fixture
def world(short_folder: Path) -> Callable[..., World]:
    return lambda **config: World(short_folder, **config)


@pytest.fixture
def pods(short_folder: Path) -> Callable[..., PodWorld]:
    """The same for a gateway that serves pods."""
    return lambda **config: PodWorld(short_folder, **config)


@pytest.fixture(params=[World, PodWorld], ids=["machine", "pod"])
def either(request: pytest.FixtureRequest, short_folder: Path) -> Callable[..., World]:
    """Both kinds: what an agent may do is the same."""
    return lambda **config: request.param(short_folder, **config)
