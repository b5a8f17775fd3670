"""Fetching bundles from the gateway and laying them, while they come. Standard library only."""

# pathlib would double the start-up time, and names in a bundle are bytes.
# ruff: noqa: PTH101, PTH102, PTH108, PTH114, PTH118, PTH208, PTH211, S103

from __future__ import annotations

import os

from orchestrator.sandbox.keeper.http import Reply, connect, head
from orchestrator.sandbox.keeper.small import json_text, new_sha256
from orchestrator.sandbox.pod.talk import STALL_SECONDS, Patience
from orchestrator.sandbox.pod.untar import BundleError, Member, Stream, members, shown
from orchestrator.sandbox.pod.world import BAD_BUNDLE, GATEWAY_AWAY, PREPARE_FAILED, PodError, failure

TYPE_CHECKING = False  # importing ``typing`` would cost a tenth of the start
if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.sandbox.pod.pristine import Noted

_NO_BYTES = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


class Route:
    """Where a folder of a bundle goes."""

    def __init__(self, folder: str, place: str, noted: Noted | None = None) -> None:
        """Take the folder (the whole bundle when empty), an empty folder to lay it in, and who notes what is laid."""
        self.prefix = f"{folder.strip('/')}/".encode() if folder.strip("/") else b""
        self.place = os.fsencode(place)
        self.noted = noted
        self._made = {self.place}

    def path(self, member: Member) -> bytes | None:
        """Return the path of a member below the place, its folders made; None: it goes elsewhere. Raises OSError."""
        if not member.path.startswith(self.prefix):
            return None
        path = member.path[len(self.prefix) :]
        full = os.path.join(self.place, path)
        self._make(full if member.kind == "dir" else full.rpartition(b"/")[0])
        return path

    def clear(self) -> None:
        """Remove what was laid. Raises OSError."""
        for folder, below, names in os.walk(self.place, topdown=False):
            for name in names:
                os.unlink(os.path.join(folder, name))
            for name in below:
                path = os.path.join(folder, name)
                (os.unlink if os.path.islink(path) else os.rmdir)(path)
        self._made = {self.place}
        if self.noted is not None:
            self.noted.clear()

    def _make(self, folder: bytes) -> None:
        missing = []
        while folder not in self._made:
            missing.append(folder)
            folder = folder.rpartition(b"/")[0]
        for each in reversed(missing):
            os.mkdir(each, 0o755)
            os.chmod(each, 0o755)  # a volume's group bit is no bundle's
            self._made.add(each)
            if self.noted is not None:
                self.noted.folder(each[len(self.place) + 1 :])


class Fetching:
    """One bundle on its way."""

    def __init__(self, address: str, token: str, audience: str, digest: str, most: int) -> None:
        """Take the gateway, the token of prepare, which bundle, and how many bytes its files may have."""
        self._address = address
        self._token = token
        self._path = f"/launch/bundle/{audience}/{digest}"
        self._name = f"{audience} bundle {digest}"
        self._digest = digest
        self._most = most

    def lay(self, routes: list[Route], seconds: float) -> None:
        """Fetch and lay it, again from the start when the gateway fails. Raises PodError."""
        patience = Patience(seconds)
        while True:
            failure = self._try(routes, patience)
            if failure is None:
                return
            if not patience.wait(failure):
                message = (
                    f"the gateway {self._address} did not give the {self._name} for {seconds:g} s: {patience.failure}"
                )
                raise PodError(GATEWAY_AWAY, "gateway_unreachable", message)
            try:
                for route in routes:
                    route.clear()
            except OSError as error:
                raise _cannot_lay(error) from error

    def _try(self, routes: list[Route], patience: Patience) -> str | None:
        """Return what failed, when it may go better next time. Raises PodError."""
        try:
            connection = connect(self._address, STALL_SECONDS)
            with connection_closed(connection):
                connection.sendall(head("GET", self._path, self._token))
                reply = Reply(connection)
                if reply.status == 200:
                    self._lay(Stream(reply.pieces()), routes)
                    return None
                told = reply.text(2000)
        except OSError as error:
            return str(error.strerror or error)
        if reply.status == 401:
            patience.unknown(self._address)
        elif reply.status < 500 and reply.status not in (408, 429):
            message = f"the gateway does not give the {self._name}: HTTP {reply.status} {told:.300}"
            raise PodError(BAD_BUNDLE, "bundle", message)
        return f"HTTP {reply.status}: {told:.300}"

    def _lay(self, stream: Stream, routes: list[Route]) -> None:
        tree = new_sha256()
        tree.update(b"[")
        size = 0
        try:
            for count, member in enumerate(members(stream)):
                size += member.size
                if size > self._most:
                    raise BundleError(f"its files are more than {self._most} bytes")
                digest = _lay_member(member, stream, routes)
                row = f'["{member.kind}",{member.mode},{json_text(member.path.decode())},"{digest}"]'
                tree.update(("," + row if count else row).encode())
        except (BundleError, UnicodeDecodeError) as error:
            raise PodError(BAD_BUNDLE, "bundle", f"the {self._name} is none: {error}") from None
        tree.update(b"]")
        if f"sha256:{tree.hexdigest()}" != self._digest:
            message = f"what came as {self._name} has the digest sha256:{tree.hexdigest()}"
            raise PodError(BAD_BUNDLE, "bundle", message)


