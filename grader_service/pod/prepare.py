"""First container of a grading pod: ``python3 -m grader_service.pod.prepare``.

Tries the targets that must not answer, lays everything into the pod's volumes, also its own image's supervisor for the subjects, then gives
its token up: after that nobody in the pod can
fetch anything. Plan: ``{"denied": ["IP:PORT", …], "areas": {volume: [folder, …]}}``.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import tarfile
import threading
import time
from typing import IO, Any

from grader_service.pod import wire

_ROUNDS, _PROBE_SECONDS = 2, 0.3
_TRIES = 20
GIVEN = "given-subject"
"""The volume that all subjects see read-only."""


def main() -> None:
    """Prepare the pod. Ends with 0 or a code of ``wire``."""
    environment = dict(os.environ)  # noqa: TID251 - a program inside of a pod
    plan = json.loads(environment[wire.PLAN])
    open_ = Probes(plan["denied"])
    try:
        _fetch(environment, plan)
        lay_guard(wire.VOLUMES)
        if found := open_.finish():
            wire.end(wire.POLICY, f"a grading pod can reach {', '.join(found)}: its network policies are not enforced")
        wire.ask_until(environment, "POST", "/grading/prepared")
    except wire.Unknown as error:
        wire.end(wire.UNKNOWN, f"the grader does not know this pod any more ({error})")
    except tarfile.TarError as error:
        wire.end(wire.INPUTS, f"what the grader sent cannot be laid: {error}")
    except FileNotFoundError as error:
        wire.end(wire.OTHER, f"the image has no {error.filename}: set runner_image to this version's control image")
    except OSError as error:
        wire.end(wire.UNREACHABLE, f"the grader at {environment[wire.GRADER]} does not answer: {error}")


class Probes:
    """Tries targets that must not answer, beside other work."""

    def __init__(self, targets: list[str]) -> None:
        self._found: set[str] = set()
        self._threads = [threading.Thread(target=self._try, args=(target,), daemon=True) for target in targets]
        for thread in self._threads:
            thread.start()

    def finish(self) -> list[str]:
        """Return the targets that let a connection through."""
        for thread in self._threads:
            thread.join()
        return sorted(self._found)

    def _try(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        for _ in range(_ROUNDS):
            started = time.monotonic()
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), _PROBE_SECONDS):
                self._found.add(target)
            time.sleep(max(0.0, started + _PROBE_SECONDS - time.monotonic()))


def _fetch(environment: dict[str, str], plan: dict[str, Any]) -> None:
    """Lay everything, from the beginning after each connection that broke. Raises wire.Unknown, OSError, TarError."""
    for left in reversed(range(_TRIES)):
        _empty(plan)
        try:
            connection, answer = wire.ask(environment, "GET", "/grading/inputs")
            try:
                lay(answer, wire.VOLUMES)
            finally:
                connection.close()
        except (OSError, tarfile.ReadError, http.client.HTTPException):
            if not left:
                raise
            time.sleep(1)
        else:
            return


def _empty(plan: dict[str, Any]) -> None:
    for volume, folders in plan["areas"].items():
        place = f"{wire.VOLUMES}/{volume}"
        for name in os.listdir(place):  # noqa: PTH208
            path = f"{place}/{name}"
            if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
                shutil.rmtree(path)
            else:
                os.unlink(path)  # noqa: PTH108
        for folder in folders:
            os.makedirs(f"{place}/{folder}")  # noqa: PTH103


def lay(source: IO[bytes] | http.client.HTTPResponse, root: str) -> None:
    """Lay a tar below a folder: folders, files, links. Its last member is an empty file ``end``, or it was cut off.

    Raises TarError, OSError.
    """
    ended = False
    with tarfile.open(fileobj=source, mode="r|", encoding="utf-8", errors="surrogateescape") as tar:
        for member in tar:
            parts = member.name.split("/")
            if not set(parts).isdisjoint({"", ".", ".."}):
                msg = f"a path that leads elsewhere: {member.name!r}"
                raise tarfile.ExtractError(msg)
            ended = member.name == "end"
            if not ended:
                _lay_member(tar, member, f"{root}/{member.name}")
    if not ended:
        msg = "the stream ended too early"
        raise tarfile.ReadError(msg)


def lay_guard(root: str) -> None:
    """Lay what refuses system calls to subjects. Raises OSError: an image without it cannot grade."""
    shutil.copy(wire.SUPERVISOR, f"{root}/{GIVEN}/guard")


def _lay_member(tar: tarfile.TarFile, member: tarfile.TarInfo, target: str) -> None:
    if member.isdir():
        os.makedirs(target, exist_ok=True)  # noqa: PTH103
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
    if member.issym():
        os.symlink(member.linkname, target)  # noqa: PTH211
        return
    data = tar.extractfile(member)
    if data is None:
        msg = f"a member of another kind: {member.name!r}"
        raise tarfile.ExtractError(msg)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(target, flags, member.mode & 0o777 | 0o600), "wb") as file:
        shutil.copyfileobj(data, file, 1 << 20)


if __name__ == "__main__":
    main()
