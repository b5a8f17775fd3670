"""What ``orchestrate doctor`` runs in a pod of a trial's shape: what it reaches, how many threads it may have, whether disk is bounded.

It prints nothing: its last words are the container's termination message, one JSON object. Standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time

MESSAGE = "/dev/termination-log"
_CONNECT_SECONDS = 1.0
_STACK_BYTES = 32 << 10
_FILL_SECONDS = 120.0


def main(arguments: list[str]) -> int:
    """Do what the first argument says: ``look`` with JSON of targets and threads, ``fill`` with a folder and megabytes."""
    if arguments[0] == "fill":
        fill(arguments[1], int(arguments[2]))
        return 0
    asked = json.loads(arguments[1])
    found = {
        "opened": [target for target in asked["targets"] if opens(target)],
        "threads": threads(int(asked["threads"])),
    }
    with open(MESSAGE, "w") as file:  # noqa: PTH123 - the standard library's smallest way
        json.dump(found, file)
    return 0


def opens(target: str) -> bool:
    """Return whether a connection to ``IP:PORT`` is opened, by two tries. Nothing is resolved: the pod has no DNS, nor the codec for it."""
    host, _, port = target.rpartition(":")
    host = host.strip("[]")
    for _ in range(2):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as trying:
            trying.settimeout(_CONNECT_SECONDS)
            try:
                trying.connect((host, int(port)))
            except OSError:
                continue
            return True
    return False


def threads(most: int) -> int:
    """Return how many threads could be had at one time, ``most`` at the most. All are gone afterwards."""
    over = threading.Event()
    before = threading.stack_size(_STACK_BYTES)
    started: list[threading.Thread] = []
    try:
        for _ in range(most):
            thread = threading.Thread(target=over.wait, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                break
            started.append(thread)
    finally:
        over.set()
        threading.stack_size(before)  # a later thread of this process may need more
    for thread in started:
        thread.join()
    return len(started)


def fill(folder: str, megabytes: int) -> None:
    """Write more than a volume may hold, then wait to be evicted."""
    block = b"x" * (1 << 20)
    with open(os.path.join(folder, "full"), "wb") as file:  # noqa: PTH118, PTH123 - as above
        for _ in range(megabytes):
            try:
                file.write(block)
                file.flush()
            except OSError:  # a disk that is full is bounded as well
                break
    time.sleep(_FILL_SECONDS)
