"""The hostile programs run in the same small world as the sandbox's own tests, on every backend."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "sandbox"))

from sandbox_world import KINDS, use


@pytest.fixture(params=KINDS, autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The backend that the program runs on."""
    return use(request.param, monkeypatch)
