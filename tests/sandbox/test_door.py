"""The only way out: a listening socket inside, handed to the gateway before the program starts."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from sandbox_world import FakeGateway, backend, spec_of

from orchestrator.errors import SandboxError

ASK = (
    "import socket; c = socket.create_connection(('127.0.0.1', 8080)); c.sendall(b'hello'); print(c.recv(100).decode())"
)


def test_a_connection_inside_reaches_who_holds_the_socket(gateway: FakeGateway):
    async def scenario() -> tuple[bytes, str, str]:
        async with gateway.serve():
            spec = spec_of("python3", "-c", ASK, requires=("python3",), door=gateway.door)
            async with backend().open(spec) as sandbox:
                token, listener = gateway.listeners[0]
                connection, _ = await asyncio.to_thread(listener.accept)
                with connection:
                    heard = await asyncio.to_thread(connection.recv, 100)
                    connection.sendall(b"answer")
                await sandbox.ended()
                return heard, token, (await sandbox.freeze()).output.decode()

    assert asyncio.run(scenario()) == (b"hello", "freezer-token", "answer\n")


def test_the_door_token_is_nowhere_inside(gateway: FakeGateway):
    async def scenario() -> bytes:
        async with gateway.serve():
            spec = spec_of("sh", "-c", "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'", door=gateway.door)
            async with backend().open(spec) as sandbox:
                await sandbox.ended()
                return (await sandbox.freeze()).output

    output = asyncio.run(scenario())
    assert b"HOME=/home/agent" in output
    assert b"freezer-token" not in output


@pytest.mark.parametrize("refusal", ["launch is sealed", None])
def test_a_gateway_that_does_not_take_the_socket_is_our_failure(gateway: FakeGateway, refusal):
    async def scenario() -> None:
        async with gateway.serve():
            gateway.refuse = refusal
            door = gateway.door if refusal else replace(gateway.door, socket=str(gateway.folder / "nobody"))
            async with backend().open(spec_of("true", door=door)):
                pytest.fail("it must not open")

    with pytest.raises(SandboxError, match=refusal or "No such file") as caught:
        asyncio.run(scenario())
    assert caught.value.cause == "gateway_door"
