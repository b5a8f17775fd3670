"""Whole runs with a spending limit: met, raised, and held across a kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cli_world import clean_environment

SCRIPT = "conversations: [{turns: [{text: done, usage: {input: 0, output: 1000}}]}]\n"
"""One answer of 1,000 tokens; at 1,000 dollars for a million, it costs one."""
PRICE = "{input: 0, output: 1000}"
TASK = """id: one
instruction: Do it.
budgets: {max_wall_seconds: 3, max_cost_usd: 1.5}
checks: [{id: done, type: files, path: done, exists: true}]
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite of one task, an agent ``paid`` whose trials cost a dollar, and one that only sleeps but might spend as much."""
    (tmp_path / "suite/one").mkdir(parents=True)
    (tmp_path / "suite/suite.yaml").write_text("id: suite\n")
    (tmp_path / "suite/one/task.yaml").write_text(TASK)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/one.yaml").write_text(SCRIPT)
    models = "models: {main: scripted/m}\nscripts: scripts/\nprices: {scripted/m: " + PRICE + "}\n"
    (tmp_path / "paid.yaml").write_text(f"type: react\n{models}")
    (tmp_path / "asleep.yaml").write_text(f"type: command\ncommand: [sleep, '60']\n{models}")
    return tmp_path / "suite"


def records(folder: Path, pattern: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_bytes()) for path in sorted((folder / ".orchestrate/store").glob(pattern))]


def spent(folder: Path) -> float:
    return sum(outcome["usage"]["cost_nano_usd"] for outcome in records(folder, "outcomes/**/*.json")) / 1e9


@pytest.mark.long
@pytest.mark.timeout(200)
def test_a_run_stops_at_its_limit_and_goes_on_with_a_higher_one(orchestrate, suite: Path, tmp_path: Path) -> None:
    words = ("submit", suite, "--agent", "paid.yaml", "--samples", "6", "-n", "4", "--run-id", "r1", "--json")
    done = orchestrate(*words, "--max-cost", "3.2", timeout=100)
    assert done.returncode == 3, done.stderr
    assert spent(tmp_path) == 2  # a third launch might have cost up to 1.50
    assert "$2.00 of $3.20" in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("spending limit:")]
    assert "spending limit: $2.00 of $3.20 is spent, and one@paid:3 may cost up to $1.50; 4 trials are left" in line
    assert "resume r1 --max-cost 3.5, or more" in line
    counts = json.loads(done.stdout)["agents"][0]["counts"]
    assert (counts["planned"], counts["failed"], counts["missing"]) == (6, 2, 4)
    manifest = records(tmp_path, "runs/r1/manifest.json")[0]
    assert manifest["limits"] == {"trials": None, "cost_usd": 3.2}
    again = orchestrate("resume", "r1", "--max-cost", "50", "--json", timeout=100)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["agents"][0]["counts"]["failed"] == 6
    assert "$6.00 of $50.00" in again.stderr


@pytest.mark.long
@pytest.mark.timeout(200)
def test_a_limit_holds_across_a_kill_of_the_driver(orchestrate, suite: Path, tmp_path: Path) -> None:
    words = ("submit", suite, "--agent", "asleep.yaml", "--samples", "3", "-n", "2", "--run-id", "r1")
    command = [sys.executable, "-m", "orchestrator", *map(str, words), "--max-cost", "3.5"]
    driver = subprocess.Popen(command, cwd=tmp_path, env=clean_environment(), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 40
    while len(records(tmp_path, "leases/r1/reserved/**/*.json")) < 2:
        assert time.monotonic() < deadline
        assert driver.poll() is None
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert records(tmp_path, "outcomes/**/*.json") == []
    done = orchestrate("resume", "r1", timeout=100)
    assert done.returncode == 3, done.stderr
    assert "$0.00 of $3.50 is spent, $3.00 counts as spent for launches whose cost was never told" in done.stderr
    assert "3 trials are left" in done.stderr
    assert len(records(tmp_path, "leases/r1/reserved/**/*.json")) == 2  # nothing more was launched


class Paid(BaseHTTPRequestHandler):
    """A provider that charges a dollar for each answer, counts them, and takes its time."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.__dict__.setdefault("answers", []).append(self.path)
        time.sleep(0.05)
        message = {"role": "assistant", "content": None}
        call = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"command": "true"}'}}
        usage = {"prompt_tokens": 0, "completion_tokens": 1000, "total_tokens": 1000}
        choice = {"index": 0, "message": {**message, "tool_calls": [call]}, "finish_reason": "tool_calls"}
        body = json.dumps({"model": "m", "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("limit", ["7", "13"])
def test_a_provider_never_charges_more_than_the_limit(orchestrate, suite: Path, tmp_path: Path, limit: str) -> None:
    """Each trial asks without end: its own budget of 2.50 is met after three answers, half a dollar above it."""
    (suite / "one/task.yaml").write_text(TASK.replace("max_cost_usd: 1.5", "max_cost_usd: 2.5"))
    with ThreadingHTTPServer(("127.0.0.1", 0), Paid) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (tmp_path / "orchestrate.toml").write_text(
            f'[providers.local]\nbase_url = "http://127.0.0.1:{server.server_port}"\n'
            '[prices."local/m"]\ninput = 0\noutput = 1000\n'
        )
        words = ("submit", suite, "--model", "local/m", "--samples", "12", "-n", "4", "--yes", "--max-cost", limit)
        done = orchestrate(*words, timeout=150)
        charged = len(server.__dict__["answers"]) - 1  # without the probe
        server.shutdown()
    assert done.returncode == 3, done.stderr
    trials = len(records(tmp_path, "outcomes/**/*.json"))
    assert trials > 0
    assert charged == spent(tmp_path) == 3 * trials
    assert charged <= float(limit) + 0.5 * min(trials, 4)  # only by what was open when a budget was met
