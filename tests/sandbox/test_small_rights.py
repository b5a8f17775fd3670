"""The same promises without privileges: as an ordinary user, and as a root who may not make control groups.

Each runs the suites themselves in a world of that kind: a mount namespace of its own, without control groups, where everybody sees the
Python of these tests, and for the ordinary user with a user id that owns nothing but one folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
USER = 54321
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("setpriv") is None,
    reason="needs root, unshare and setpriv to become somebody with smaller rights",
)

WORLD = """
set -e
mount -t tmpfs none /sys/fs/cgroup
top=$1 python=$2; shift 2
if [ -d "$top" ] && [ "$(stat -c %a "$top")" = 700 ]; then   # Python in root's own home: show it, and nothing else of it
    mount --bind "$python" /mnt
    mount -t tmpfs -o mode=755 none "$top"
    mkdir -p "$python"
    mount --bind /mnt "$python"
fi
cd "$FOLDER"
exec "$@"
"""
BECOME = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs")
LIMITS = "memory_hog_ends or fork_bomb_ends or one_refused or (ends_well and workspace)"
CORE = f"preflight or exit_codes or inputs_are_laid or stopped_sandbox or wall_clock or cancelling_while_it_runs or {LIMITS}"
SUITES = [str(ROOT / path) for path in ("tests/contract/test_sandbox_backend.py", "tests/hostile/test_limits.py")]


def run(who: str, folder: Path, *command: str, seconds: float = 55) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder that belongs to who runs it."""
    if who == "ordinary user":
        os.chown(folder, USER, USER)
    folder.chmod(0o755)
    base = Path(sys.base_prefix)
    world = ("unshare", "--mount", "--propagation", "private", "sh", "-c", WORLD, "sh", f"/{base.parts[1]}", str(base))
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder), "FOLDER": str(folder)}
    become = BECOME if who == "ordinary user" else ()
    return subprocess.run(
        [*world, *become, *command], env=env, capture_output=True, text=True, check=False, timeout=seconds
    )


def suites(who: str, folder: Path, *words: str, seconds: float = 55) -> None:
    done = run(
        who, folder,
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={folder}/t", f"--rootdir={ROOT}", *words),
        seconds=seconds,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.fixture
def folder(short_folder: Path) -> Path:
    return short_folder


@pytest.mark.parametrize(("who", "which"), [("ordinary user", CORE), ("root without control groups", LIMITS)])
def test_the_core_of_the_contract_holds(folder: Path, who: str, which: str) -> None:
    suites(who, folder, "-k", which, *SUITES)


def test_an_ordinary_user_tries_a_task(folder: Path) -> None:
    program = str(Path(sys.executable).with_name("orchestrate"))
    done = run("ordinary user", folder, program, "try", str(ROOT / "tasks/starter/config-v2"))
    assert done.returncode == 0, done.stdout + done.stderr
    (manifest,) = (folder / ".orchestrate/store/runs").glob("*/manifest.json")
    assert json.loads(manifest.read_text())["labels"]["limits"] == "sampled"
    assert manifest.stat().st_uid == USER


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("who", ["ordinary user", "root without control groups"])
def test_all_suites_hold(folder: Path, who: str) -> None:
    paths = [
        "tests/contract/test_sandbox_backend.py",
        "tests/hostile",
        "tests/sandbox",
        "tests/service",
        "tests/cheats",
    ]
    assert "passed" in suites(
        who,
        folder,
        "--deselect",
        "tests/sandbox/test_small_rights.py",
        *(str(ROOT / path) for path in paths),
        seconds=850,
    )


@pytest.mark.slow
def test_an_ordinary_user_submits_hidden_tests_and_cheats(folder: Path) -> None:
    program = str(Path(sys.executable).with_name("orchestrate"))
    suite, sloppy = str(ROOT / "tasks/starter"), str(ROOT / "manifests/agents/sloppy.yaml")
    words = ("--agent", "oracle", "--agent", sloppy, "--tasks", "csv-quoted-fields", "--samples", "1", "--json")
    done = run("ordinary user", folder, program, "submit", suite, *words)
    assert done.returncode == 0, done.stderr
    counts = {agent["agent"]: agent["counts"] for agent in json.loads(done.stdout)["agents"]}
    assert (counts["oracle"]["passed"], counts["sloppy"]["failed"]) == (1, 1)
