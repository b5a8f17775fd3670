"""The hostile programs run in the same small world as the sandbox's own tests, on every backend."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "sandbox"))

import sandbox_world


@pytest.fixture(params=["bubblewrap", pytest.param("container", marks=pytest.mark.container)], autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The backend that the program runs on."""
    if request.param == "container":
        from container_world import image

        image()  # skips where there is no engine
    monkeypatch.setattr(sandbox_world, "KIND", request.param)
    return request.param
