"""A signal before any trial runs: the command ends at once, says so, and leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from cli_world import STARTER, clean_environment


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_services_start(number: signal.Signals, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="o-") as scratch:
        running = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", "submit", str(STARTER), "--agent", "nop"],
            cwd=tmp_path,
            env={**clean_environment(), "ORCHESTRATE_SCRATCH": scratch},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert running.stderr is not None
        assert "trials on bubblewrap" in running.stderr.readline()
        running.send_signal(number)
        printed, said = running.communicate(timeout=40)
        assert running.returncode == 130
        assert "stopped at once. Nothing was started." in said
        assert printed == ""
        assert list(Path(scratch).iterdir()) == []
    assert not (tmp_path / ".orchestrate/store/runs").exists()
