"""Gateway and relay as the chart starts them: processes with a configuration file, ended by SIGTERM or killed."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from contextlib import asynccontextmanager

import aiohttp
import pytest
from tcp_world import TOKENS, Pod, PodWorld

from orchestrator.spec.bundle import scripts_bundle
from orchestrator.spec.scripts import Script
from orchestrator.storage.bundles import publish
from orchestrator.storage.open import open_store

SCRIPT = Script.model_validate_json(json.dumps({"conversations": [{"turns": [{"text": "hello"}]}]}))


@asynccontextmanager
async def service(name, file, log):
    with log.open("ab") as stderr:
        before = stderr.tell()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "orchestrator", "serve", name, "--config", str(file),
            stdin=asyncio.subprocess.DEVNULL, stderr=stderr,
        )  # fmt: skip
    try:
        while b" serves pods at " not in log.read_bytes()[before:] and process.returncode is None:
            await asyncio.sleep(0.05)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


class Served(PodWorld):
    """The world of pods with gateway and relay in processes of their own, on a store of any kind."""

    def __init__(self, folder, url, **more):
        super().__init__(folder, store=open_store(url), **more)
        for file in (self.gateway_file, self.relay_file):
            file.write_text(json.dumps({**json.loads(file.read_text()), "store": url}))
        self.logs = {name: folder / f"{name}.log" for name in ("gateway", "relay")}

    def service(self, name):
        return service(name, self.gateway_file if name == "gateway" else self.relay_file, self.logs[name])

    async def begun(self, sample, scripts):
        pod = Pod(await self.client.register(self.request(sample, scripts=scripts)))
        assert (await pod.begin())[0] == 200
        return pod


async def life(here):
    """Live through a launch, the end of its gateway by SIGTERM, and what is left of it for the next one."""
    scripts = await publish(here.store, "world", scripts_bundle({"task-1": SCRIPT}))
    async with here.service("relay"), here.client:
        async with here.service("gateway") as gateway:
            done, idle = await here.begun(1, scripts), await here.begun(2, scripts)
            assert (await done.chat())[0] == 200
            seal = await here.client.seal(done.launch)
            assert (await done.deliver(exit={"code": 0}))[0] == 200
            delivery = await here.client.delivered(done.launch)
            orders = asyncio.create_task(idle.as_freezer("GET", "/launch/stop"))
            await idle.ask("GET", "/tools")
            gateway.send_signal(signal.SIGTERM)
            code = await asyncio.wait_for(gateway.wait(), 20)
            with pytest.raises(aiohttp.ClientError):
                await orders
        async with here.service("gateway"):
            tools = (await idle.ask("GET", "/tools"))[0]
            late = await here.client.seal(idle.launch)
            adopted = await here.client.register(here.request(1, scripts=scripts, epoch=2))
            assert (adopted.door.begun, adopted.door.sealed) == (True, True)
            assert await here.client.delivered(adopted.launch) == delivery
    return code, seal.steps, tools, late.stopped


def test_services_on_a_folder_from_start_to_restart(short_folder):
    here = Served(short_folder, str(short_folder / "store"))
    assert asyncio.run(life(here)) == (0, 1, 200, None)
    logged = "".join(log.read_text() for log in here.logs.values())
    assert "Traceback" not in logged
    assert not any(token in logged for token in TOKENS.values())


@pytest.mark.slow
def test_services_on_s3_from_start_to_restart(short_folder, s3_url):
    assert asyncio.run(life(Served(short_folder, s3_url))) == (0, 1, 200, None)


def test_a_service_with_a_wrong_file_says_what_to_change(tmp_path):
    file = tmp_path / "service.json"
    file.write_text('{"store": ""}')
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "serve", "relay", "--config", str(file)],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"{file}: store: " in done.stderr
    assert "Traceback" not in done.stderr
