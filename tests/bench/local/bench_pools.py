"""``nop`` trials through four supervisors of ``--pool ray`` and inline: trials per minute as a ratio, and memory as the run goes on.

Run with ``python tests/bench/local/bench_pools.py [TRIALS]`` (an even number). Nothing is asserted about time; a lost trial fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[3]
SUPERVISORS = 4
AT_ONE_TIME = 8
NAMES = {"ray::Coordinator": "coordinator", "ray::Supervisor": "supervisors"}


def make_suite(folder: Path) -> Path:
    """One cheap task under two ids: a suite may have at most 1,000 trials of each."""
    suite = folder / "suite"
    for name in ("config-v2", "config-v3"):
        shutil.copytree(ROOT / "tasks/starter/config-v2", suite / name)
        text = (suite / name / "task.yaml").read_text()
        (suite / name / "task.yaml").write_text(re.sub(r"(?m)^id: .*$", f"id: {name}", text))
    shutil.copy(ROOT / "tasks/starter/suite.yaml", suite / "suite.yaml")
    return suite


def memory(driver: int) -> dict[str, float]:
    """Return MiB that are resident and not shared, of the driver, the coordinator and the largest supervisor."""
    found: dict[str, float] = {"driver": private(driver)}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                title = (entry / "cmdline").read_bytes().decode(errors="replace")
                for start, name in NAMES.items():
                    if title.startswith(start) and descends(int(entry.name), driver):
                        found[name] = max(found.get(name, 0), private(int(entry.name)))
    return {name: round(size, 1) for name, size in found.items()}


def private(pid: int) -> float:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE") / 2**20


def descends(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid == ancestor


def run(pool: str, trials: int, folder: Path) -> dict[str, object]:
    """Run them all and return what was seen."""
    folder.mkdir()
    suite = make_suite(folder)
    words = ("--agent", "nop", "--samples", str(trials // 2), "--pool", pool, "-n", str(AT_ONE_TIME), "--run-id", "b")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ORCHESTRATE_SUPERVISORS": str(SUPERVISORS)}
    command = [sys.executable, "-m", "orchestrator", "submit", str(suite), *words, "--json"]
    with (folder / "report").open("wb") as report, (folder / "log").open("wb") as log:
        driver = subprocess.Popen(command, cwd=folder, env=environment, stdout=report, stderr=log)
        marks, seen = [trials // 4, trials // 2, trials * 95 // 100], {}
        first = 0.0
        while driver.poll() is None:
            time.sleep(1)
            count = sum(1 for _ in (folder / ".orchestrate/store/grades/b").glob("*/*.json"))
            first = first or (time.monotonic() if count else 0.0)
            if marks and count >= marks[0]:
                seen[marks.pop(0)] = memory(driver.pid)
            if count >= trials:
                break
        seconds = time.monotonic() - first
    if driver.wait() != 0:
        sys.exit((folder / "log").read_text())
    counts = json.loads((folder / "report").read_text())["agents"][0]["counts"]
    if (counts["planned"], counts["failed"]) != (trials, trials):
        sys.exit(f"trials were lost: {counts}")
    return {"trials_per_minute": round(trials / seconds * 60, 1), "mib": seen}


def main() -> None:
    """Print both and their ratio as JSON."""
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with tempfile.TemporaryDirectory(prefix="bench-pools-") as scratch:
        found = {pool: run(pool, trials, Path(scratch) / pool) for pool in ("ray", "inline")}
    rates = {pool: float(str(each["trials_per_minute"])) for pool, each in found.items()}
    print(json.dumps({**found, "ratio": round(rates["ray"] / rates["inline"], 3)}, indent=2))


if __name__ == "__main__":
    main()
