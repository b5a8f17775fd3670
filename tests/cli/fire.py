"""Runs under fire: real processes that are killed or stopped, and what must be true of their store and of the machine afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from cli_world import DEMO, clean_environment

from orchestrator.records.ids import launch_id
from orchestrator.storage.open import open_store

WORDS = ("--samples", "2", "--tasks", "config-v2", "--tasks", "board-figure", "-n", "2")
TRIALS = 12  # 2 tasks x 3 agents x 2 samples
EXPECTED = {
    **dict.fromkeys(("config-v2@oracle", "config-v2@careful", "config-v2@sloppy"), "passed"),
    **dict.fromkeys(("board-figure@oracle", "board-figure@careful"), "passed"),
    "board-figure@sloppy": "failed",
}


class Battle:
    """One run in one folder, everything that it may write included."""

    def __init__(self, folder: Path, url: str = "", **variables: str) -> None:
        self.folder = folder
        self.url = url
        self.run_id = f"fire-{uuid.uuid4().hex[:8]}"  # a launch's name, and that of its groups, comes from it
        self.store = folder / "store"
        self.scratch = Path("/tmp") / self.run_id
        places = {name: str(folder / name.lower()) for name in ("STORE", "CACHE", "LOGS")}
        places |= {"STORE": url} if url else {}
        settings = {**places, "SCRATCH": str(self.scratch), "MAX_LAUNCHES": "20"}
        self.environment = {
            **clean_environment(),
            **{f"ORCHESTRATE_{name}": value for name, value in settings.items()},
            **variables,
            "FIRE": str(folder),  # by which every process of this run is found
        }
        self.more_words: tuple[str, ...] = ()
        """Added to ``submit``."""
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str | Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "orchestrator", *map(str, words)]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=log, stderr=log)
        self.started.append(process)
        return process

    def submit(self) -> subprocess.Popen[bytes]:
        return self.start("submit", DEMO, *WORDS, "--run-id", self.run_id, *self.more_words)

    def resume(self) -> subprocess.Popen[bytes]:
        return self.start("resume", self.run_id)

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "orchestrator", *map(str, words)]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=300, check=False
        )

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()[-6000:]

    def objects(self) -> dict[str, bytes]:
        """Return every object of the store."""
        if self.url:
            return asyncio.run(_download(self.url))
        return {
            str(path.relative_to(self.store)): path.read_bytes()
            for path in sorted(self.store.rglob("*"))
            if path.is_file()
        }

    def has_run(self) -> bool:
        """Return whether the run was submitted."""
        return f"runs/{self.run_id}/manifest.json" in self.objects()

    def end(self) -> None:
        """Kill what is left of it."""
        for process in self.started:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
                    process.kill()
                process.wait()
        for path in self.scratch.glob("*"):
            subprocess.run(["rm", "-rf", str(path)], check=False)
        with contextlib.suppress(OSError):
            self.scratch.rmdir()

    def processes(self) -> dict[int, str]:
        """Return the living processes of this run, ours, services and keepers: by their environment, or by their parent."""
        found = {}
        for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                mine = f"FIRE={self.folder}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
                if command and (mine or str(self.scratch).encode() in command):
                    found[pid] = command.replace(b"\0", b" ").decode(errors="replace")[:200]
        return found


async def _download(url: str) -> dict[str, bytes]:
    store = open_store(url)
    return {key: await store.get(key) for key in await store.list("")}


def descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def await_that(true: Callable[[], object], seconds: float = 60) -> bool:
    """Wait until a call returns something true."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def records(objects: Mapping[str, bytes], kind: str) -> Iterator[dict]:
    for key, data in objects.items():
        if key.startswith(f"{kind}/") and key.endswith(".json") and "/tries/" not in key:
            yield json.loads(data)


def check_result(objects: Mapping[str, bytes], told: str) -> None:
    """The trials of the run, one result each, launches without gaps, the verdicts that they always have."""
    launches: dict[str, list[dict]] = {}
    for outcome in records(objects, "outcomes"):
        launches.setdefault(outcome["trial"], []).append(outcome)
    assert len(launches) == TRIALS, told
    for trial, each in launches.items():
        each.sort(key=lambda outcome: outcome["launch"])
        assert [outcome["launch"] for outcome in each] == list(range(1, len(each) + 1)), (trial, told)
        classes = [outcome["outcome_class"] for outcome in each]
        assert (classes.count("result"), classes[-1]) == (1, "result"), (trial, classes, told)
    verdicts = [(verdict["trial"], verdict["result"]) for verdict in records(objects, "grades")]
    assert len(verdicts) == TRIALS, told
    assert dict(verdicts) == {trial: EXPECTED[trial.rsplit(":", 1)[0]] for trial in launches}, told


def check_rows(battle: Battle) -> None:
    """The dataset has the run, and what is made anew from its records is the same."""
    query = "SELECT * FROM trials ORDER BY ALL"
    before = battle.run("query", query, "--json")
    assert before.returncode == 0, before.stderr
    rebuilt = battle.run("rebuild", battle.run_id)
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert battle.run("query", query, "--json").stdout == before.stdout
    assert before.stdout.count(f'"{battle.run_id}"') >= TRIALS


def check_nothing_left(battle: Battle) -> None:
    """No process, mount, folder or group with processes of the run is left on the machine."""
    assert await_that(lambda: not battle.processes(), 20), battle.processes()
    assert str(battle.scratch) not in Path("/proc/mounts").read_text()
    assert not list(battle.scratch.iterdir())
    names = {launch_id(battle.run_id, trial, n) for trial in _trials() for n in range(1, 21)}
    groups = [path for path in Path("/sys/fs/cgroup").rglob("orchestrate.*") if path.name.rpartition(".")[2] in names]
    assert not [path for path in groups if (path / "cgroup.procs").read_text()]
    assert not list((battle.folder / "cache").rglob("*.tmp"))


def _trials() -> list[str]:
    return [f"{pair}:{sample}" for pair in EXPECTED for sample in (1, 2)]
