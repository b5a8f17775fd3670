from __future__ import annotations

from pathlib import Path

import pytest
from sandbox_world import KINDS, FakeGateway, use


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The backend of a test that is about all of them."""
    return use(request.param, monkeypatch)


@pytest.fixture
def gateway(short_folder: Path) -> FakeGateway:
    return FakeGateway(short_folder)


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """A small workspace."""
    folder = tmp_path / "given"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("a = 1\n")
    (folder / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "old.txt").write_text("old\n")
    (folder / "link").symlink_to("src/a.py")
    return folder
