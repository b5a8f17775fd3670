"""The frozen clock as programs in a sandbox see it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from importlib.util import find_spec
from pathlib import Path

import pytest
from sandbox_world import run

from orchestrator.sandbox import clock

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
needs_library = pytest.mark.skipif(find_spec("libfaketime") is None, reason="the extra clock is not installed")
LOOK = """
import datetime, subprocess, time
a = time.monotonic()
print(datetime.datetime.now(datetime.UTC).date(), subprocess.run(["date", "-u", "+%F %H"], capture_output=True, text=True).stdout.strip())
time.sleep(0.2)
print(0.1 < time.monotonic() - a < 15)
"""


def test_programs_are_told_the_time_in_utc() -> None:
    elsewhere = NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert clock.told(elsewhere) == {"ORCHESTRATE_NOW": "2026-03-02T09:00:00Z", "SOURCE_DATE_EPOCH": "1772442000"}


@pytest.mark.parametrize(("offset", "word"), [(-90.4, "-90"), (-90.6, "-90"), (3600, "+3600"), (0.2, "+1")])
def test_the_clock_goes_on_from_where_it_begins(offset: float, word: str) -> None:
    assert clock.shown(offset)["FAKETIME"] == word


@needs_library
def test_programs_see_the_frozen_clock_and_it_goes_on(tmp_path: Path) -> None:
    seen = run("python3", "-c", LOOK, requires=("python3",), now=NOW)
    assert seen.labels["clock"] == "frozen"
    assert seen.output.splitlines() == ["2026-03-02 2026-03-02 09", "True"], seen.output
    assert abs(seen.ending.ended - time.time()) < 60  # ours is the real one


def test_without_a_clock_nothing_is_said_of_one() -> None:
    seen = run("sh", "-c", "date -u +%F; env")
    assert "clock" not in seen.labels
    assert "FAKETIME" not in seen.output
    assert seen.output.splitlines()[0] == datetime.now(UTC).date().isoformat()
