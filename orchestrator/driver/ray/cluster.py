"""The Ray cluster that a pool runs on: the one of ``RAY_ADDRESS``, or one of our own on this machine that only we can speak to.

Our own one listens on the loopback interface alone and asks for a token, made anew by each driver. It is a child process in a session of
its own, so an interrupt at the keyboard is heard by the driver alone; when the driver ends, however it ends, the cluster ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.util
import json
import logging
import os
import secrets
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from orchestrator.driver.scratch import LONGEST_RAY_PARENT, scratch_folder
from orchestrator.errors import InfrastructureError, RefusedError
from orchestrator.settings import Settings, local_ray_variables, ray_address, set_variables

_START_SECONDS = 180
_REACH_SECONDS = 10.0
_END_SECONDS = 15
_CHECK_SECONDS = 3.0
_CHECKS = 4
"""Failed looks at the head's port in a row after which it is given up."""
_LONGEST_SAID = 500
"""Characters of what Ray says: of two versions that differ it names both, on lines of their own."""


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process is connected to."""

    where: str
    """For people: ``on this machine``, or its address."""
    processors: int
    lost: asyncio.Future[str]
    """Done when the cluster is gone, with what died."""


@contextlib.asynccontextmanager
async def open_cluster(settings: Settings, say: Callable[[str], None]) -> AsyncIterator[Cluster]:
    """Connect to the cluster of ``RAY_ADDRESS``, or start one; ``say`` hears what takes long.

    Raises InfrastructureError when it does not start or cannot be reached, and RefusedError for an address that cannot be used.
    """
    if importlib.util.find_spec("ray") is None:
        msg = "Ray is not installed here, which --pool ray needs: install the package ray, or use --pool inline"
        raise RefusedError(msg)
    address = ray_address()
    async with contextlib.AsyncExitStack() as stack:
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        if address is None:
            say("starting Ray on this machine, which takes some seconds")
            head = await stack.enter_async_context(_local_head(settings))
            address, where = head.address, "on this machine"
            stack.push_async_callback(_cancelled, asyncio.create_task(head.watch(lost)))
        else:
            where = address
            if address.startswith("ray://"):
                msg = f"RAY_ADDRESS {address}: submit from a node of the cluster and give the address of its head, HOST:PORT; not ray://"
                raise RefusedError(msg)
            say(f"connecting to Ray at {address}")
            await _reach(address)
        stack.push_async_callback(asyncio.to_thread, _disconnect)
        processors, reached = await asyncio.to_thread(_connect, address)
        stack.push_async_callback(_cancelled, asyncio.create_task(_look(reached, lost)))
        yield Cluster(where, processors, lost)


async def _reach(address: str) -> None:
    """Raise InfrastructureError when nobody is at ``HOST:PORT``: Ray would try for minutes, heed no interrupt and then end this process."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():  # "auto" and what else Ray takes: it looks itself
        return
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host.strip("[]"), int(port)), _REACH_SECONDS)
    except (OSError, TimeoutError, OverflowError) as error:
        why = str(error) or f"no answer for {_REACH_SECONDS:.0f} s"
        msg = f"no Ray at RAY_ADDRESS {address}: {why}; start it with ray start, correct RAY_ADDRESS, or unset it for a Ray of our own"
        raise InfrastructureError(msg, cause="ray_unreachable") from error
    writer.close()


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _connect(address: str) -> tuple[int, str]:
    """Connect this process. Returns the cluster's processors and the address of its head."""
    import ray
    from ray._private import worker

    logging.getLogger("ray").setLevel(logging.CRITICAL)
    # Ray would print what happens to its workers on our standard output, which belongs to the report.
    worker.print_to_stdstream = lambda *_, **__: None
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        return max(1, int(resources.get("CPU", 1))), ray.get_runtime_context().gcs_address
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        msg = f"Ray at {address} cannot be used: {said[:_LONGEST_SAID]}"
        raise InfrastructureError(msg, cause="ray_unreachable") from error


def _disconnect() -> None:
    import ray

    ray.shutdown()


async def _look(address: str, lost: asyncio.Future[str]) -> None:
    """Look whether the head still takes connections. Ray itself would wait a minute and then end this process."""
    host, _, port = address.rpartition(":")
    failed = 0
    while failed < _CHECKS:
        await asyncio.sleep(_CHECK_SECONDS)
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host.strip("[]"), int(port)), _CHECK_SECONDS)
        except (OSError, TimeoutError):
            failed += 1
        else:
            writer.close()
            failed = 0
    if not lost.done():
        lost.set_result(f"its head at {address}")


@dataclass(frozen=True)
class _Head:
    """Our own cluster."""

    address: str
    process: asyncio.subprocess.Process

    async def watch(self, lost: asyncio.Future[str]) -> None:
        """Say when a part of it died."""
        assert self.process.stdout is not None  # noqa: S101 - a pipe was asked for
        line = await self.process.stdout.readline()
        if not lost.done():
            lost.set_result(json.loads(line)["died"] if line else "the process that holds it")


@contextlib.asynccontextmanager
async def _local_head(settings: Settings) -> AsyncIterator[_Head]:
    """Start a cluster that ends with this process."""
    with scratch_folder(settings, LONGEST_RAY_PARENT) as folder:
        set_variables(local_ray_variables(_write_token(folder)))  # before Ray is loaded, which reads them then
        log = settings.logs / "ray.log"
        process = await _spawn(log)
        try:
            yield _Head(await _address(process, folder, log), process)
        finally:
            await _end(process)


def _write_token(folder: Path) -> Path:
    path = folder / "token"
    path.touch(0o600)
    path.write_text(_token())
    return path


@functools.cache
def _token() -> str:
    """Return the token of this process's clusters: Ray reads it once in a process."""
    return secrets.token_hex(32)


async def _spawn(log: Path) -> asyncio.subprocess.Process:
    with _open_log(log) as file:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # no code from the current folder
            "-m",
            "orchestrator.driver.ray.head",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=file,
            start_new_session=True,  # Ctrl-C is for the driver; and what is left of the session can be found and ended
        )


def _open_log(log: Path) -> BinaryIO:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return log.open("ab")
    except OSError as error:
        msg = f"the log {log} of Ray cannot be written: {error.strerror}; set ORCHESTRATE_LOGS to another place"
        raise InfrastructureError(msg, cause="logs") from error


async def _address(process: asyncio.subprocess.Process, folder: Path, log: Path) -> str:
    assert process.stdin is not None  # noqa: S101 - pipes were asked for
    assert process.stdout is not None  # noqa: S101
    config = {"folder": str(folder / "r"), "processors": os.cpu_count() or 1}
    with contextlib.suppress(ConnectionError):
        process.stdin.write(json.dumps(config).encode() + b"\n")
        await process.stdin.drain()
    try:
        said: dict[str, Any] = json.loads(await asyncio.wait_for(process.stdout.readline(), _START_SECONDS))
        return str(said["address"])
    except (TimeoutError, ValueError, KeyError) as error:
        msg = f"Ray did not start on this machine (log: {log}); use --pool inline, or look at {log}"
        raise InfrastructureError(msg, cause="ray_not_started") from error


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), _END_SECONDS)
    except TimeoutError:
        process.kill()  # Ray's own processes end with it
        await process.wait()
