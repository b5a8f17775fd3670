"""A kubelet for grading pods on this machine: each container is a bubblewrap sandbox with the pod's volumes, first in its own processes."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fault_kubelet import End, Play
from supervised_world import supervisor

from grader_service.pod import wire

_SYSTEM = sorted(
    entry for entry in Path("/").iterdir() if entry.name not in {"proc", "dev", "tmp", "home", "sys", "run", "opt"}
)
_ROOT = Path(__file__).parents[2]
_ANNOTATION = re.compile(r"metadata\.annotations\['(.+)'\]")


def runs(folder: Path) -> Callable[[Play, str], Awaitable[End]]:
    """Return a behaviour that runs a container's real command, with the volumes of its pod below ``folder``."""

    program = str(supervisor())

    async def behave(play: Play, name: str) -> End:
        pod = play.pod
        assert pod is not None
        spec = pod["spec"]
        container = next(each for each in (*spec["initContainers"], *spec["containers"]) if each["name"] == name)
        volumes = folder / play.key[2]
        for volume in spec["volumes"]:
            (volumes / volume["name"]).mkdir(parents=True, exist_ok=True)
        log = volumes / f"{name}.termination"
        log.touch()
        flags = [*_flags(container, volumes, log), "--ro-bind", program, wire.SUPERVISOR]  # as in the image
        command = ["bwrap", *flags, *container["command"]]
        process = subprocess.Popen(command, env=_environment(container, play), stdin=subprocess.DEVNULL)
        try:
            while (code := process.poll()) is None:
                await asyncio.sleep(0.02)
        finally:
            process.kill()
            process.wait()
        return End(code, message=log.read_text())

    return behave


def _flags(container: dict[str, Any], volumes: Path, log: Path) -> list[str]:
    flags = [
        "--unshare-user",
        "--uid",
        "64000",
        "--gid",
        "64000",
        "--unshare-pid",
        "--unshare-ipc",
        "--as-pid-1",
        "--die-with-parent",
    ]
    for entry in _SYSTEM:
        flags += (
            ["--symlink", os.readlink(entry), str(entry)]
            if entry.is_symlink()
            else ["--ro-bind", str(entry), str(entry)]
        )
    for place in (sys.base_prefix, sys.prefix, str(_ROOT)):  # wherever they are, also below what is hidden
        flags += ["--ro-bind", place, place]
    flags += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/dev/shm", "--bind", str(log), "/dev/termination-log"]
    for mount in sorted(container["volumeMounts"], key=lambda each: str(each["mountPath"])):
        source = volumes / mount["name"] / mount.get("subPath", "")
        flags += ["--ro-bind" if mount.get("readOnly") else "--bind", str(source), mount["mountPath"]]
    return flags


def _environment(container: dict[str, Any], play: Play) -> dict[str, str]:
    found = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    for each in container["env"]:
        if "value" in each:
            found[each["name"]] = each["value"]
        elif (reference := _ANNOTATION.fullmatch(each["valueFrom"]["fieldRef"]["fieldPath"])) is not None:
            found[each["name"]] = play.annotation(reference[1])
    return found
