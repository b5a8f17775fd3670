"""``grader-service serve``: a child process that grades until its standard input ends."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys

from grader_service.settings import GraderSettings, StartLine, read_settings, read_start_line
from orchestrator.errors import OrchestrateError


def main() -> None:
    """Entry point of ``grader-service``. Ends with 0, or with the exit code of the error it met."""
    parser = argparse.ArgumentParser(prog="grader-service", description="Grade frozen trials with hidden checks.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "serve", help="read one JSON line on standard input, serve on a unix socket until standard input ends"
    )
    parser.parse_args()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="grader-service %(levelname)s %(message)s")
    try:
        start, settings = read_start_line(sys.stdin.readline()), read_settings()
        asyncio.run(_serve(start, settings))
    except OrchestrateError as error:
        sys.stderr.write(f"grader-service: {error}\n")
        sys.exit(error.exit_code)
    except OSError as error:
        sys.stderr.write(f"grader-service: cannot listen or lay its folder: {error}\n")
        sys.exit(OrchestrateError.exit_code)


async def _serve(start: StartLine, settings: GraderSettings) -> None:
    from grader_service.app import serving

    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    async with serving(start, settings) as version:
        sys.stdout.write(json.dumps({"ready": True, "version": version}) + "\n")
        sys.stdout.flush()
        waiting = asyncio.create_task(_end_of_input())
        await asyncio.wait({waiting, asyncio.create_task(over.wait())}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()


async def _end_of_input() -> None:
    """Wait for the end of standard input without a thread that would outlive the service."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(4096):
        pass
