"""The sized file systems of one sandbox and what is laid on them. Standard library only; part of the keeper.

One file system, ``disk``, holds workspace, home, temporary files and shared memory together, so that its size is the limit of them all;
``/output`` has one of its own, so that an agent with a full disk can still give its answer.
"""

# pathlib would double the start-up time of the keeper, and names in a sandbox are bytes.
# ruff: noqa: PTH101, PTH102, PTH112, PTH208

from __future__ import annotations

import os

from orchestrator.sandbox.keeper import overlay
from orchestrator.sandbox.keeper.lay import LayError, Listing, Pristine, lay, read_pristine
from orchestrator.sandbox.keeper.program import KeeperError
from orchestrator.spec.room import most_paths

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from typing import Any

OUTPUT_INODES = 65536


def tmpfs_options(size: int, inodes: int) -> dict[str, str]:
    """Return the options of a sized file system."""
    return {"size": str(size), "nr_inodes": str(inodes), "mode": "0755"}


def sized(limits: dict[str, Any]) -> list[tuple[str, dict[str, str]]]:
    """Return name and mount options of the two sized file systems."""
    disk = limits["disk"]
    return [
        ("disk", tmpfs_options(disk, most_paths(disk))),
        ("output", tmpfs_options(limits["output_area"], OUTPUT_INODES)),
    ]


class Areas:
    """What an agent can write, laid out on the two file systems that are mounted at ``disk`` and ``output``."""

    def __init__(
        self, spec: dict[str, Any], disk: str, output: str, owner: tuple[int, int] | None, *, may_mount: bool = False
    ) -> None:
        """Take the two mount points as this process sees them, and uid and gid of the agent; None: those of this process.

        ``may_mount``: this process is root in a mount namespace of its own, so a big workspace can be shown instead of copied.
        """
        self._spec = spec
        self._disk = disk
        self._output = output
        self._owner = owner
        self._may_mount = may_mount
        self._listing = None if spec["listing"] is None else Listing(spec["listing"])
        self._noted: Pristine | None = None
        self._upper = ""
        self._extra = 0

    def make(self) -> None:
        """Make the folders of every area. Raises OSError."""
        self._own(self._output, 0o755)
        for part, mode in (("workspace", 0o755), ("home", 0o755), ("tmp", 0o1777), ("shm", 0o1777)):
            os.mkdir(f"{self._disk}/{part}")
            self._own(f"{self._disk}/{part}", mode)

    def places(self) -> list[tuple[str, str]]:
        """Return where each area lies and where the sandbox sees it: ``disk/tmp``, ``/tmp`` and so on."""
        return [*self._areas(), ("disk/shm", "/dev/shm")]  # noqa: S108 - the sandbox's own

    def lay(self, source: str, target: str) -> str | None:
        """Copy a writable input that the sandbox sees at ``target``.

        Returns a place on the file systems that is still to be shown there; None: an area holds it. Raises KeeperError and OSError.
        """
        place, shown = self._place(target)
        is_workspace = target == self._spec["workdir"] and source == self._spec["pristine"]
        if is_workspace and self._show(source):
            return None
        note = is_workspace and self._spec["sink"] is not None and self._listing is None and self._noted is None
        noted = Pristine() if note else None
        try:
            lay(os.fsencode(source), os.fsencode(place), self._owner, noted)
        except LayError as error:
            raise KeeperError(str(error)) from error
        self._noted = self._noted or noted
        return shown

    def open_areas(self) -> dict[str, int]:
        """Return open folders of what is frozen: ``workspace`` and ``output``. Raises OSError."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        return {
            "workspace": os.open(f"{self._disk}/workspace", flags | os.O_NOFOLLOW),
            "output": os.open(f"{self._output}/.", flags),
        }

    def pristine(self) -> Pristine:
        """Return what the workspace is compared with. Raises OSError."""
        if self._noted is not None:
            return self._noted
        if self._listing is not None:
            upper = os.open(self._upper, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if self._upper else None
            return Pristine(self._listing.entries(), upper)
        folder = self._spec["pristine"]
        return Pristine() if folder is None else read_pristine(os.fsencode(folder))

    def _show(self, source: str) -> bool:
        """Show the workspace itself instead of a copy, where that can be done. Returns whether it was."""
        lower = None if self._listing is None else self._listing.owner
        place = f"{self._disk}/workspace"
        if not self._may_mount or self._owner is None or lower is None or self._upper or os.listdir(place):
            return False
        try:
            self._upper = overlay.show(source, lower, self._owner[0], self._disk, place)
        except OSError:
            return False
        return True

    def _areas(self) -> list[tuple[str, str]]:
        return [
            ("disk/tmp", "/tmp"),  # noqa: S108 - the sandbox's own
            ("disk/home", self._spec["home"]),
            ("disk/workspace", self._spec["workdir"]),
            ("output", "/output"),
        ]

    def _path(self, place: str) -> str:
        name, _, rest = place.partition("/")
        return f"{self._disk if name == 'disk' else self._output}/{rest}".rstrip("/")

    def _own(self, path: str, mode: int) -> None:
        os.chmod(path, mode)
        if self._owner is not None:
            os.chown(path, *self._owner)

    def _place(self, target: str) -> tuple[str, str | None]:
        """Return the path to lay a writable target at, its parents made, and the place when no area holds it."""
        for part, area in self._areas():
            if f"{target}/".startswith(f"{area}/"):
                place = self._path(part)
                names = target[len(area) :].strip("/").split("/")
                for name in names[:-1]:
                    place += f"/{name}"
                    if not os.path.isdir(place):
                        os.mkdir(place)
                        self._own(place, 0o755)
                return f"{place}/{names[-1]}".rstrip("/"), None
        place = f"disk/extra{self._extra}"
        self._extra += 1
        return self._path(place), place
