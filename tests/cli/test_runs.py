"""Whole runs from the command line: what is promised of oracle, nop, repetition, interruption and resumption."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cli_world import DEMO, STARTER, clean_environment

from orchestrator.records import keys
from orchestrator.spec.load import load_suite


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(240)
def test_the_demo_tells_solutions_from_tricks_and_from_nothing(orchestrate) -> None:
    agents = ("--agent", "oracle", "--agent", "careful", "--agent", "sloppy", "--agent", "nop")
    done = orchestrate("submit", DEMO, *agents, "--samples", "1", "--json", timeout=220)
    oracle, careful, sloppy, nop = report_of(done)["agents"]
    assert oracle["agent"] == "oracle"
    assert oracle["counts"]["planned"] == oracle["counts"]["passed"] == 12
    assert oracle["pass_rate"]["value"] == 1
    assert careful["counts"]["passed"] >= 9
    assert sloppy["counts"]["passed"] == 1  # the one task that it does honestly
    assert sloppy["termination_reason"]["step_cap"] == 1
    assert nop["counts"]["failed"] == 12
    assert nop["pass_rate"]["value"] == 0
    assert nop["termination_reason"] == {"completed": 12}
    assert all(
        agent["counts"]["infra"] == agent["counts"]["grader_error"] == 0 for agent in (oracle, careful, sloppy, nop)
    )
    assert "48 trials" in done.stderr  # progress and announcements never mix with the report


VOLATILE = {"run", "created_at", "cost_seconds", "latency_s", "waiting_s"}


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_times(item) for name, item in value.items() if name not in VOLATILE}
    return [without_times(item) for item in value] if isinstance(value, list) else value


@pytest.mark.long
@pytest.mark.timeout(120)
def test_the_same_submission_twice_gives_the_same_report(orchestrate) -> None:
    careful = STARTER.parents[1] / "manifests/agents/careful.yaml"
    tasks = ("--tasks", "config-v2", "--tasks", "refund-over-limit")
    words = ("submit", STARTER, "--agent", careful, "--agent", "nop", "--samples", "2", *tasks, "--json")
    first, second = (report_of(orchestrate(*words, timeout=60)) for _ in range(2))
    assert first["run"] != second["run"]
    assert without_times(first) == without_times(second)
    costs = [agent["cost_usd"]["total"] for agent in first["agents"]]
    assert costs[0] > 0
    assert costs[1] == 0


class Running:
    """``orchestrate submit`` as a process that can be interrupted."""

    def __init__(self, folder: Path, *words: str | Path) -> None:
        command = [sys.executable, "-m", "orchestrator", "submit", *map(str, words)]
        self.folder = folder
        self.process = subprocess.Popen(
            command, cwd=folder, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def wait_for_outcomes(self, count: int) -> None:
        deadline = time.monotonic() + 40
        while len(self.outcomes()) < count:
            assert time.monotonic() < deadline
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.02)

    def outcomes(self) -> list[Path]:
        return sorted((self.folder / ".orchestrate/store/outcomes").rglob("*.json"))


def is_running(*command: str) -> bool:
    wanted = b"".join(word.encode() + b"\0" for word in command)
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "cmdline").read_bytes() == wanted:
                return True
    return False


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 40
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def slow_agent(folder: Path, seconds: float) -> Path:
    path = folder / "slow.yaml"
    path.write_text(f'type: command\ncommand: [sleep, "{seconds}"]\n')
    return path


@pytest.mark.timeout(120)
def test_an_interrupt_stops_in_order_and_resume_runs_the_rest(orchestrate, tmp_path: Path) -> None:
    agent = slow_agent(tmp_path, 3.17)
    running = Running(
        tmp_path, STARTER, "--agent", agent, "--samples", "3", "--tasks", "board-figure", "-n", "2", "--run-id", "r1"
    )
    until(lambda: is_running("sleep", "3.17"))
    running.process.send_signal(signal.SIGINT)
    _, stderr = running.process.communicate(timeout=30)
    assert running.process.returncode == 130, stderr
    assert not is_running("sleep", "3.17")
    assert "orchestrate resume r1" in stderr
    cancelled = [path for path in running.outcomes() if json.loads(path.read_bytes())["outcome_class"] == "cancelled"]
    assert cancelled
    assert all(json.loads(path.read_bytes())["state"] is not None for path in cancelled)  # what ran was frozen

    done = orchestrate("resume", "r1", "--json")
    assert "starter: 1 task x 1 agent (slow) = 3 trials on bubblewrap" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("3/3  "), done.stderr
    assert done.stderr.count("3/3  ") == 1
    (agent_,) = report_of(done)["agents"]
    assert agent_["counts"]["planned"] == agent_["counts"]["failed"] == 3
    assert agent_["counts"]["cancelled"] == 0


@pytest.mark.timeout(120)
def test_a_killed_driver_takes_everything_along_and_loses_nothing(orchestrate, tmp_path: Path) -> None:
    agent = slow_agent(tmp_path, 0.37)
    running = Running(
        tmp_path, STARTER, "--agent", agent, "--samples", "6", "--tasks", "board-figure", "-n", "2", "--run-id", "r1"
    )
    running.wait_for_outcomes(2)
    os.kill(running.process.pid, signal.SIGKILL)
    running.process.communicate()
    until(lambda: not is_running("sleep", "0.37"))
    before = {path: path.read_bytes() for path in running.outcomes()}
    done = orchestrate("resume", "r1", "--json")
    (agent_,) = report_of(done)["agents"]
    assert agent_["counts"]["planned"] == agent_["counts"]["failed"] == 6
    assert all(path.read_bytes() == data for path, data in before.items())
    results = [json.loads(path.read_bytes()) for path in running.outcomes()]
    assert sorted(o["trial"] for o in results if o["outcome_class"] == "result") == [
        f"board-figure@slow:{n}" for n in range(1, 7)
    ]


@pytest.mark.timeout(60)
def test_try_shows_one_trial_and_says_by_its_exit_code_whether_it_passed(orchestrate) -> None:
    good = orchestrate("try", STARTER / "config-v2")
    assert good.returncode == 0, good.stderr
    assert re.search(r"config-v2@oracle:1\s+passed", good.stdout)
    bad = orchestrate("try", STARTER / "config-v2", "--agent", "nop")
    assert bad.returncode == 1
    assert "FAIL" in bad.stdout


@pytest.mark.long
@pytest.mark.timeout(60)
def test_validate_names_a_task_that_measures_nothing(orchestrate, tmp_path: Path) -> None:
    task = tmp_path / "suite/anything-goes"
    (task / "workspace").mkdir(parents=True)
    (task / "workspace/a.txt").write_text("a")
    (task / "solution/wrong-idle").mkdir(parents=True)
    (task / "solution/solve.sh").write_text("true\n")
    (task / "solution/wrong-idle/solve.sh").write_text("# fails: there\ntrue\n")
    (tmp_path / "suite/suite.yaml").write_text("id: suite\n")
    check = "checks: [{id: there, type: files, path: a.txt}]"
    (task / "task.yaml").write_text(f"id: anything-goes\ninstruction: Do something.\n{check}\n")
    done = orchestrate("validate", "suite", "--json")
    assert done.returncode == 1, done.stderr
    (proof,) = json.loads(done.stdout)["tasks"]
    assert (proof["ok"], proof["oracle"], proof["nop"]) == (False, "passed", "passed")
    assert proof["wrong"] == [{"name": "idle", "result": "passed", "failed_checks": []}]
    assert len(proof["problems"]) == 2
    shown = orchestrate("validate", "suite").stdout
    assert "doing nothing must fail, but it passed: the checks ask for no work" in shown
    assert "orchestrate try suite/anything-goes --agent wrong/idle\n" in shown


@pytest.mark.timeout(60)
def test_a_run_id_is_used_once(orchestrate) -> None:
    words = ("submit", STARTER, "--agent", "nop", "--samples", "1", "--tasks", "board-figure", "--run-id", "mine")
    assert orchestrate(*words).returncode == 0
    again = orchestrate(*words)
    assert again.returncode == 2
    assert "there is a run of that name" in again.stderr


@pytest.mark.timeout(60)
def test_a_dry_run_starts_nothing(orchestrate, tmp_path: Path) -> None:
    done = orchestrate("submit", STARTER, "--agent", "nop", "--dry-run")
    assert done.returncode == 0
    assert "12 tasks x 1 agent (nop) = 60 trials" in done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["task", "nop", "trials"]
    assert ["config-v2", "5", "5"] in lines
    assert lines[-1] == ["all", "60", "60"]
    assert not (tmp_path / ".orchestrate/store/runs").exists()


@pytest.mark.long
@pytest.mark.timeout(60)
def test_trials_lost_for_our_reasons_show_in_the_exit_code(orchestrate, tmp_path: Path) -> None:
    bundle = next(task for task in load_suite(STARTER).tasks if task.task.id == "board-figure").bundles.sandbox
    spoilt = tmp_path / ".orchestrate/store" / keys.bundle("sandbox", bundle.digest)
    spoilt.parent.mkdir(parents=True)
    spoilt.write_bytes(b"no tar")
    done = orchestrate("submit", STARTER, "--agent", "nop", "--samples", "1", "--tasks", "board-figure", "--json")
    assert done.returncode == 5
    assert "1 trial has used its 3 launches, lost for our reasons: board-figure@nop:1\n" in done.stderr
    assert "measure it again with: " in done.stderr
    assert json.loads(done.stdout)["agents"][0]["counts"]["infra"] == 1
    again = orchestrate("resume", "last", "--json")
    assert again.returncode == 5
    assert "nothing was left to do" in again.stderr
    assert "1 trial has used its 3 launches" in again.stderr


@pytest.mark.long
@pytest.mark.timeout(60)
def test_a_disk_of_ours_that_fails_pauses_and_uses_up_no_launch(orchestrate, tmp_path: Path) -> None:
    (tmp_path / "orchestrate.toml").write_text('cache = "/dev/null/cache"\n')
    words = ("submit", STARTER, "--agent", "nop", "--samples", "1", "--tasks", "board-figure", "--run-id", "r1")
    done = orchestrate(*words)
    assert done.returncode == 5
    assert "free space or name another cache folder\n(infrastructure: bundle_cache)\nGo on with: " in done.stderr
    (tmp_path / "orchestrate.toml").unlink()
    assert orchestrate("resume", "r1").returncode == 0
    assert [path.name for path in (tmp_path / ".orchestrate/store/outcomes").rglob("*.json")] == ["1.json"]


class RefusesEveryKey(BaseHTTPRequestHandler):
    """A provider that repeats the key it does not know."""

    def do_POST(self) -> None:
        body = json.dumps({"error": {"message": f"unknown key {self.headers['Authorization']}"}}).encode()
        self.answer(401, body)

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


class RefusesAllButTheFirst(RefusesEveryKey):
    """A provider whose key is withdrawn right after the first call."""

    def do_POST(self) -> None:
        asked = self.server.__dict__.setdefault("asked", [])
        asked.append(self.path)
        if len(asked) > 1:
            super().do_POST()
        else:
            message = {"role": "assistant", "content": "ok"}
            self.answer(200, json.dumps({"choices": [{"index": 0, "message": message}]}).encode())


def submit_to(handler: type[BaseHTTPRequestHandler], orchestrate, folder: Path) -> subprocess.CompletedProcess[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (folder / "key").write_text("k3y-of-nobody")
        (folder / "orchestrate.toml").write_text(
            f'[providers.local]\nbase_url = "http://127.0.0.1:{server.server_port}"\nkey = {{file = "key"}}\n'
            '[prices."local/small"]\ninput = 1\noutput = 1\n'
        )
        done = orchestrate("submit", STARTER, "--model", "local/small", "--samples", "12", "--tasks", "board-figure")
        server.shutdown()
    assert "k3y-of-nobody" not in done.stdout + done.stderr
    kept = [path for path in folder.rglob("*") if path.is_file() and b"k3y-of-nobody" in path.read_bytes()]
    assert kept == [folder / "key"]
    return done


def test_a_wrong_key_is_found_before_anything_is_launched(orchestrate, tmp_path: Path) -> None:
    done = submit_to(RefusesEveryKey, orchestrate, tmp_path)
    assert done.returncode == 2
    assert "model local/small was refused" in done.stderr
    assert "check its key (the file key)" in done.stderr
    assert "nothing was launched" in done.stderr
    assert not (tmp_path / ".orchestrate/store/runs").exists()


@pytest.mark.timeout(60)
def test_a_key_that_stops_working_pauses_the_run_and_is_never_shown(orchestrate, tmp_path: Path) -> None:
    done = submit_to(RefusesAllButTheFirst, orchestrate, tmp_path)
    assert done.returncode == 5
    assert "asking once: local/small" in done.stderr
    assert "launches in a row failed with 'model_api_error'" in done.stderr
    assert "orchestrate resume" in done.stderr


class Answers(RefusesEveryKey):
    """A provider whose model has nothing to do."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        usage = {"prompt_tokens": 2006, "completion_tokens": 300, "prompt_tokens_details": {"cached_tokens": 1920}}
        message = {"role": "assistant", "content": "done"}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        answer = {
            "id": "a",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
            "usage": usage,
        }
        self.answer(200, json.dumps(answer).encode())


