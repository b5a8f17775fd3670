"""What the gateway adds to model calls, how busy it keeps a provider's slots, and whether its memory grows.

    python bench_models.py added|slots|memory [--litellm PYTHON] [--concurrent 1,64,1000] [--calls N] [--seconds S]

``added``: times of calls through a gateway process and straight to a stub provider, whole and streamed; what the gateway adds is the
difference of the quantiles. ``slots``: 96 callers for 64 slots at a provider that takes 2 s. ``memory``: resident memory over 100,000
calls. ``--litellm`` names the Python of an environment with ``litellm[proxy]``, whose proxy is then measured beside. Prints JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "gateway"))

from gateway_world import World

HERE = Path(__file__).parent

Target = list[Any]
"""Port and token."""
PER_LAUNCH = 16
"""Connections of one launch: as many as it may have calls at one time."""


@contextmanager
def stub(seconds: float, chunks: int = 10) -> Iterator[int]:
    """Run a provider; yields its port."""
    command = [sys.executable, str(HERE / "stub_provider.py"), str(seconds), str(chunks)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


@asynccontextmanager
async def gateway(
    folder: Path, provider: int, launches: int, concurrency: int
) -> AsyncIterator[tuple[list[Target], int]]:
    """Run a gateway process with launches; yields what reaches them, and its process id."""
    base = {"base_url": f"http://127.0.0.1:{provider}/v1", "concurrency": concurrency}
    here = World(folder, providers={"stub": base})
    command = [sys.executable, str(HERE.parents[1] / "gateway/gateway_child.py")]
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write(here.line + b"\n")
    await process.stdout.readline()
    budgets = dict.fromkeys(("max_steps", "max_tool_calls", "max_tokens", "max_wall_seconds"), 10**9)
    try:
        async with here.client:
            made = [
                await here.launch(n + 1, models={"main": "stub/model"}, prices={}, scripts=None, budgets=budgets)
                for n in range(launches)
            ]
            yield [[each.port, each.registration.agent_token] for each in made], process.pid
    finally:
        process.kill()
        await process.wait()


@contextmanager
def litellm(python: str, folder: Path, provider: int) -> Iterator[list[Target]]:
    """Run LiteLLM's proxy in front of the stub; yields what reaches it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    base = f"http://127.0.0.1:{provider}/v1"
    one = {"model_name": "main", "litellm_params": {"model": "openai/stub", "api_base": base, "api_key": "none"}}
    settings = {"dangerously_permit_weak_or_unset_master_key": True}
    (folder / "litellm.yaml").write_text(json.dumps({"model_list": [one], "general_settings": settings}))
    command = [str(Path(python).with_name("litellm")), "--config", str(folder / "litellm.yaml"), "--port", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*command, "--host", "127.0.0.1"], **quiet) as process:
        try:
            until = time.monotonic() + 120
            while time.monotonic() < until:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=2).close()
                    break
                except OSError:
                    time.sleep(0.5)
            else:
                msg = "the proxy of LiteLLM did not come up within 120 s"
                raise SystemExit(msg)
            yield [[port, "none"]]
        finally:
            process.kill()


async def load(targets: list[Target], **asked: Any) -> dict[str, Any]:
    """Make calls from a process of their own."""
    whole = {
        "path": "/v1/chat/completions",
        "model": "main",
        "pause": 0,
        "spread": 0.5,
        "stream": False,
        **asked,
        "targets": targets,
    }
    command = [sys.executable, str(HERE / "model_load.py")]
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    said, _ = await process.communicate(json.dumps(whole).encode())
    return json.loads(said)


def quantiles(found: dict[str, Any]) -> dict[str, Any]:
    """Return what a load was like, in milliseconds."""
    times = sorted(found["times"]) or [float("nan")]
    at = {name: 1000 * times[min(len(times) - 1, int(len(times) * q))] for name, q in (("p50", 0.5), ("p99", 0.99))}
    said = {name: round(value, 2) for name, value in at.items()}
    seconds = found["ended"] - found["began"]
    failed = len(found["failures"])
    first = {"failure": found["failures"][0]} if failed else {}
    return {
        "calls": len(found["times"]),
        "failed": failed,
        **first,
        **said,
        "per_second": round(len(times) / seconds, 1),
    }


