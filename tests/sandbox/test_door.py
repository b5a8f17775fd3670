"""The only way out: a listening socket inside, handed to the gateway before the program starts."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from sandbox_world import FakeGateway, backend, spec_of

from orchestrator.errors import SandboxError
from orchestrator.interfaces import Input

pytestmark = pytest.mark.usefixtures("kind")
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


PRELOADED = """
#include <arpa/inet.h>
#include <sys/socket.h>
__attribute__((constructor)) static void go(void) {
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons(8080), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int taken = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(taken, (struct sockaddr *)&place, sizeof place) == 0) listen(taken, 1);
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_variables_that_run_code_do_not_run_it_before_everything_is_watched(gateway: FakeGateway, tmp_path: Path):
    """A library that is there before the door would take its port, and every failing trial would be our failure."""
    (tmp_path / "agent").mkdir()
    (tmp_path / "early.c").write_text(PRELOADED)
    library = tmp_path / "agent" / "early.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "early.c"], check=True)

    async def scenario() -> tuple[int | None, bytes]:
        async with gateway.serve():
            spec = spec_of(
                *("sh", "-c", 'echo "$A"; env | grep -c GATE'),
                door=gateway.door,
                inputs=(Input(source=tmp_path / "agent", target="/agent"),),
                env={"LD_PRELOAD": "/agent/early.so", "A": "b 'c'\n$d"},
            )
            async with backend().open(spec) as sandbox:
                ending = await sandbox.ended()
                return ending.exit.code, (await sandbox.freeze()).output

    assert asyncio.run(scenario()) == (1, b"b 'c'\n$d\n0\n")


def test_values_of_variables_are_not_in_the_arguments_of_a_process_of_the_machine():
    async def scenario() -> bytes:
        async with backend().open(spec_of("sleep", "20", env={"A": "a-value-that-is-secret"})) as sandbox:
            await asyncio.sleep(0.2)
            found = b"".join(read(path) for path in Path("/proc").glob("[0-9]*/cmdline"))
            await sandbox.stop()
            return found

    def read(path: Path) -> bytes:
        with contextlib.suppress(OSError):
            return path.read_bytes()
        return b""

    assert b"a-value-that-is-secret" not in asyncio.run(scenario())
