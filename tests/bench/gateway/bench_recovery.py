"""How long a gateway of a cluster takes to go on after it was killed, with many launches at rest on its volume, and how much memory it has.

    python bench_recovery.py [LAUNCHES] [STEPS of each] [MILLISECONDS for each request to the store, S3; a folder when absent]

Prints JSON: seconds from the start of the process to its first answer, bare and with the launches; and its resident memory before it was
killed, and afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[2] / "storage"))
sys.path.insert(0, str(Path(__file__).parents[2] / "gateway"))

from s3_world import ADMIN, Seaweed, environment, own_server
from tcp_world import Pod
from test_service_processes import Served

from orchestrator.spec.bundle import scripts_bundle
from orchestrator.spec.scripts import Script
from orchestrator.storage.bundles import publish

TEXT = "What the program printed, and nobody has printed before. " * 20
"""Of each message: 1.1 KB."""
TOGETHER = 16


def script(steps: int) -> Script:
    turns = [{"text": f"Step {n}. {TEXT}", "usage": {"input": 1000, "output": 300}} for n in range(steps)]
    return Script.model_validate_json(json.dumps({"conversations": [{"turns": turns}]}))


async def at_rest(here: Served, scripts: str, sample: int, steps: int) -> Pod:
    """Have a launch make so many steps, each with all that was said before, as agents do. The last one is left for afterwards."""
    pod = await here.begun(sample, scripts)
    said: list[dict[str, Any]] = [{"role": "user", "content": f"Trial {sample}. {TEXT}"}]
    for n in range(steps):
        status, answer, _ = await pod.chat(said)
        if status != 200:
            sys.exit(f"launch {sample}, step {n}: {answer}")
        more = {"role": "user", "content": f"{sample} {n} {TEXT}"}
        said += [{"role": "assistant", "content": answer["choices"][0]["message"]["content"]}, more]
    return pod


def resident(pid: int) -> float:
    """Return MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


@asynccontextmanager
async def late(endpoint: str, seconds: float) -> AsyncIterator[str]:
    """Yield the endpoint behind a wire on which whatever is sent takes so long."""
    host, port = urlsplit(endpoint).hostname, urlsplit(endpoint).port
    alive = set()
    """Connections: nobody else holds on to their tasks."""

    async def flow(source: asyncio.StreamReader, sink: asyncio.StreamWriter, wait: float) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                await asyncio.sleep(wait)
                sink.write(data)
        sink.close()

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        alive.add(asyncio.current_task())
        with contextlib.suppress(asyncio.CancelledError):  # at the end of all
            there, back = await asyncio.open_connection(host, port)
            await asyncio.gather(flow(reader, back, seconds), flow(there, writer, 0.0))

    server = await asyncio.start_server(join, "127.0.0.1")
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@contextmanager
def s3() -> Iterator[Seaweed]:
    os.environ.update(environment(ADMIN))
    with own_server() as server:
        yield Seaweed(server.endpoint)


async def measured(folder: Path, url: str, launches: int, steps: int) -> dict[str, Any]:
    here = Served(folder, url, patience_s=60)
    scripts = await publish(here.store, "world", scripts_bundle({"task-1": script(steps + 1)}))
    found: dict[str, Any] = {"launches": launches, "steps": steps}
    places = asyncio.Semaphore(TOGETHER)

    async def one(sample: int) -> Pod:
        async with places:
            return await at_rest(here, scripts, sample, steps)

    async def is_kept(pod: Pod) -> bool:
        async with places:
            seal = await here.client.seal(pod.launch)
            return seal.stopped is None and seal.steps == steps

    async with here.client:
        began = time.monotonic()
        async with here.service("gateway") as gateway:
            found["bare_s"] = round(time.monotonic() - began, 2)
            pods = await asyncio.gather(*(one(n + 1) for n in range(launches)))
            found["before_mib"] = resident(gateway.pid)
        volume = list((folder / "trajectories").glob("*.jsonl"))
        found["volume_mib"] = round(sum(each.stat().st_size for each in volume) / 2**20, 1)
        began = time.monotonic()
        async with here.service("gateway") as gateway:
            found["back_s"] = round(time.monotonic() - began, 2)
            found["after_mib"] = resident(gateway.pid)
            found["kept"] = sum(await asyncio.gather(*(is_kept(pod) for pod in pods)))
    return found


async def main(launches: int, steps: int, milliseconds: float | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if milliseconds is None:
            found = await measured(Path(folder), f"{folder}/store", launches, steps)
        else:
            with s3() as server:
                async with late(server.endpoint, milliseconds / 1000) as endpoint:
                    found = await measured(Path(folder), server.url(endpoint=endpoint), launches, steps)
    print(json.dumps(found))


if __name__ == "__main__":
    many, each, slow = [*sys.argv[1:4], *("1000", "20", "")[len(sys.argv) - 1 :]]
    asyncio.run(main(int(many), int(each), float(slow) if slow else None))