async def added(options: argparse.Namespace) -> dict[str, Any]:
    """Return the quantiles of every case, and what each way adds to them."""
    found: dict[str, Any] = {}
    for concurrent in options.concurrent:
        # As slow as models are: with many callers the machine would else be the one that is measured.
        seconds = options.seconds or (0.05 if concurrent == 1 else 2.0)
        calls = options.calls or (300 if concurrent == 1 else 5 * concurrent)
        for stream in (False, True):
            with stub(seconds) as provider, tempfile.TemporaryDirectory() as folder:
                # Callers are apart from each other, as agents are: all at one time would measure how long a queue is, not a call.
                pause = seconds / 10
                asked = {
                    "concurrent": concurrent,
                    "calls": calls,
                    "stream": stream,
                    "pause": pause,
                    "spread": seconds + pause,
                }
                case = {"direct": quantiles(await load([[provider, ""]], **asked))}
                launches = -(-concurrent // PER_LAUNCH)
                async with gateway(Path(folder), provider, launches, 4096) as (targets, _):
                    case["gateway"] = quantiles(await load(targets, **asked))
                if options.litellm:
                    with litellm(options.litellm, Path(folder), provider) as targets:
                        case["litellm"] = quantiles(await load(targets, **asked))
            for way in [name for name in case if name != "direct"]:
                case[way]["added"] = {q: round(case[way][q] - case["direct"][q], 2) for q in ("p50", "p99")}
            found[f"{concurrent} {'streamed' if stream else 'whole'}"] = case
            print(json.dumps({f"{concurrent} {stream}": case}), file=sys.stderr, flush=True)
    return found


def _stats(provider: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{provider}/stats") as answer:
        found: dict[str, float] = json.load(answer)
        return found


async def slots(options: argparse.Namespace) -> dict[str, Any]:
    """Return the share of the time that 64 slots were busy, while more callers than slots were there."""
    found: dict[str, Any] = {}
    for stream in (False, True):
        with stub(2.0) as provider, tempfile.TemporaryDirectory() as folder:
            async with gateway(Path(folder), provider, 6, 64) as (targets, _):
                running = asyncio.create_task(load(targets, concurrent=96, calls=options.calls or 1600, stream=stream))
                await asyncio.sleep(6)
                first = await asyncio.to_thread(_stats, provider)
                await asyncio.sleep(20)
                last = await asyncio.to_thread(_stats, provider)
                result = quantiles(await running)
        share = (last["busy"] - first["busy"]) / (last["t"] - first["t"]) / 64
        found["streamed" if stream else "whole"] = {"busy": round(share, 4), **result}
    return found


def _resident(process: int) -> int:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


async def memory(options: argparse.Namespace) -> dict[str, Any]:
    """Return the resident memory in MiB after each tenth of the calls."""
    calls = options.calls or 100_000
    with stub(0.0, 1) as provider, tempfile.TemporaryDirectory() as folder:
        async with gateway(Path(folder), provider, 4, 64) as (targets, process):
            seen = [_resident(process)]
            results = []
            for number in range(10):
                asked = {"concurrent": 32, "calls": calls // 10, "stream": number % 2 == 1}
                results.append(quantiles(await load(targets, **asked)))
                seen.append(_resident(process))
    failed = sum(result["failed"] for result in results)
    return {"calls": calls, "failed": failed, "resident_mib": seen, "per_second": [r["per_second"] for r in results]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["added", "slots", "memory"])
    parser.add_argument("--litellm")
    parser.add_argument("--concurrent", default="1,64,1000", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--calls", type=int)
    parser.add_argument("--seconds", type=float, help="what the provider takes for a call")
    given = parser.parse_args()
    measure = {"added": added, "slots": slots, "memory": memory}[given.what]
    print(json.dumps(asyncio.run(measure(given)), indent=1))
