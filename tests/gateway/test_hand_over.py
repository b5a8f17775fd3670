"""The door takes one listening TCP socket per launch, from whoever shows the freezer's token."""

from __future__ import annotations

import asyncio
import os
import socket
import time

import pytest
from gateway_world import hand_over, through_door


def ask(world, *, line=None, sockets=None, seal_first=False, twice=False):
    async def live():
        async with world().running() as here:
            registration = await here.client.register(here.request())
            if seal_first:
                await here.client.seal(registration.launch)
            if twice:
                await hand_over(registration)
            with socket.create_server(("127.0.0.1", 0)) as listening:
                offered = [listening] if sockets is None else sockets
                return await through_door(registration, offered, line(registration) if line else None)

    return asyncio.run(live())


def test_an_agents_token_opens_no_door(world):
    answer = ask(world, line=lambda found: b'{"token": "%s"}\n' % found.agent_token.encode())
    assert answer == {"error": "a freezer's token is needed, of the launch's last registration"}


@pytest.mark.parametrize("line", [b"hello\n", b"{}\n", b"[1]\n", b'{"token": 1}\n', b"x" * 5000])
def test_a_line_that_is_no_hand_over_is_refused(world, line):
    assert ask(world, line=lambda _: line) == {"error": 'one JSON line {"token": …} is needed'}


def test_one_descriptor_is_needed(world):
    assert ask(world, sockets=[]) == {"error": "one descriptor is needed, 0 came"}


def test_a_socket_that_does_not_listen_is_refused(world):
    with socket.socket() as idle:
        assert ask(world, sockets=[idle]) == {"error": "the socket is not listening"}


def test_a_unix_socket_is_refused(world):
    with socket.socket(socket.AF_UNIX) as other:
        assert ask(world, sockets=[other]) == {"error": "the descriptor is no TCP socket"}


def test_a_launch_has_one_door(world):
    assert ask(world, twice=True) == {"error": "the launch has a listening socket already"}


def test_a_sealed_launch_has_no_door(world):
    assert ask(world, seal_first=True) == {"error": "the launch is sealed"}


def test_a_silent_visitor_holds_nobody(world):
    async def live():
        async with world().running() as here:
            silent = [socket.socket(socket.AF_UNIX) for _ in range(5)]
            for visitor in silent:
                visitor.connect(here.config.door)
            inside = await here.launch()
            status, _, _ = await inside.chat()
            for visitor in silent:
                visitor.close()
            return status

    assert asyncio.run(live()) == 200


def test_a_hundred_launches_leave_no_descriptor_and_no_task(world):
    async def live():
        async with world().running() as here:
            first = await here.launch(1)
            await here.client.seal(first.launch)
            await asyncio.sleep(0.05)
            before = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
            began = time.monotonic()
            for sample in range(2, 52):
                inside = await here.launch(sample)
                await here.client.seal(inside.launch)
            seconds = time.monotonic() - began
            await asyncio.sleep(0.05)
            return before, (len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())), seconds

    before, afterwards, seconds = asyncio.run(live())
    assert afterwards[0] <= before[0] + 1
    assert afterwards[1] <= before[1] + 1
    assert seconds < 30
