"""Agents that break what they can reach, on every trial: that is their result, never ours, and nobody else's trouble."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fire import Battle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TRIALS = 12
"""Of each agent: more than the identical failures that pause a run."""

_TASK = """
id: note
instruction: Write `done` into note.txt.
environment:
  requires: [python3]
  resources: {cpu: 1, memory: 96Mi, disk: 8Mi, processes: 24}
budgets: {max_wall_seconds: 20}
checks:
  - {id: note, type: files, path: note.txt, regex: done}
"""

_MALFORMED = r"""
import os, socket
chat = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
key = b"Authorization: Bearer " + os.environ["ORCHESTRATE_TOKEN"].encode() + b"\r\nContent-Type: application/json\r\n"
garbage = [
    b"\xff\x00garbage\r\n\r\n",
    chat + b"Content-Length: 9999999999\r\n\r\n",
    chat + key + b"Content-Length: 6\r\n\r\n[[[[[[",
    b"PUT /launch/state/changes HTTP/1.1\r\nHost: x\r\n" + key + b"\r\n",
]
for each in garbage * 10:
    with socket.create_connection(("127.0.0.1", 8080)) as gateway:
        gateway.settimeout(1)
        try:
            gateway.sendall(each)
            gateway.recv(4096)
        except OSError:
            pass
"""

AGENTS = {
    "honest": "echo done > note.txt",
    "filler": "echo done > note.txt; cat /dev/zero > big; cat /dev/zero > /tmp/big; sleep 1",
    "talker": "echo done > note.txt; head -c 50000000 /dev/zero | tr '\\0' x; head -c 50000000 /dev/urandom >&2",
    "forker": "echo done > note.txt; b() { b | b & }; b; sleep 20",
    "mumbler": f"echo done > note.txt; python3 -c '{_MALFORMED}'",
}


def test_what_agents_break_is_their_result(tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    (suite / "note/workspace").mkdir(parents=True)
    (suite / "suite.yaml").write_text("id: blame\n")
    (suite / "note/task.yaml").write_text(_TASK)
    (suite / "note/workspace/readme.txt").write_text("Nothing to see.\n")
    words: list[str | Path] = ["submit", suite, "--samples", str(TRIALS), "--json", "-n", "4"]
    for name, script in AGENTS.items():
        agent = tmp_path / f"{name}.yaml"
        agent.write_text(json.dumps({"type": "command", "command": ["sh", "-c", script]}))
        words += ["--agent", agent]
    battle = Battle(tmp_path)
    try:
        done = battle.run(*words)
    finally:
        battle.end()
    assert done.returncode == 0, done.stderr
    report = {agent["agent"]: agent for agent in json.loads(done.stdout)["agents"]}
    assert {*report} == {*AGENTS}
    for name, agent in report.items():
        assert agent["infra_share"] == 0, (name, agent, done.stderr)
        assert agent["lost_launches"] == {}, (name, agent, done.stderr)
        counts = agent["counts"]
        assert counts["passed"] + counts["failed"] == counts["planned"] == TRIALS, (name, agent, done.stderr)
    assert report["honest"]["counts"]["passed"] == TRIALS
    assert report["filler"]["termination_reason"] == {"out_of_disk": TRIALS}
    assert report["talker"]["termination_reason"] == {"completed": TRIALS}
    assert {*report["forker"]["termination_reason"]} <= {"out_of_processes", "unhandled_exception", "wall_clock"}
    assert report["mumbler"]["termination_reason"] == {"completed": TRIALS}
    assert "paused" not in done.stderr
