"""Reading one object of S3 in pieces, over as many connections as it takes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from orchestrator.errors import StoreError
from orchestrator.storage.s3_errors import checked, foreign

_CHUNK = 1 << 20


class Download:
    """An object that is being read. Its methods run in threads, one at a time; after a failure they go on where it was.

    The first answer says how long the object is and which version (ETag) it is; every later one must be of the same version.
    """

    def __init__(self, target: Mapping[str, str]) -> None:
        self._target = target
        self._body: Any = None
        self._offset = 0
        self._size = -1
        self._version = ""
        self._pieces: list[bytes] = []

    def next(self, client: Any) -> bytes:
        """Return at most 1 MiB more; nothing at the end, after exactly as many bytes as the object has."""
        try:
            if self._body is None and self._offset != self._size:
                self._open(client)
            piece: bytes = b"" if self._body is None else self._body.read(_CHUNK)
            if not piece:
                self._check_end()
        except BaseException:  # of this connection nothing more is read, whatever happened
            self.close()
            raise
        self._offset += len(piece)
        return piece

    def rest(self, client: Any) -> bytes:
        """Return everything that was not read yet, as one."""
        while piece := self.next(client):
            self._pieces.append(piece)
        return b"".join(self._pieces)

    def close(self) -> None:
        """Give the connection up."""
        body, self._body = self._body, None
        if body is not None:
            with contextlib.suppress(*foreign()):
                body.close()

    def _open(self, client: Any) -> None:
        if not self._version:
            answer = checked(client.get_object(**self._target), "ETag", "ContentLength")
            self._size, self._version = answer["ContentLength"], answer["ETag"]
        else:
            answer = client.get_object(**self._target, Range=f"bytes={self._offset}-", IfMatch=self._version)
            if answer.get("ContentRange") != f"bytes {self._offset}-{self._size - 1}/{self._size}":
                answer["Body"].close()
                msg = f"{self._target['Key']!r} cannot be read on from byte {self._offset}: the service has no ranges; use another"
                raise StoreError(msg, cause="store_unsupported")
        self._body = answer["Body"]

    def _check_end(self) -> None:
        if self._offset != self._size:
            from botocore.exceptions import IncompleteReadError

            raise IncompleteReadError(actual_bytes=self._offset, expected_bytes=self._size)
        self.close()
