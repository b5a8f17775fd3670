"""The real date in what an agent sends, when its task has another: found however it is written, and nothing else."""

from __future__ import annotations

import asyncio
import email.utils
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.gateway.real_dates import KnownDays, RealDates
from orchestrator.gateway.wire import BundleName, LaunchBody
from orchestrator.spec.task import Budgets

REAL = datetime(2026, 12, 1, 11, 3, 6, tzinfo=UTC)
FROZEN = datetime(2026, 6, 9, 15, 0, tzinfo=UTC)


def found(text: str, frozen: datetime = FROZEN, real: datetime = REAL) -> str | None:
    return RealDates(frozen, real.timestamp).found_in(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "2026-12-01", "it is 2026-12-01T11:03:06Z", "2026/12/01", "20261201T110306", "1.12.2026", "01.12.2026", "12/1/2026", "01/12/2026",
        "1 December 2026", "1st of Dec", "Dec 1, 2026", "december 1st, 2026", "Tue Dec  1 11:03:06 UTC 2026", "Tue Dec  1 11:03:06 2026",
        "Tue, 01 Dec 2026 11:03:06 GMT", "01-Dec-2026", '{"at": 1796123000}', "1796123000.25", "1796123000123", "2026-11-30", "2026-12-02",
        r'"a line\nDec 1, 2026"',
    ],
)  # fmt: skip
def test_the_real_date_is_found_in_the_forms_that_are_written(text: str) -> None:
    assert (found(text) is not None) is (text != "1st of Dec"), text


@pytest.mark.parametrize(
    "text",
    [
        "2026-06-09", "9 June 2026", "2025-12-01", "2026-12-11", "12026-12-01", "2026-12-011", "11.12.2026", "11/1/2026", "111/12/2026",
        "December 2026", "1 December", "Dec 12, 2026", "1781017200", "17961230001", "179612300", "order 4120261201", "", "no date at all",
    ],
)  # fmt: skip
def test_other_dates_and_numbers_are_not(text: str) -> None:
    assert found(text) is None, text


@pytest.mark.parametrize("hours", [0, 20, -20])
def test_a_clock_that_begins_about_now_has_nothing_to_hide(hours: int) -> None:
    assert found("2026-12-01", REAL + timedelta(hours=hours)) is None


def test_another_day_is_another_date() -> None:
    real = [REAL.timestamp()]
    dates = RealDates(FROZEN, lambda: real[0])
    assert dates.found_in(b"2026-12-01")
    real[0] += 3 * 86_400
    assert dates.found_in(b"2026-12-01") is None
    assert dates.found_in(b"2026-12-04") == "2026-12-04"


@given(st.integers(min_value=1_610_000_000, max_value=3_780_000_000))
def test_what_python_writes_of_any_day_is_found(seconds: int) -> None:
    real = datetime.fromtimestamp(seconds, UTC)
    frozen = real - timedelta(days=400)
    for text in (
        real.isoformat(), email.utils.format_datetime(real), real.ctime(), str(real.timestamp()), f"{real:%B %d, %Y}", f"{real:%d.%m.%Y}",
    ):  # fmt: skip
        assert found(text, frozen, real) is not None, text


@pytest.mark.parametrize(("says", "leaks"), [("it is {real}", 2), ("it is 2020-02-03", 0)])
def test_a_request_and_a_call_that_carry_it_are_findings(world, says: str, leaks: int) -> None:
    async def live():
        async with world().running() as here:
            inside = await here.launch(now=datetime(2020, 2, 3, tzinfo=UTC), scripts=None, models={})
            text = says.format(real=datetime.now(UTC).date().isoformat())
            await inside.ask("POST", "/tools/finish", {"status": "completed", "message": text})
            return await here.client.seal(inside.launch)

    kinds = [finding.type for finding in asyncio.run(live()).findings]
    assert kinds.count("clock_leak") == bool(leaks)


def launch_body(**more: Any) -> LaunchBody:
    return LaunchBody(
        run="r", trial="t@a:1", launch=1, epoch=1, budgets=Budgets(), models={}, prices={}, seed=1, task="t", **more
    )


class Folders:
    """Bundles that lie in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fetched: list[str] = []

    async def fetch(self, audience: str, digest: str) -> Path:
        self.fetched.append(f"{audience} {digest}")
        return self.folder / digest


@pytest.mark.parametrize(
    ("holder", "written", "says", "leaks"),
    [
        ("task", "due on Dec 1, 2026", "2026-12-01", False),
        ("task", "due on Dec 1, 2026", "2026-12-02", True),
        ("task", "due on Dec 1, 2027", "2026-12-01", True),
        ("world", "INSERT INTO due VALUES ('2026-12-02')", "Dec 2, 2026", False),
        ("agent", "made 2026-12-01", "2026-12-01", True),
        ("task", "x" * ((1 << 20) - 5) + " 2026-12-01 ", "2026-12-01", False),
    ],
)
def test_days_of_the_task_s_own_files_are_no_leak(
    tmp_path: Path, holder: str, written: str, says: str, leaks: bool
) -> None:
    for each in ("task", "world", "agent"):
        (tmp_path / each / "some").mkdir(parents=True)
        (tmp_path / each / "some/file.txt").write_text(written if each == holder else "nothing")
        (tmp_path / each / "link").symlink_to("/dev/zero")
    bundles = (BundleName(audience="sandbox", digest="task"), BundleName(audience="sandbox", digest="agent"))
    body = launch_body(now=FROZEN, world="world", bundles=bundles)
    folders = Folders(tmp_path)
    known = KnownDays(cast("Any", folders), REAL.timestamp)

    async def twice() -> RealDates | None:
        await known.dates(body)
        return await known.dates(body)

    dates = asyncio.run(twice())
    assert dates is not None
    assert (dates.found_in(says.encode()) is not None) is leaks
    assert folders.fetched == ["world world", "sandbox task"]
    assert asyncio.run(known.dates(launch_body())) is None


def test_a_long_text_takes_no_long_time() -> None:
    dates = RealDates(FROZEN, REAL.timestamp)
    began = time.process_time()
    assert dates.found_in(b"17961 2026-12- Dec 1, " * 100_000) is None
    assert time.process_time() - began < 10  # 2 MB; a search that goes back and forth takes hours
