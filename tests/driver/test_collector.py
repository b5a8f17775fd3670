"""What lives long is not looked at while much is made and forgotten."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc
from orchestrator.driver.collector import spare_the_old
{call}
looked = []
gc.callbacks.append(lambda phase, info: looked.append(info["generation"]) if phase == "start" else None)
kept = []
for number in range(60_000):
    kept.append([number])
    kept.append({{"made": [number]}})
    ring = []
    ring.append(ring)
print(looked.count(2), looked.count(0) > 0 and len(gc.get_objects()) < 400_000)
"""


@pytest.mark.parametrize(("call", "full"), [("spare_the_old()", False), ("pass", True)])
def test_growing_is_no_reason_to_look_at_everything(call: str, full: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(call=call)], capture_output=True, text=True, check=True, timeout=60
    )
    count, rings_go = done.stdout.split()
    assert (int(count) > 0) is full
    assert rings_go == "True"
