"""The stage of a container: sized file systems, laid inputs and views of read-only ones, attached inside before anything runs there.

Standard library only; part of the keeper. ``make`` runs on the machine, while the engine starts the container; ``attach`` runs in a child
that has entered the container's namespaces, so a link of the image leads nowhere but into the image.
"""

# pathlib would double the start-up time of the keeper, and names in a sandbox are bytes.
# ruff: noqa: PTH103, PTH106, PTH110, PTH112, PTH116, PTH119, PTH120, PTH123

from __future__ import annotations

import contextlib
import os
import stat

from orchestrator.sandbox.keeper import linux, mounts
from orchestrator.sandbox.keeper.areas import Areas, sized
from orchestrator.sandbox.keeper.lay import LayError, lay, readable_by_all
from orchestrator.sandbox.keeper.program import KeeperError

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from typing import Any

    _Input = tuple[int | str, str, bool, bool]
    """A descriptor of a mount or a place on our file systems, where it is seen, whether it is a file, whether it can be written."""

_FOYER = "/.orchestrate"
"""Where the file systems are attached for a moment, to show parts of them elsewhere."""
_ETC_BYTES = 1 << 20


class Stage:
    """What the sandbox is made from, once ``make`` has returned."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._trees: dict[str, int] = {}
        self._inputs: list[_Input] = []
        self._copies = 0
        self.areas: Areas
        """What the agent can write."""
        self.writable: list[int] = []
        """Open folders of the sized file systems."""

    def make(self) -> None:
        """Prepare everything. Raises KeeperError and OSError."""
        spec = self._spec
        for name, options in sized(spec["limits"]):
            tree = self._trees[name] = mounts.make_tmpfs(name, options)
            self.writable.append(os.open(f"{_path(tree)}/.", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        self._trees["own"] = mounts.make_tmpfs("own", {"mode": "0755"})
        owner: tuple[int, int] = tuple(spec["owner"])
        self.areas = Areas(spec, _path(self._trees["disk"]), _path(self._trees["output"]), owner)
        self.areas.make()
        for package in spec["packages"]:
            self._show(package, f"/packages/{os.path.basename(package)}")
        for item in spec["inputs"]:
            if not item["writable"]:
                self._show(item["source"], item["target"])
            elif place := self.areas.lay(item["source"], item["target"]):
                self._inputs.append((place, item["target"], not _is_folder(item["source"]), True))

    def attach(self) -> None:
        """Put everything into the container. For a child that has entered its namespaces as root. Raises OSError."""
        linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
        etc = [(f"own/{name}", f"/etc/{name}") for name in self._etc_names()]
        self._make_points([target for _, target in etc])
        self._close_image()
        for name, tree in self._trees.items():
            mounts.attach(tree, f"{_FOYER}/{name}", through_links=True)
        self._write_etc()
        for place, target in etc:
            _bind(f"{_FOYER}/{place}", target, writable=False)
        for place, target in self.areas.places():
            _bind(f"{_FOYER}/{place}", target, writable=True)
        for shown, target, is_file, writable in self._inputs:
            _point(target, folder=not is_file)
            if isinstance(shown, int):
                mounts.attach(shown, target, through_links=True)
            else:
                _bind(f"{_FOYER}/{shown}", target, writable=writable)
        self._remove_foyer()

    def _make_points(self, files: list[str]) -> None:
        """Make every mount point that the image lacks, while its root can be written."""
        mounts.allow("/", mounts.READ_ONLY)
        for name in self._trees:
            _point(f"{_FOYER}/{name}", folder=True)
        for target in files:
            _point(target, folder=False)
        for _, target in self.areas.places():
            _point(target, folder=True)
        for _, target, is_file, _ in self._inputs:
            _point(target, folder=not is_file)

    def _close_image(self) -> None:
        """Make everything that the engine has put into the container read-only, and take away what tells of the machine."""
        for place in ("/sys", "/dev/mqueue"):
            with contextlib.suppress(OSError):  # an engine may not have mounted it
                linux.unmount(place)
        mounts.restrict("/", mounts.READ_ONLY | mounts.NO_SETUID, below=True)
        with contextlib.suppress(OSError):
            mounts.allow("/proc", mounts.READ_ONLY)
        if os.path.isdir("/dev/pts"):
            linux.mount_terminals("/dev/pts")

    def _remove_foyer(self) -> None:
        for name in self._trees:
            linux.unmount(f"{_FOYER}/{name}")
        mounts.allow("/", mounts.READ_ONLY)
        for name in self._trees:
            os.rmdir(f"{_FOYER}/{name}")
        os.rmdir(_FOYER)
        mounts.restrict("/", mounts.READ_ONLY, below=False)

    def _etc_names(self) -> list[str]:
        return [
            name for name in self._spec["etc"] if name != "nsswitch.conf" or not os.path.exists("/etc/nsswitch.conf")
        ]

    def _write_etc(self) -> None:
        """Write the generated files of ``/etc``. What the image says of users stays, with the agent added."""
        for name in self._spec["etc"]:
            text = self._spec["etc"][name]
            made = _with_agent(name, text, self._spec["owner"][0]) if name in {"passwd", "group"} else text
            descriptor = os.open(f"{_FOYER}/own/{name}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.write(descriptor, made.encode("utf-8", "surrogateescape"))
            os.fchmod(descriptor, 0o644)
            os.close(descriptor)

    def _show(self, source: str, target: str) -> None:
        try:
            is_file = not _is_folder(source)
            public = readable_by_all(os.fsencode(source))
            self._inputs.append((mounts.show(source) if public else self._copy(source), target, is_file, False))
        except LayError as error:
            raise KeeperError(str(error)) from error
        except OSError as error:
            msg = f"{source} cannot be shown to a sandbox: {error.strerror}"
            raise KeeperError(msg) from error

    def _copy(self, source: str) -> str:
        """Copy what the agent could not read to a file system beside its own, and return the place there."""
        place = f"own/copy{self._copies}"
        self._copies += 1
        lay(os.fsencode(source), os.fsencode(f"{_path(self._trees['own'])}/{place[4:]}"), None, None)
        return place


def _is_folder(path: str) -> bool:
    return stat.S_ISDIR(os.stat(path).st_mode)


def _path(tree: int) -> str:
    return f"/proc/self/fd/{tree}"


def _point(target: str, *, folder: bool) -> None:
    """Make a mount point where there is none. Raises OSError."""
    if os.path.exists(target):
        return
    os.makedirs(target if folder else os.path.dirname(target), exist_ok=True)
    if not folder:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))


def _bind(source: str, target: str, *, writable: bool) -> None:
    linux.mount(source, target, "", linux.MS_BIND)
    if not writable:
        mounts.restrict(target, mounts.READ_ONLY, below=False)


def _with_agent(name: str, own: str, user: int) -> str:
    """Return the image's list of users or groups, the agent's line of ours added when the image has nobody of that id."""
    try:
        with open(f"/etc/{name}", encoding="utf-8", errors="surrogateescape") as file:
            there = file.read(_ETC_BYTES)
    except OSError:
        return own
    if any(line.split(":")[2:3] == [str(user)] for line in there.splitlines()):
        return there
    agent = next(line for line in own.splitlines() if line.startswith("agent:"))
    return there + ("" if not there or there.endswith("\n") else "\n") + agent + "\n"
