"""Reading the tar of a bundle while it comes. Standard library only.

Python's own ``tarfile`` takes most of the time of a workspace of many files. What is read here is only what bundles are made of: files,
folders and symbolic links with relative names, in order, extended headers for long or non-ASCII names. Everything else raises.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing ``typing`` would cost a tenth of the start
if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK = 512
_EXTENDED_BYTES = 1 << 20
_KINDS = {b"0": "file", b"\0": "file", b"2": "symlink", b"5": "dir"}


class BundleError(Exception):
    """This is no bundle; the message says what is wrong with it."""


class Member:
    """One path of a bundle. Its bytes are read from the stream, at once."""

    def __init__(self, path: bytes, kind: str, mode: int, size: int, target: bytes) -> None:
        self.path = path
        self.kind = kind
        self.mode = mode
        self.size = size
        self.target = target


class Stream:
    """Pieces of any size, read by number of bytes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._data = b""
        self._at = 0

    def take(self, most: int) -> bytes:
        """Return at least one and at most so many bytes. Raises BundleError at the end, OSError."""
        if self._at == len(self._data):
            self._at = 0
            self._data = b""
            while not self._data:
                piece = next(self._pieces, None)
                if piece is None:
                    raise BundleError("it ends too early")
                self._data = piece
        found = self._data[self._at : self._at + most]
        self._at += len(found)
        return found

    def exactly(self, size: int) -> bytes:
        """Return so many bytes."""
        found = self.take(size) if size else b""
        while len(found) < size:
            found += self.take(size - len(found))
        return found

    def chunks(self, size: int) -> Iterator[bytes]:
        """Yield the bytes of a member, then skip what fills its last block."""
        left = size
        while left:
            piece = self.take(left)
            left -= len(piece)
            yield piece
        self.exactly(-size % _BLOCK)


def members(stream: Stream) -> Iterator[Member]:
    """Yield each path; the bytes of a file have to be read before the next. Raises BundleError and OSError."""
    last = b""
    links: set[bytes] = set()
    while (member := _next(stream)) is not None:
        _check(member, last, links)
        last = member.path
        if member.kind == "symlink":
            links.add(member.path)
        yield member


def _next(stream: Stream) -> Member | None:
    extended: dict[bytes, bytes] = {}
    while True:
        block = stream.exactly(_BLOCK)
        if not any(block):
            return None
        _check_sum(block)
        flag = block[156:157]
        size = _octal(block[124:136])
        if flag != b"x":
            return _member(block, flag, size, extended)
        if size > _EXTENDED_BYTES:
            raise BundleError("an extended header is too long")
        extended = _records(b"".join(stream.chunks(size)))


def _member(block: bytes, flag: bytes, size: int, extended: dict[bytes, bytes]) -> Member:
    kind = _KINDS.get(flag)
    path = extended.get(b"path") or _with_prefix(block)
    if kind is None:
        raise BundleError(f"{shown(path)} is no file, folder or symbolic link")
    if b"size" in extended:
        if not extended[b"size"].isdigit():
            raise BundleError("a size is no number")
        size = int(extended[b"size"])
    target = extended.get(b"linkpath") or _text(block[157:257]) if kind == "symlink" else b""
    return Member(
        path.rstrip(b"/") if kind == "dir" else path,
        kind,
        _octal(block[100:108]),
        size if kind == "file" else 0,
        target,
    )


def _check(member: Member, last: bytes, links: set[bytes]) -> None:
    """Refuse what no bundle holds, so that nothing is written outside of its folder."""
    parts = member.path.split(b"/")
    if any(part in (b"", b".", b"..") for part in parts) or b"\0" in member.path:
        raise BundleError(f"{shown(member.path)} is no plain relative path")
    if member.path <= last:
        raise BundleError(f"{shown(member.path)} is out of order")
    if links and any(b"/".join(parts[:count]) in links for count in range(1, len(parts))):
        raise BundleError(f"{shown(member.path)} is below a symbolic link")
    if member.kind == "symlink" and _leaves(len(parts) - 1, member.target):
        raise BundleError(f"{shown(member.path)} is a symbolic link that leaves the folder")


def _leaves(depth: int, target: bytes) -> bool:
    if not target or target.startswith(b"/") or b"\0" in target:
        return True
    parts = [part for part in target.split(b"/") if part not in (b"", b".")]
    up = 0
    while up < len(parts) and parts[up] == b"..":
        up += 1
    return b".." in parts[up:] or up > depth


def _check_sum(block: bytes) -> None:
    if _octal(block[148:156]) != sum(block) - sum(block[148:156]) + 8 * 32:
        raise BundleError("it is no tar: a header's sum is wrong")


def _records(data: bytes) -> dict[bytes, bytes]:
    found = {}
    while data:
        length, _, rest = data.partition(b" ")
        size = int(length) if length.isdigit() else 0
        record = rest[: max(0, size - len(length) - 1)]
        key, equals, value = record.partition(b"=")
        if not size or size > len(data) or not equals or not value.endswith(b"\n"):
            raise BundleError("an extended header cannot be read")
        found[key] = value[:-1]
        data = data[size:]
    return found


def _with_prefix(block: bytes) -> bytes:
    prefix = _text(block[345:500])
    name = _text(block[:100])
    return prefix + b"/" + name if prefix else name


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _octal(field: bytes) -> int:
    digits = field.strip(b" \0")
    if digits.strip(b"01234567"):
        raise BundleError(f"it is no tar: {digits[:20]!r} is no number")
    return int(digits, 8) if digits else 0


def shown(path: bytes) -> str:
    """Return a path for people, on one line."""
    return repr(path.decode("utf-8", "backslashreplace")[:200])
