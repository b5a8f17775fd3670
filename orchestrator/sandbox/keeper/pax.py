"""A deterministic PAX tar, written header by header: no time, no owner, no names. Standard library only; part of the keeper."""

from __future__ import annotations

BLOCK = 512
END = bytes(2 * BLOCK)

_REGULAR = b"0"
_LINK = b"2"
_FOLDER = b"5"
_EXTENDED = b"x"
_BIGGEST_OCTAL = 8**11 - 1


def header(path: bytes, kind: str, mode: int, size: int, target: bytes = b"") -> bytes:
    """Return the blocks before an entry's content.

    ``kind`` is ``file``, ``dir`` or ``symlink``; only the nine permission bits of ``mode`` are kept. Names that plain headers cannot hold,
    and bytes that are no UTF-8, go into an extended header.
    """
    flag = {"file": _REGULAR, "dir": _FOLDER, "symlink": _LINK}[kind]
    name = path + b"/" if kind == "dir" else path
    size = size if kind == "file" else 0
    records = b""
    if not _plain(name):
        records += _record(b"path", name)
    if not _plain(target):
        records += _record(b"linkpath", target)
    if size > _BIGGEST_OCTAL:
        records += _record(b"size", str(size).encode())
    blocks = b""
    if records:
        if not _is_utf8(name) or not _is_utf8(target):
            records = _record(b"hdrcharset", b"BINARY") + records
        blocks = _block(b"././@PaxHeader", _EXTENDED, 0o644, len(records), b"") + records + padding(len(records))
    return blocks + _block(name[:100], flag, mode & 0o777, size if size <= _BIGGEST_OCTAL else 0, target[:100])


def padding(size: int) -> bytes:
    """Return the zero bytes that fill the last block of ``size`` bytes."""
    return bytes(-size % BLOCK)


def _plain(name: bytes) -> bool:
    return len(name) <= 100 and name.isascii()


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _record(key: bytes, value: bytes) -> bytes:
    body = b" " + key + b"=" + value + b"\n"
    length = len(body)
    while length != len(body) + len(str(length)):
        length = len(body) + len(str(length))
    return str(length).encode() + body


def _block(name: bytes, flag: bytes, mode: int, size: int, target: bytes) -> bytes:
    head = b"".join(
        (
            name.ljust(100, b"\0"),
            b"%07o\0" % mode,
            b"0000000\0" * 2,
            b"%011o\0" % size,
            b"00000000000\0",
            b" " * 8,
            flag,
            target.ljust(100, b"\0"),
            b"ustar\x0000",
            bytes(64),
            b"0000000\0" * 2,
            bytes(167),
        )
    )
    return head[:148] + b"%06o\0 " % sum(head) + head[156:]
