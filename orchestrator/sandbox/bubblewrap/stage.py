"""The stage: the keeper's own mount namespace with the sized file systems, laid inputs and everything the sandbox may see.

Standard library only; part of the keeper. As root the keeper takes a private mount namespace and an unprivileged uid for the sandbox; as
anybody else it takes a user namespace first. Everything that is bound goes through the stage folder, so that a folder below a 0700 parent
can be shown without showing the parent.
"""

# pathlib would double the start-up time of the keeper, and names in a sandbox are bytes.
# ruff: noqa: PTH102, PTH103, PTH112, PTH116, PTH119, PTH120

from __future__ import annotations

import os
import stat

from orchestrator.sandbox.keeper import linux
from orchestrator.sandbox.keeper.areas import Areas, sized
from orchestrator.sandbox.keeper.lay import LayError, lay, readable_by_all
from orchestrator.sandbox.keeper.program import KeeperError
from orchestrator.sandbox.keeper.users import take_user

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from typing import Any

_MOUNT_POINTS = ("/mnt", "/media", "/srv", "/opt", "/var/empty", "/var/tmp", "/tmp", "/run")  # noqa: S108 - covered, not written to


class Stage:
    """What the sandbox is made from, once ``make`` has returned. Paths are those of the keeper's namespace."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._early: list[str] = []
        self._late: list[str] = []
        self._count = 0
        self.user: int | None = None
        """The uid and gid to take before bwrap starts; None: our own, in a user namespace."""
        self.folder = ""
        """The mount point."""
        self.bwrap = ""
        """bwrap, where the sandbox's user can execute it."""
        self.areas: Areas
        """What the agent can write."""
        self.writable: list[str] = []
        """Mount points of the sized file systems."""

    def make(self) -> None:
        """Prepare everything. Raises KeeperError and OSError."""
        self.user = take_user()
        if self.user is not None:
            try:
                linux.unshare(linux.CLONE_NEWNS)
            except OSError as error:
                msg = f"root may not make a mount namespace here: {error.strerror} ({error.errno})"
                raise KeeperError(msg, "sandbox_denied") from error
        else:
            _own_user_namespace()
        linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
        self.folder = self._mount_point()
        self._file_systems()
        self._program()
        for source, target in self._spec["binds"]:
            self._early += ["--ro-bind", self._bind(source), target]
        for folder in self._spec["masks"]:
            self._early += ["--tmpfs", folder]
        for package in self._spec["packages"]:
            self._early += ["--ro-bind", self._bind(package), f"/packages/{os.path.basename(package)}"]
        for folder in self._spec["masks"]:
            self._early += ["--remount-ro", folder]
        self._etc()
        for item in self._spec["inputs"]:
            if not item["writable"]:
                self._show(item["source"], item["target"])
            elif place := self.areas.lay(item["source"], item["target"]):
                self._late += ["--bind", f"{self.folder}/{place}", item["target"]]

    def arguments(self) -> list[str]:
        """Return bwrap's arguments, the program not included."""
        spec = self._spec
        result = [*spec["flags"], *self._early]
        for target, name in spec["links"]:
            result += ["--symlink", target, name]
        # Without the last bind a root-started sandbox could open hundreds of kernel settings for writing.
        result += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]
        result += ["--dev", "/dev", "--dev-bind", f"{self.folder}/terminals", "/dev/pts"]
        for part, target in self.areas.places():
            result += ["--bind", f"{self.folder}/{part}", target]
        result += ["--remount-ro", "/dev"]
        return [*result, *self._late, "--remount-ro", "/", "--chdir", spec["workdir"]]

    def _mount_point(self) -> str:
        spec = self._spec
        needed = [spec["bwrap"], spec["pristine"], (spec["door"] or {}).get("socket")]
        needed += [(spec["sink"] or {}).get("socket"), (spec["sink"] or {}).get("folder")]
        needed += (
            spec["packages"] + [source for source, _ in spec["binds"]] + [item["source"] for item in spec["inputs"]]
        )
        paths = [os.path.realpath(path) for path in needed if path]
        for point in _MOUNT_POINTS:
            try:
                info = os.lstat(point)
            except OSError:
                continue
            if (
                stat.S_ISDIR(info.st_mode)
                and info.st_mode & 1
                and not any(f"{path}/".startswith(f"{point}/") for path in paths)
            ):
                return point
        msg = f"none of {', '.join(_MOUNT_POINTS)} is free to be mounted over for a moment; keep run folders out of one of them"
        raise KeeperError(msg)

    def _file_systems(self) -> None:
        flags = linux.MS_NOSUID | linux.MS_NODEV
        linux.mount("stage", self.folder, "tmpfs", flags, "size=16m,mode=0755")
        for part, options in sized(self._spec["limits"]):
            place = f"{self.folder}/{part}"
            os.mkdir(place)
            words = ",".join(f"{name}={value}" for name, value in options.items())
            linux.mount(part, place, "tmpfs", flags, words)
            self.writable.append(place)
        os.mkdir(f"{self.folder}/terminals")
        linux.mount_terminals(f"{self.folder}/terminals")
        owner = None if self.user is None else (self.user, self.user)
        self.areas = Areas(
            self._spec, f"{self.folder}/disk", f"{self.folder}/output", owner, may_mount=owner is not None
        )
        self.areas.make()

    def _bind(self, source: str) -> str:
        """Bind a file or folder of the machine onto the stage and return its place there."""
        place = f"{self.folder}/{self._count}"
        self._count += 1
        try:
            if stat.S_ISDIR(os.stat(source).st_mode):
                os.mkdir(place)
            else:
                os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
            linux.mount(source, place, "", linux.MS_BIND | linux.MS_REC)
        except OSError as error:
            msg = f"{source} cannot be shown to a sandbox: {error.strerror}"
            raise KeeperError(msg) from error
        return place

    def _program(self) -> None:
        """Bind bwrap's folder and its libraries so that the program finds them by its own position."""
        folder = os.path.dirname(self._spec["bwrap"])
        package = os.path.dirname(folder)
        libraries = f"{package}.libs"
        top = f"{self.folder}/bwrap"
        place = f"{top}/{os.path.basename(package)}/{os.path.basename(folder)}"
        os.makedirs(place)
        linux.mount(folder, place, "", linux.MS_BIND | linux.MS_REC)
        if os.path.isdir(libraries):
            os.mkdir(f"{top}/{os.path.basename(libraries)}")
            linux.mount(libraries, f"{top}/{os.path.basename(libraries)}", "", linux.MS_BIND | linux.MS_REC)
        self.bwrap = f"{place}/{os.path.basename(self._spec['bwrap'])}"

    def _etc(self) -> None:
        os.mkdir(f"{self.folder}/etc")
        for name, text in self._spec["etc"].items():
            place = f"{self.folder}/etc/{name}"
            descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.write(descriptor, text.encode())
            os.fchmod(descriptor, 0o644)
            os.close(descriptor)
            self._early += ["--ro-bind", place, f"/etc/{name}"]

    def _show(self, source: str, target: str) -> None:
        shown = source if self.user is None or readable_by_all(os.fsencode(source)) else self._copy(source)
        self._late += ["--ro-bind", self._bind(shown), target]

    def _copy(self, source: str) -> str:
        """Copy what the sandbox's user could not read to a file system beside the agent's, and return its place."""
        top = f"{self.folder}/inputs"
        if not os.path.isdir(top):
            os.mkdir(top)
            linux.mount("inputs", top, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=0755")
        place = f"{top}/{self._count}"
        self._count += 1
        try:
            lay(os.fsencode(source), os.fsencode(place), None, None)
        except LayError as error:
            raise KeeperError(str(error)) from error
        return place


def _own_user_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    try:
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
    except OSError as error:
        msg = f"this user may not make a user namespace: {error.strerror} ({error.errno})"
        raise KeeperError(msg, "sandbox_denied") from error
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        except OSError as error:
            msg = f"this user may not set up a user namespace: {error.strerror} ({error.errno})"
            raise KeeperError(msg, "sandbox_denied") from error
        finally:
            os.close(descriptor)
