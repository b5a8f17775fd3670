"""A reader that leaves, a closed or full output, a locale without letters: the work is done and the exit code is its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_world import STARTER, clean_environment

COMMAND = f"{sys.executable} -m orchestrator"
RUN = f"submit {STARTER} --agent nop --samples 1 --tasks config-v2 --run-id one"


def shell(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**clean_environment(), **variables}
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=50, check=False
    )


def gone(words: str) -> str:
    """Run with a standard output whose reader has left, and end with the command's own code."""
    return f"{COMMAND} {words} > >(exec 0<&-; exec 1>&-; sleep 1) ; code=$?; exit $code"


@pytest.mark.parametrize("words", ["--help", "schema", "schema task"])
def test_a_reader_that_has_left_is_no_failure(words: str, tmp_path: Path) -> None:
    done = shell(gone(words), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_output_is_our_failure_in_one_line(tmp_path: Path) -> None:
    done = shell(f"{COMMAND} schema > /dev/full", tmp_path)
    assert done.returncode == 5
    assert done.stderr.startswith("standard output cannot be written: No space left on device")
    assert "Traceback" not in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("ways", ["2>/dev/full", "0<&- 1>&- 2>&-", "2> >(exec 0<&-; exec 1>&-; sleep 1)"])
def test_a_run_does_not_need_anybody_to_watch_it(ways: str, tmp_path: Path) -> None:
    assert shell(f"{COMMAND} {RUN} {ways}", tmp_path).returncode == 0
    assert len(list(tmp_path.glob(".orchestrate/store/grades/one/*/*.json"))) == 1


def test_letters_that_the_locale_lacks_are_escaped(tmp_path: Path) -> None:
    done = shell(f"{COMMAND} report züri", tmp_path, PYTHONIOENCODING="ascii:strict", LC_ALL="C")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
