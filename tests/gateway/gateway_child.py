"""The gateway as a process of its own, wired as the command line does it: configuration on standard input."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from gateway_world import Scripts

from orchestrator.driver.collector import spare_the_old
from orchestrator.gateway.app import serve_gateway
from orchestrator.gateway.config import GatewayConfig
from orchestrator.storage.file import FileStore
from orchestrator.trace.write import TrajectoryFolder

if __name__ == "__main__":
    spare_the_old()
    config = GatewayConfig.from_json_line(sys.stdin.readline())
    folder = Path(config.socket).parent
    asyncio.run(
        serve_gateway(config, FileStore(folder / "store"), TrajectoryFolder(config.folder), Scripts(folder / "scripts"))
    )
