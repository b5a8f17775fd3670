"""Pods of tasks that list hosts reach these through their gateway, and nothing by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_runs import Runs, report
from installed_world import Release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SUITE = """\
id: outside
metric: pass_rate
defaults:
  environment:
    requires: [python3]
    resources: {cpu: 0.2, memory: 64Mi, disk: 16Mi, processes: 16}
  budgets: {max_steps: 2, max_tool_calls: 2, max_wall_seconds: 120, max_tokens: 1000}
"""
TASK = """\
id: outside-1
instruction: Say what you reach in reached.txt.
environment:
  network: {allowlist: ["LISTED"]}
checks: [{id: reached, type: files, path: reached.txt, regex: "^200 403 nothing\\\\n$"}]
"""
SOLVE = """\
#!/bin/sh
exec python3 - > reached.txt <<'END'
import base64, os, socket, urllib.parse
proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
shown = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
def through(target):
    with socket.create_connection((proxy.hostname, proxy.port), timeout=20) as connection:
        connection.sendall(f"CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\nProxy-Authorization: Basic {shown}\\r\\n\\r\\n".encode())
        return connection.recv(4096).split()[1].decode()
def alone(host, port):
    try:
        socket.create_connection((host, port), timeout=3).close()
        return "reached"
    except OSError:
        return "nothing"
print(through("LISTED"), through("example.org:443"), alone("198.18.0.1", 6443))
END
"""


@pytest.fixture
def suite(tmp_path: Path, ready: Release) -> Path:
    # The release's own canary: a listener that gateways reach and no pod may.
    listed = f"canary-a.{ready.system}.svc:9000"
    folder = tmp_path / "outside"
    task = folder / "outside-1"
    for each in ("workspace", "solution"):
        (task / each).mkdir(parents=True)
    (folder / "suite.yaml").write_text(SUITE)
    (task / "task.yaml").write_text(TASK.replace("LISTED", listed))
    (task / "workspace" / "README.md").write_text("Nothing to see.\n")
    (task / "solution" / "solve.sh").write_text(SOLVE.replace("LISTED", listed))
    (task / "solution" / "solve.sh").chmod(0o755)
    return folder


def test_a_pod_reaches_what_its_task_lists(ready: Release, suite: Path) -> None:
    runs = Runs(ready)
    run = runs.submit(suite, ["oracle"], "--pool", "inline")
    runs.follow(run)
    left = runs.check(run)
    assert set(left.results.values()) == {("completed", "passed")}, report(runs, run)
