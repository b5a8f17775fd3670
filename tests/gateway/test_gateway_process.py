"""The gateway process: ready line, end of standard input, SIGTERM, SIGKILL."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orchestrator.errors import GatewayError, InfrastructureError

CHILD = Path(__file__).parent / "gateway_child.py"


@asynccontextmanager
async def child(here, before=()):
    process = await asyncio.create_subprocess_exec(
        *before, sys.executable, str(CHILD), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(here.line + b"\n")
    assert await process.stdout.readline() == b'{"ready": true}\n'
    async with here.client:
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    process.stdin.close()


def test_connections_of_agents_leave_descriptors_for_everybody_else(world):
    """32 connections of each of 8 launches are more than 64 descriptors; registering one more launch needs one for its file."""

    async def live():
        here = world()
        async with child(here, ("sh", "-c", 'ulimit -Sn 64; exec "$@"', "sh")):
            opened = []
            for number in range(1, 9):
                inside = await here.launch(number)
                opened += [inside.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(32)]
                for connection in opened[-32:]:
                    assert await asyncio.to_thread(connection.recv, 12) == b"HTTP/1.1 200"
            last = await here.launch(9)
            status, _, _ = await last.chat()
            for connection in opened:
                connection.close()
            return status

    assert asyncio.run(live()) == 200


@pytest.mark.parametrize("how", ["eof", "term"])
def test_it_ends_in_peace(world, how):
    async def live():
        here = world()
        async with child(here) as process:
            inside = await here.launch()
            assert (await inside.chat())[0] == 200
            waiting = asyncio.create_task(here.client.stop_reason(inside.launch))
            await here.client.spending("run-1")
            if how == "eof":
                process.stdin.close()
            else:
                process.send_signal(signal.SIGTERM)
            code = await asyncio.wait_for(process.wait(), 10)
            with pytest.raises(GatewayError) as caught:
                await waiting
            with pytest.raises(GatewayError) as later:
                await here.client.seal(inside.launch)
            return code, caught.value.cause, later.value.cause, Path(here.config.socket).exists()

    code, first, later, is_there = asyncio.run(live())
    assert (code, later, is_there) == (0, "gateway_unreachable", False)
    # A request on a connection that was used before is sent once more by the client, and then nobody is there.
    assert first in {"gateway_lost", "gateway_unreachable"}


def test_a_killed_gateway_loses_its_launch_and_is_started_again(world):
    async def live():
        here = world()
        async with child(here) as process:
            inside = await here.launch()
            await inside.chat()
            process.kill()
            await process.wait()
        async with child(here):
            causes = []
            for call in (here.client.seal(inside.launch), here.client.register(here.request())):
                with pytest.raises(InfrastructureError) as caught:
                    await call
                causes.append(caught.value.cause)
            second = await here.client.register(here.request(launch=2))
            return causes, second.launch != inside.launch

    assert asyncio.run(live()) == (["gateway_restarted", "trajectory_exists"], True)


def test_a_socket_path_that_is_too_long_is_named(world):
    async def live():
        here = world(socket="/tmp/" + "x" * 120)
        async with here.running():
            pass

    with pytest.raises(GatewayError, match="more than 107 bytes"):
        asyncio.run(live())
