"""Agents that ask for root have it in a user namespace of their own, and nothing of the node's."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_runs import Runs, report
from installed_world import Release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SUITE = """\
id: rooted
metric: pass_rate
defaults:
  environment:
    user: root
    requires: [python3]
    resources: {cpu: 0.2, memory: 64Mi, disk: 16Mi, processes: 16}
  budgets: {max_steps: 2, max_tool_calls: 2, max_wall_seconds: 120, max_tokens: 1000}
"""
TASK = """\
id: rooted-1
instruction: Say who you are in who.txt, as root does.
checks: [{id: root, type: files, path: who.txt, regex: "^0 mapped refused written\\\\n$"}]
"""
SOLVE = """\
#!/bin/sh
mapped=$(awk '$1 == 0 { print ($2 == 0) ? "the-nodes" : "mapped" }' /proc/self/uid_map)
mount -t tmpfs none /mnt 2>/dev/null && mounted=mounted || mounted=refused
echo changed > /etc/of-mine && chown 1234:1234 /etc/of-mine && written=written
echo "$(id -u) $mapped $mounted $written" > who.txt
chown 4321 who.txt
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "rooted"
    task = folder / "rooted-1"
    for each in ("workspace", "solution"):
        (task / each).mkdir(parents=True)
    (folder / "suite.yaml").write_text(SUITE)
    (task / "task.yaml").write_text(TASK)
    (task / "workspace" / "README.md").write_text("Nothing to see.\n")
    (task / "solution" / "solve.sh").write_text(SOLVE)
    (task / "solution" / "solve.sh").chmod(0o755)
    return folder


def test_root_is_root_in_its_own_pod_alone(ready: Release, suite: Path) -> None:
    runs = Runs(ready)
    run = runs.submit(suite, ["oracle"], "--samples", "2", "-n", "2", "--pool", "inline")
    runs.follow(run)
    left = runs.check(run)
    assert set(left.results.values()) == {("completed", "passed")}, report(runs, run)
