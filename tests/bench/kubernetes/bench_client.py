"""Creates and watch events a second and core of our client, beside a bare loop of aiohttp and orjson.

Run with ``make bench``, or ``python tests/bench/kubernetes/bench_client.py [CREATES EVENTS ROUNDS]``. The server is another
process; counted is the client's own processor time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import orjson

sys.path.insert(0, str(Path(__file__).parents[2] / "kubernetes"))

from pod_world import OWNER, SETTINGS, spec_of

from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.kubernetes.connect import plain
from orchestrator.sandbox.kubernetes.creator import Creator
from orchestrator.sandbox.kubernetes.limiter import Limiter
from orchestrator.sandbox.kubernetes.reflector import Reflector
from orchestrator.sandbox.kubernetes.render import render

HERE = Path(__file__).parent
AT_ONCE = 64
Use = Callable[[str, int], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(**options) -> AsyncIterator[str]:
    """Give the URL of a server of its own process."""
    command = [sys.executable, str(HERE / "plain_server.py"), json.dumps(options)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdin
        yield process.stdout.readline().strip()
        process.stdin.close()


def running(pod: dict) -> dict:
    """Return a pod as large as a kubelet's reports make it: about 7 kB."""
    states = [{"name": each["name"], "ready": True, "restartCount": 0, "image": each["image"], "imageID": each["image"],
               "containerID": "containerd://" + "0" * 64, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
              for each in pod["spec"]["containers"]]  # fmt: skip
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in kinds
    ]
    return {**pod, "status": {"phase": "Running", "conditions": conditions, "containerStatuses": states}}


async def crowd(count: int, one: Callable[[int], Awaitable[object]]) -> None:
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await one(number)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


def named(pod: dict, kind: str, number: int) -> dict:
    return {**pod, "metadata": {**pod["metadata"], "name": f"{kind}-{time.monotonic_ns():x}-{number}"}}


async def bare_creates(url: str, count: int) -> None:
    pod = render(spec_of(), OWNER, SETTINGS)
    connector = aiohttp.TCPConnector(limit=AT_ONCE)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def one(number: int) -> None:
            data = orjson.dumps(named(pod, "bare", number))
            headers = {"Content-Type": "application/json"}
            async with session.post(f"{url}/api/v1/namespaces/a/pods", data=data, headers=headers) as answer:
                orjson.loads(await answer.read())
                assert answer.status == 201

        await crowd(count, one)


async def our_creates(url: str, count: int) -> None:
    pod = render(spec_of(), OWNER, SETTINGS)
    async with Api(plain(url)) as api:
        creator = Creator(api, Limiter(1e6))

        async def one(number: int) -> None:
            await creator.create("a", named(pod, "ours", number))

        await crowd(count, one)


async def bare_events(url: str, count: int) -> None:
    seen, rest = 0, b""
    params = {"watch": "true", "resourceVersion": "1000000"}
    timeout = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(timeout=timeout, read_bufsize=2**18) as session,
        session.get(f"{url}/api/v1/namespaces/a/pods", params=params) as answer,
    ):
        async for part in answer.content.iter_any():
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                orjson.loads(line)["object"]["metadata"]["resourceVersion"]
            seen += len(lines)
            if seen >= count:
                return


async def our_events(url: str, count: int) -> None:
    async with Api(plain(url)) as api, Reflector(api, "a", labels="") as pods:
        await pods.synced()
        while pods.counts["event"] < count:
            await asyncio.sleep(0.01)
        assert not pods.trouble


async def rates(bare: Use, ours: Use, count: int, rounds: int, **options) -> dict[str, object]:
    """Return operations for each second of processor time; rounds take turns, the best of each counts."""
    best = {"bare": 0.0, "ours": 0.0}
    for _ in range(rounds):
        for name, use in (("bare", bare), ("ours", ours)):
            async with serving(**options) as url:
                began = time.process_time()
                await use(url, count)
                best[name] = max(best[name], count / (time.process_time() - began))
    ratio = round(best["ours"] / best["bare"], 2)
    return {
        "count": count,
        "bare_per_core_s": round(best["bare"]),
        "ours_per_core_s": round(best["ours"]),
        "ratio": ratio,
    }


async def measure(creates: int, events: int, rounds: int) -> dict[str, object]:
    pod = running(render(spec_of(), OWNER, SETTINGS))
    return {
        "pod_bytes": len(orjson.dumps(pod)),
        "creates": await rates(bare_creates, our_creates, creates, rounds, kubelet=False),
        "watch_events": await rates(bare_events, our_events, events, rounds, kubelet=False, events=events, pod=pod),
    }


if __name__ == "__main__":
    words = [int(word) for word in sys.argv[1:]]
    json.dump(asyncio.run(measure(*words or (5000, 20_000, 5))), sys.stdout, indent=2)
    sys.stdout.write("\n")
