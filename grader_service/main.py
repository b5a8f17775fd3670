"""``grader-service serve``: grade until standard input ends, or with a file as a service of its own, until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
from pathlib import Path

from grader_service.settings import (
    GraderSettings,
    ServiceFile,
    StartLine,
    read_service_file,
    read_settings,
    read_start_line,
    read_token,
)
from orchestrator.errors import OrchestrateError

log = logging.getLogger("grader_service")


def main() -> None:
    """Entry point of ``grader-service``. Ends with 0, or with the exit code of the error it met."""
    arguments = _parser().parse_args()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="grader-service %(levelname)s %(message)s")
    log.setLevel(logging.INFO)
    try:
        if arguments.command == "checker":
            _check(arguments)
        elif arguments.config is not None:
            _serve_network(Path(arguments.config))
        else:
            start, settings = read_start_line(sys.stdin.readline()), read_settings()
            asyncio.run(_serve(start, settings))
    except OrchestrateError as error:
        sys.stderr.write(f"grader-service: {error}\n")
        sys.exit(error.exit_code)
    except OSError as error:
        sys.stderr.write(f"grader-service: cannot listen or lay its folder: {error}\n")
        sys.exit(OrchestrateError.exit_code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="grader-service", description="Grade frozen trials with hidden checks.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser(
        "serve", help="read one JSON line on standard input, serve on a unix socket until standard input ends"
    )
    serve.add_argument("--config", metavar="FILE", help="serve on the network as this JSON file says, until SIGTERM")
    checker = commands.add_parser("checker", help="parse what agents left, for the grader beside it, until SIGTERM")
    checker.add_argument("--socket", metavar="PATH", required=True, help="unix socket to listen on")
    checker.add_argument(
        "--scratch", metavar="DIR", required=True, help="folder for what is laid; emptied at the start"
    )
    checker.add_argument("--jobs", metavar="N", type=int, default=2, help="jobs at a time; further ones wait (2)")
    return parser


def _check(arguments: argparse.Namespace) -> None:
    from grader_service.checker.server import main

    main(Path(arguments.socket), Path(arguments.scratch), max(1, arguments.jobs))


def _serve_network(path: Path) -> None:
    from orchestrator.sandbox.jail import protect

    protect()  # what runs beside it with its user reads neither its memory nor its environment
    file, settings = read_service_file(path), read_settings()
    token = read_token(str(path), "tokens.driver", file.tokens.driver)
    asyncio.run(_run_network(file, token, settings))


async def _run_network(file: ServiceFile, token: str, settings: GraderSettings) -> None:
    from grader_service.app import serving_network

    over = _told_to_end()
    async with serving_network(file, token, settings) as version:
        log.info("%s grades on %s", version, file.listen)
        await over.wait()


async def _serve(start: StartLine, settings: GraderSettings) -> None:
    from grader_service.app import serving

    over = _told_to_end()
    async with serving(start, settings) as version:
        sys.stdout.write(json.dumps({"ready": True, "version": version}) + "\n")
        sys.stdout.flush()
        waiting = asyncio.create_task(_end_of_input())
        await asyncio.wait({waiting, asyncio.create_task(over.wait())}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()


def _told_to_end() -> asyncio.Event:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    return over


async def _end_of_input() -> None:
    """Wait for the end of standard input without a thread that would outlive the service."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(4096):
        pass
