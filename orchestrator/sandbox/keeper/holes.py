"""Reading a file without its holes, which an agent can make of any size. Standard library only; part of the keeper."""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK = 1 << 20
_ZEROS = memoryview(bytes(_CHUNK))


def read_out(descriptor: int, size: int) -> Iterator[bytes | memoryview]:
    """Yield at most the first ``size`` bytes of a file; the zeros of its holes come from memory. Raises OSError."""
    info = os.fstat(descriptor)
    size = min(size, info.st_size)
    sparse = info.st_blocks * 512 < size
    at, begin, end = 0, 0, 0 if sparse else size
    while at < size:
        if at == end:
            begin, end = _next_data(descriptor, at, size)
        while at < begin:
            zeros = _ZEROS[: begin - at]
            at += len(zeros)
            yield zeros
        while at < end:
            chunk = os.pread(descriptor, min(_CHUNK, end - at), at)
            if not chunk:
                return
            at += len(chunk)
            yield chunk


def _next_data(descriptor: int, at: int, size: int) -> tuple[int, int]:
    """Return where the next bytes lie that have a place on the disk, from and to; all that is left on a disk that does not say."""
    try:
        begin = os.lseek(descriptor, at, os.SEEK_DATA)
        end = os.lseek(descriptor, begin, os.SEEK_HOLE)
    except OSError as error:
        return (size, size) if error.errno == errno.ENXIO else (at, size)
    return min(begin, size), min(end, size)
