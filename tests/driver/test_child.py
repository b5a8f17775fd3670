"""A service dies with its driver, comes back when it dies alone, and tells why it does not start."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from orchestrator.driver.child import Child
from orchestrator.errors import InfrastructureError

SERVICE = 'import sys,os; sys.stdin.readline(); print(\'{"ready": true, "pid": %d}\' % os.getpid(), flush=True); sys.stdin.read()'


def test_it_ends_with_its_context(tmp_path: Path) -> None:
    async def run() -> int:
        async with Child("service", ["-c", SERVICE], {"secret": "s3cret"}, tmp_path / "log") as child:
            os.kill(child.greeting["pid"], 0)
            return child.greeting["pid"]

    pid = asyncio.run(run())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_it_is_started_again_when_it_is_killed(tmp_path: Path) -> None:
    async def run() -> tuple[int, int]:
        async with Child("service", ["-c", SERVICE], {}, tmp_path / "log") as child:
            first = child.greeting["pid"]
            os.kill(first, signal.SIGKILL)
            while child.greeting["pid"] == first:
                await asyncio.sleep(0.01)
                await child.ready()
            return first, child.greeting["pid"]

    first, second = asyncio.run(run())
    assert first != second


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    async def run() -> None:
        async with Child("service", ["-c", SERVICE], {}, tmp_path / "absent/log"):
            pass

    with pytest.raises(InfrastructureError, match="absent/log of the service cannot be written: No such file"):
        asyncio.run(run())


def test_a_service_that_is_killed_while_it_starts_again_comes_back_all_the_same(tmp_path: Path) -> None:
    code = f"""
import os, pathlib
starts = pathlib.Path({str(tmp_path / "starts")!r})
starts.write_text(starts.read_text() + "x" if starts.exists() else "x")
if len(starts.read_text()) in (2, 3):
    os.kill(os.getpid(), 9)
{SERVICE}
"""

    async def run() -> int:
        async with Child("service", ["-c", code], {}, tmp_path / "log") as child:
            os.kill(child.greeting["pid"], signal.SIGKILL)
            while len((tmp_path / "starts").read_text()) < 4:
                await asyncio.sleep(0.02)
            await child.ready()
            return child.greeting["pid"]

    assert asyncio.run(run()) > 0


def test_a_service_that_does_not_start_tells_why(tmp_path: Path) -> None:
    async def run() -> None:
        (tmp_path / "log").write_text("an earlier run ended well\n")
        async with Child("service", ["-c", "raise SystemExit('no disk left')"], {"key": "s3cret"}, tmp_path / "log"):
            pass

    with pytest.raises(InfrastructureError, match="the service did not start: no disk left") as raised:
        asyncio.run(run())
    assert "s3cret" not in str(raised.value)
    assert raised.value.cause == "service_not_started"


def test_a_folder_of_the_user_is_not_taken_for_code_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs.py").write_text(SERVICE)
    monkeypatch.chdir(tmp_path)

    async def run() -> None:
        async with Child("theirs", ("-m", "theirs"), {}, tmp_path / "log"):
            pass

    with pytest.raises(InfrastructureError, match="No module named theirs"):
        asyncio.run(run())
