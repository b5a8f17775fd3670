"""The fault server in a process of its own, without faults. Prints its URL, ends with its standard input.

Agents of its pods run until there is a ConfigMap ``release`` in the namespace ``bench``, and then end within the seconds that it says.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "kubernetes"))

from fault_kubelet import End, Play, Script
from fault_objects import Key
from fault_server import FaultServer


class Plain(FaultServer):
    """Sets the agents free when it is told to."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.released = asyncio.Event()
        self.seconds = 0.0
        self.kubelet.default = Script(behaviours={"agent": self._until_released}, tick=0.1)

    async def _until_released(self, play: Play, name: str) -> End:
        await self.released.wait()
        await asyncio.sleep(random.uniform(0, self.seconds))
        return End()

    async def create(self, request, asked):
        answer = await super().create(request, asked)
        key: Key = ("configmaps", "bench", "release")
        if not self.released.is_set() and (release := self.objects.get(key)) is not None:
            self.seconds = float(release["data"]["seconds"])
            self.released.set()
        return answer


async def main() -> None:
    options = json.loads(sys.argv[1])
    events, pod = options.pop("events", 0), options.pop("pod", None)
    async with Plain(**options) as server:
        if events:
            server.inject("watch_floods", times=1e9, events=events, pod=pod)
        print(server.url, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