@pytest.mark.timeout(60)
def test_a_published_model_needs_no_price_and_a_run_can_be_counted_again(orchestrate, in_process, tmp_path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        text = f'[providers.openai]\nbase_url = "http://127.0.0.1:{server.server_port}"\n'
        (tmp_path / "orchestrate.toml").write_text(text)
        words = ("--model", "openai/gpt-5-mini", "--samples", "1", "--tasks", "board-figure", "--json")
        done = report_of(orchestrate("submit", STARTER, *words))
        server.shutdown()
    [agent] = done["agents"]
    steps = agent["steps"]["total"]
    assert agent["cost_usd"]["total"] == pytest.approx(steps * (86 * 250 + 1920 * 25 + 300 * 2000) / 1e9)
    assert agent["user_cost_usd"]["total"] == agent["judge_cost_usd"]["total"] == 0
    known = done["manifest"]["prices"]["react"]["openai/gpt-5-mini"]
    assert known["source"].startswith("genai-prices ")
    assert known["entry"] == "openai/gpt-5-mini"

    prices = '[prices."openai/gpt-5-mini"]\ninput = 1\noutput = 1\n'
    (tmp_path / "orchestrate.toml").write_text(text + prices)
    again = report_of(in_process("report", "last", "--prices", "current", "--json"))
    assert again["agents"][0]["cost_usd"]["total"] == pytest.approx(steps * 2306 * 1000 / 1e9)
    assert again["agents"][0]["metrics"]["gateway"]["cost_usd"] == again["agents"][0]["cost_usd"]
    assert again["manifest"]["prices"]["react"]["openai/gpt-5-mini"]["source"] == "orchestrate.toml"
    assert again["manifest"]["price_table"] != done["manifest"]["price_table"]
    assert "costs are at the prices that hold now, not at those of the run" in again["notes"]
    same = report_of(in_process("report", "last", "--prices", "last", "--json"))
    assert same["agents"] == done["agents"]
