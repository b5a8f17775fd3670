"""A trial whose agent is the person at this terminal: the sandbox's shell and the terminal, joined."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

from orchestrator.errors import RefusedError
from orchestrator.interfaces import Gateway, Sandbox, SandboxBackend, SandboxSpec
from orchestrator.spec.task import Environment

_PIECE = 1 << 16


@dataclass
class AttendedBackend:
    """A backend of this machine whose sandboxes get one end of a channel as descriptor 3. Implements SandboxBackend for one trial."""

    inner: SandboxBackend
    channel: int
    name: str
    fetches: bool
    mounts_images: bool

    def refusals(self, environment: Environment) -> list[str]:
        """As of the backend within."""
        return self.inner.refusals(environment)

    async def preflight(self) -> Mapping[str, str]:
        """As of the backend within."""
        return await self.inner.preflight()

    async def lacking(self, environments: Iterable[Environment], mounted: Iterable[str] = ()) -> list[str]:
        """As of the backend within."""
        return await self.inner.lacking(environments, mounted)

    def claiming(self, run: str, epoch: int) -> AbstractAsyncContextManager[None]:
        """As of the backend within."""
        return self.inner.claiming(run, epoch)

    async def tidy(self, run: str, over: AbstractSet[str]) -> AbstractSet[str]:
        """As of the backend within."""
        return await self.inner.tidy(run, over)

    @contextlib.asynccontextmanager
    async def driving(self, run: str, epoch: int, gateway: Gateway) -> AsyncIterator[SandboxBackend]:
        """Give the backend within, with the channel."""
        async with self.inner.driving(run, epoch, gateway) as backend:
            yield replace(self, inner=backend)

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """Open a sandbox that has the channel."""
        return self.inner.open(replace(spec, channel=self.channel))


def attended(backend: SandboxBackend, channel: int) -> AttendedBackend:
    """Return the backend with a channel. Raises RefusedError for one whose sandboxes are not on this machine."""
    if backend.fetches:
        msg = f"a person's shell needs a sandbox of this machine, which {backend.name} has not; use --backend bubblewrap or container"
        raise RefusedError(msg)
    return AttendedBackend(backend, channel, backend.name, backend.fetches, backend.mounts_images)


class Terminal:
    """The person's terminal while a sandbox's shell is shown on it. Give ``channel`` to the sandbox."""

    def __init__(self, keyboard: int, screen: int) -> None:
        """Take the descriptors that are read and written, usually 0 and 1."""
        self._keyboard = keyboard
        self._screen = screen
        self._ours, self._theirs = socket.socketpair()
        self._unsent = bytearray()
        self._before: list[object] | None = None

    @property
    def channel(self) -> int:
        """The sandbox's end."""
        return self._theirs.fileno()

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Pass bytes both ways while the context is open; the terminal is as it was afterwards."""
        loop = asyncio.get_running_loop()
        self._ours.setblocking(False)
        loop.add_reader(self._ours.fileno(), self._shown)
        loop.add_signal_handler(signal.SIGWINCH, self._resized)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)
            loop.remove_reader(self._ours.fileno())
            loop.remove_writer(self._ours.fileno())
            self._leave()
            self._ours.close()
            self._theirs.close()

    def _shown(self) -> None:
        """Show what the sandbox's terminal shows; its first bytes say that there is somebody to type to."""
        try:
            data = self._ours.recv(_PIECE)
        except BlockingIOError:
            return
        if not data:
            asyncio.get_running_loop().remove_reader(self._ours.fileno())
            self._leave()
            return
        if self._before is None:
            self._enter()
        view = memoryview(data)
        while view:
            view = view[os.write(self._screen, view) :]

    def _enter(self) -> None:
        self._theirs.close()  # the sandbox has its own: when that is closed, there is an end to be read
        self._before = termios.tcgetattr(self._keyboard)
        tty.setraw(self._keyboard)
        asyncio.get_running_loop().add_reader(self._keyboard, self._typed)
        self._resized()

    def _leave(self) -> None:
        if self._before is not None:
            asyncio.get_running_loop().remove_reader(self._keyboard)
            termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._before)  # type: ignore[arg-type]
            self._before = None

    def _typed(self) -> None:
        data = os.read(self._keyboard, _PIECE)
        if data:
            self._send(b"d" + len(data).to_bytes(4, "big") + data)
        else:
            asyncio.get_running_loop().remove_reader(self._keyboard)

    def _resized(self) -> None:
        size = os.get_terminal_size(self._screen)
        self._send(b"w" + struct.pack(">HH", size.lines, size.columns))

    def _send(self, frame: bytes) -> None:
        self._unsent += frame
        self._flush()

    def _flush(self) -> None:
        """Send what there is room for; the rest of what was pasted goes when the shell has read."""
        loop = asyncio.get_running_loop()
        try:
            del self._unsent[: self._ours.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:  # the shell has ended
            self._unsent.clear()
        if self._unsent:
            loop.add_writer(self._ours.fileno(), self._flush)
        else:
            loop.remove_writer(self._ours.fileno())


def own_terminal() -> Terminal:
    """Return the terminal of this process. Raises RefusedError when there is none."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        msg = "a person needs a terminal, and standard input or output is none"
        raise RefusedError(msg)
    return Terminal(sys.stdin.fileno(), sys.stdout.fileno())
