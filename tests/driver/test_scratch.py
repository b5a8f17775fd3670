"""The scratch folder: gone after its process, however that ended, and never while it is used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from orchestrator.driver.scratch import scratch_folder
from orchestrator.settings import Settings

KILLED = """
import os, signal, sys
from pathlib import Path
from orchestrator.driver.scratch import scratch_folder
from orchestrator.settings import Settings
with scratch_folder(Settings(scratch=Path(sys.argv[1]))) as folder:
    (folder / "sandboxes").mkdir()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    os.symlink(tmp_path, tmp_path / "orch-link")
    (tmp_path / "orch-of-somebody-else").mkdir()
    # Long paths go to the system's temporary folder; a link makes this one short.
    short = Path("/tmp") / f"o{os.getpid()}"
    short.symlink_to(tmp_path)
    try:
        settings = Settings(scratch=short)
        subprocess.run([sys.executable, "-c", KILLED, str(short)], check=False)
        left = {path.name for path in tmp_path.iterdir()} - {"orch-link", "orch-of-somebody-else"}
        assert len(left) == 1
        with scratch_folder(settings) as one, scratch_folder(settings) as other:
            assert one.is_dir()
            assert other.is_dir()
            assert not (tmp_path / left.pop()).exists()
        assert {path.name for path in tmp_path.iterdir()} == {"orch-link", "orch-of-somebody-else"}
    finally:
        short.unlink()