class connection_closed:  # noqa: N801 - contextlib takes 5 ms to load, and its ``closing`` reads like this
    """Close a connection at the end of a block."""

    def __init__(self, connection: object) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        """Nothing is to be done."""

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self._connection.close()  # type: ignore[attr-defined]


def _lay_member(member: Member, stream: Stream, routes: list[Route]) -> str:
    """Lay one path wherever it goes; returns the digest of its bytes. Raises PodError, BundleError and OSError of the connection."""
    try:
        laid = [(route, path) for route in routes if (path := route.path(member)) is not None]
    except OSError as error:
        raise _cannot_lay(error) from error
    if member.kind == "dir":
        return _NO_BYTES
    if member.kind == "symlink":
        return _lay_link(member, laid)
    executable = bool(member.mode & 0o100)
    files = [_new_file(os.path.join(route.place, path)) for route, path in laid]
    sha = new_sha256()
    try:
        for piece in stream.chunks(member.size):
            sha.update(piece)
            for file in files:
                _write(file, piece)
    finally:
        for file in files:
            os.fchmod(file, 0o755 if executable else 0o644)
            os.close(file)
    digest = sha.hexdigest()
    for route, path in laid:
        if route.noted is not None:
            route.noted.leaf(path, ("file", executable, member.size, digest, None))
    return digest


def _lay_link(member: Member, laid: list[tuple[Route, bytes]]) -> str:
    for route, path in laid:
        # A folder of the bundle may be laid alone: what its links reach must be in that folder.
        if _climbs(path, member.target):
            raise BundleError(f"{shown(member.path)} is a symbolic link that leaves the folder")
        try:
            os.symlink(member.target, os.path.join(route.place, path))
        except OSError as error:
            raise _cannot_lay(error) from error
        if route.noted is not None:
            route.noted.leaf(path, ("symlink", False, 0, None, member.target))
    sha = new_sha256()
    sha.update(member.target)
    return sha.hexdigest()


def _climbs(path: bytes, target: bytes) -> bool:
    return target.split(b"/").count(b"..") > path.count(b"/")


def _new_file(path: bytes) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _cannot_lay(error) from error


def _write(file: int, piece: bytes) -> None:
    view = memoryview(piece)
    try:
        while view:
            view = view[os.write(file, view) :]
    except OSError as error:
        raise _cannot_lay(error) from error


def _cannot_lay(error: OSError) -> PodError:
    place = "" if error.filename is None else f" {os.fsdecode(error.filename)}"
    return failure(PREPARE_FAILED, f"cannot lay{place}: {error.strerror}")


def folder_chunks(folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of each file in a folder of this image. Raises OSError."""
    for name in sorted(os.listdir(folder)):
        with open(f"{folder}/{name}", "rb") as file:  # noqa: PTH123
            yield name, file.read()
