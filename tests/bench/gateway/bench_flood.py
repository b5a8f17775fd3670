"""How long a freezer waits for ``POST /launch/dead`` at a real gateway process, beside agents that flood it and beside none.

    python bench_flood.py [SECONDS for each]

Prints JSON: for each case the median, p99 and maximum in milliseconds, tries that were lost, and what the agents sent.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "gateway"))

from tcp_world import Pod
from test_service_processes import SCRIPT, Served

from orchestrator.sandbox.keeper.http import Reply, head
from orchestrator.spec.bundle import scripts_bundle
from orchestrator.storage.bundles import publish

CASES: dict[str, tuple[bool, tuple[str, ...]]] = {
    "quiet": (False, ()),
    "its own agent's connections": (True, ("connections",)),
    "its own agent's requests": (True, ("requests",)),
    "another agent's": (False, ("connections", "requests")),
}
"""Whether the agents flood from the freezer's own pod, and with what."""


def dead(host: str, pod: Pod) -> bool:
    """Say that the agent is dead, as a freezer does; whether there was an answer."""
    said = head("POST", "/launch/dead", pod.registration.door.token, (("Content-Length", "2"),)) + b"{}"
    try:
        with socket.create_connection((host, 8080), 5, source_address=(pod.address, 0)) as connection:
            connection.sendall(said)
            answer = Reply(connection)
            answer.text()
            return answer.status == 200
    except OSError:
        return False


def measured(host: str, pod: Pod, seconds: float) -> dict[str, Any]:
    """Ask again and again; a lost try is repeated after 0.1 s, and its time counts."""
    times, lost = [], 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        begun = time.monotonic()
        while not dead(host, pod):
            lost += 1
            time.sleep(0.1)
        times.append(1000 * (time.monotonic() - begun))
        time.sleep(0.005)
    times.sort()
    shown = {"median": times[len(times) // 2], "p99": times[int(len(times) * 0.99)], "max": times[-1]}
    return {"n": len(times), "lost": lost, **{name: round(value, 1) for name, value in shown.items()}}


async def main(seconds: float) -> None:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        here = Served(Path(folder), f"file://{folder}/store")
        scripts = await publish(here.store, "world", scripts_bundle({"task-1": SCRIPT}))
        async with here.client, here.service("gateway"):
            mine, other = await here.begun(1, scripts), await here.begun(2, scripts)
            for name, (own, kinds) in CASES.items():
                agent = mine if own else other
                program = [sys.executable, str(Path(__file__).with_name("flooding_agent.py")), here.address, "8080"]
                program += [agent.address, agent.registration.agent_token, str(seconds + 2)]
                flood = [subprocess.Popen([*program, kind], stdout=subprocess.PIPE, text=True) for kind in kinds]
                await asyncio.sleep(1 if kinds else 0)
                found[name] = await asyncio.to_thread(measured, here.address, mine, seconds)
                found[name]["sent"] = {
                    kind: int(each.communicate()[0]) for kind, each in zip(kinds, flood, strict=True)
                }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0))
