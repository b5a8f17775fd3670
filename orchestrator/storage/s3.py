"""The object store in S3, or in a service that speaks S3.

A marker is one single PUT with ``If-None-Match: *``: of any number of writers one wins. A try whose answer was lost may
have won, so each writer lays a word of its own into its object's metadata and recognises it when the next try finds the
name taken. Blobs above a part's size are multipart uploads, which need keys of their own: on some services the condition
does not hold for them. An upload that fails is aborted; what a killed writer leaves is no object, but is stored until a
lifecycle rule of the bucket (AbortIncompleteMultipartUpload) removes it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hashlib
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from orchestrator.errors import NotFoundError, StoreError
from orchestrator.interfaces import Stored
from orchestrator.records.base import BlobRef
from orchestrator.records.keys import RUNS
from orchestrator.storage.names import check_prefix
from orchestrator.storage.s3_connection import Connection, Timing, Tries
from orchestrator.storage.s3_errors import PRECONDITION, RANGE, UPLOAD, Doing, checked
from orchestrator.storage.s3_place import S3Place
from orchestrator.storage.s3_read import Download
from orchestrator.storage.s3_sweep import MOST_DELETED, Greeting, delete_batch, objects_of, service_time

_Stored = list[Stored]
_Done = list[dict[str, Any]]
"""Number and ETag of each part that is sent."""
_MIB = 1 << 20
_MOST_PARTS = 10_000
_ABORT_SECONDS = 10
_ATTEMPT = "attempt"
"""Name of the metadata by which a writer recognises its own object."""


class S3Store:
    """ObjectStore in a bucket. Safe for many threads and processes at once. Nothing is contacted before the first call.

    Of a large blob three parts of ``part_bytes`` (5 MiB or more) are in memory at most; ``page`` is how many keys one listing request
    asks for; ``threads`` is how many requests are under way at most.
    """

    def __init__(
        self,
        place: S3Place,
        *,
        session: Callable[[], Any] | None = None,
        timing: Timing | None = None,
        part_bytes: int = 8 * _MIB,
        page: int = 1000,
        threads: int = 32,
    ) -> None:
        self.place = place
        self._connection = Connection(place, session, timing or Timing(), threads)
        self._part_bytes = part_bytes
        self._page = page

    def __repr__(self) -> str:
        return f"S3Store({str(self.place)!r})"

    def __str__(self) -> str:
        return str(self.place)

    async def put_blob(self, key: str, data: bytes | AsyncIterator[bytes]) -> BlobRef:
        """Write a large object; digest and size are computed while sending.

        Raises StoreError; for a key that is taken its cause is ``store_exists``.
        """
        self.place.full_key(key)
        parts = _parts(data, self._part_bytes)
        first = await anext(parts, b"")
        if len(first) < self._part_bytes:
            if not await self.create(key, first):
                raise _taken(key)
            return BlobRef(key=key, sha256=hashlib.sha256(first).hexdigest(), size=len(first))
        if await self.exists(key):
            raise _taken(key)
        return await self._multipart(key, first, parts)

    async def create(self, key: str, data: bytes) -> bool:
        """Create a marker. True: ours and durable. False: the key was taken."""
        target, attempt, tries = self._target(key), uuid.uuid4().hex, Tries()
        body = self._body(data)

        def put(client: Any) -> None:
            checked(client.put_object(**target, **body, IfNoneMatch="*", Metadata={_ATTEMPT: attempt}), "ETag")

        try:
            await self._connection.call(Doing("write", "s3:PutObject", key), put, tries)
        except StoreError as error:
            if error.cause != PRECONDITION:
                raise
            return tries.again and await self._is_ours(key, attempt, data)
        return True

    async def get(self, key: str) -> bytes:
        """Return a whole object. Raises NotFoundError, StoreError."""
        download = Download(self._target(key))
        doing = Doing("read", "s3:GetObject", key)
        return await self._connection.call(doing, download.rest)

    async def stream(self, key: str) -> AsyncIterator[bytes]:
        """Yield an object's bytes in chunks of at most 1 MiB; a broken connection is taken up where it broke.

        Raises NotFoundError, StoreError.
        """
        download = Download(self._target(key))
        doing = Doing("read", "s3:GetObject", key)
        try:
            while chunk := await self._connection.call(doing, download.next):
                yield chunk
        finally:
            download.close()

    async def exists(self, key: str) -> bool:
        """Return whether there is an object under the key."""
        # Not HEAD: its answer has no body, so a missing bucket would look like a missing object.
        target = self._target(key)

        def peek(client: Any) -> None:
            checked(client.get_object(**target, Range="bytes=0-0"), "ETag")["Body"].close()

        try:
            await self._connection.call(Doing("look at", "s3:GetObject", key), peek)
        except NotFoundError:
            return False
        except StoreError as error:
            if error.cause != RANGE:  # an empty object has no first byte
                raise
        return True

    async def list(self, prefix: str) -> list[str]:
        """Return all keys that begin with the prefix, sorted."""
        return [each.key for each in await self.stored(prefix)]

    async def stored(self, prefix: str) -> _Stored:
        """Return all objects whose keys begin with the prefix, with size and age, sorted by key."""
        check_prefix(prefix)
        found: _Stored = []
        token = ""
        while True:
            page = await self._connection.call(
                Doing("list", "s3:ListBucket", prefix), functools.partial(self._list_page, prefix, token)
            )
            found += objects_of(page, self.place.root)
            if not page.get("IsTruncated"):
                return sorted(found, key=lambda each: each.key)
            after = page.get("NextContinuationToken") or ""
            if after in {"", token}:
                msg = f"the store ended its list of {prefix!r} in {self.place} in the middle; use another service"
                raise StoreError(msg, cause="store_answer")
            token = after

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, a thousand with each request; what is not there is no error."""
        for start in range(0, len(keys), MOST_DELETED):
            batch = keys[start : start + MOST_DELETED]
            targets = [self._target(key) for key in batch]
            doing = Doing("delete", "s3:DeleteObject", batch[0])
            await self._connection.call(doing, functools.partial(delete_batch, targets))

    async def greet(self) -> Greeting:
        """Ask for one key and return who we are and what time it is there. Raises StoreError."""
        page = await self._connection.call(
            Doing("list", "s3:ListBucket", RUNS), functools.partial(self._list_page, RUNS, "", most=1)
        )
        return Greeting(
            identity=self._connection.identity,
            credentials_from=self._connection.credentials_from,
            time=service_time(page),
        )

    async def create_by_multipart(self, key: str, data: bytes) -> bool:
        """Create an object by a multipart upload with a condition, for the probe alone: markers never are.

        True: the service says that it is ours.
        """
        upload = await self._begin(key, uuid.uuid4().hex)
        try:
            part = await self._put_part(key, upload, 1, data)
            await self._complete(key, upload, [part], Tries())
        except StoreError as error:
            await self._abort(key, upload)
            if error.cause not in {PRECONDITION, UPLOAD, "store_conflict"}:
                raise
            return False
        return True

    def _target(self, key: str) -> dict[str, str]:
        return {"Bucket": self.place.bucket, "Key": self.place.full_key(key)}

    def _body(self, data: bytes) -> dict[str, Any]:
        """Return a request's body, with a digest where boto3 sends none.

        Without one, seaweedfs makes an empty object of a PUT whose connection ends before the first byte of its body.
        """
        if self.place.checksums == "when_supported":
            return {"Body": data}
        digest = hashlib.md5(data, usedforsecurity=False).digest()
        return {"Body": data, "ContentMD5": base64.b64encode(digest).decode()}

    async def _is_ours(self, key: str, attempt: str, data: bytes | int) -> bool:
        """Return whether the object that took the name is ours, from a try whose answer was lost.

        For a service that drops metadata its bytes must be ours; of a blob, whose name is its own, its size.
        """
        target = self._target(key)
        doing = Doing("look at", "s3:GetObject", key)
        head = await self._connection.call(doing, lambda client: client.head_object(**target))
        written, size = head.get("Metadata", {}).get(_ATTEMPT), data if isinstance(data, int) else len(data)
        if written == attempt and head["ContentLength"] != size:
            msg = f"{key!r} in {self.place} has {head['ContentLength']} of its {size} bytes: the service kept half; use another"
            raise StoreError(msg, cause="store_corrupt")
        if written is not None:
            return bool(written == attempt)
        return bool(head["ContentLength"] == size) and (isinstance(data, int) or await self.get(key) == data)

    async def _multipart(self, key: str, first: bytes, parts: AsyncIterator[bytes]) -> BlobRef:
        attempt, sha256, size = uuid.uuid4().hex, hashlib.sha256(), 0
        upload = await self._begin(key, attempt)
        try:
            done: _Done = []
            async for part in _chained(first, parts):
                if len(done) == _MOST_PARTS:
                    raise _too_large(key, size)
                await self._connection.run(sha256.update, part)
                size += len(part)
                done.append(await self._put_part(key, upload, len(done) + 1, part))
            tries = Tries()
            try:
                await self._complete(key, upload, done, tries)
            except StoreError as error:
                if error.cause not in {PRECONDITION, UPLOAD}:
                    raise
                if not (tries.again and await self._is_ours(key, attempt, size)):
                    raise _taken(key) if error.cause == PRECONDITION else error from None
        except BaseException:  # a cancelled writer too: what it sent would be stored, and paid for, unseen
            await self._abort(key, upload)
            raise
        return BlobRef(key=key, sha256=sha256.hexdigest(), size=size)

    async def _begin(self, key: str, attempt: str) -> dict[str, str]:
        target = self._target(key)
        answer = await self._connection.call(
            _writing(key),
            lambda client: checked(client.create_multipart_upload(**target, Metadata={_ATTEMPT: attempt}), "UploadId"),
        )
        return {**target, "UploadId": answer["UploadId"]}

    async def _put_part(self, key: str, upload: dict[str, str], number: int, part: bytes) -> dict[str, Any]:
        body = await self._connection.run(self._body, part)
        answer = await self._connection.call(
            _writing(key),
            lambda client: checked(client.upload_part(**upload, PartNumber=number, **body), "ETag"),
        )
        return {"PartNumber": number, "ETag": answer["ETag"]}

    async def _complete(self, key: str, upload: dict[str, str], done: _Done, tries: Tries) -> None:
        parts = {"Parts": done}
        await self._connection.call(
            _writing(key),
            lambda client: checked(
                client.complete_multipart_upload(**upload, MultipartUpload=parts, IfNoneMatch="*"), "ETag"
            ),
            tries,
        )

    async def _abort(self, key: str, upload: dict[str, str]) -> None:
        doing = Doing("abort an upload of", "s3:AbortMultipartUpload", key)
        call = self._connection.call(doing, lambda client: client.abort_multipart_upload(**upload))
        # If it fails, a lifecycle rule removes the parts; the error that led here is the one to tell.
        with contextlib.suppress(StoreError, TimeoutError):
            await asyncio.wait_for(call, _ABORT_SECONDS)

    def _list_page(self, prefix: str, token: str, client: Any, most: int = 0) -> dict[str, Any]:
        after = {"ContinuationToken": token} if token else {}
        prefix = f"{self.place.root}{prefix}"
        page = client.list_objects_v2(Bucket=self.place.bucket, Prefix=prefix, MaxKeys=most or self._page, **after)
        return checked(page, "IsTruncated")


def _writing(key: str) -> Doing:
    return Doing("write", "s3:PutObject", key)


def _taken(key: str) -> StoreError:
    msg = f"there is already an object {key!r} in the store; blobs are never overwritten"
    return StoreError(msg, cause="store_exists")


def _too_large(key: str, size: int) -> StoreError:
    msg = f"{key!r} is larger than {size} bytes, which is what {_MOST_PARTS} parts hold: limit the disk of the task"
    return StoreError(msg, cause="store_size")


async def _parts(data: bytes | AsyncIterator[bytes], size: int) -> AsyncIterator[bytes]:
    """Yield the data in parts of exactly ``size`` bytes and a shorter last one."""
    if isinstance(data, bytes):
        for start in range(0, len(data), size):
            yield data[start : start + size]
        return
    held = bytearray()
    async for piece in data:
        held += piece
        while len(held) >= size:
            with memoryview(held) as view:
                part = bytes(view[:size])
            del held[:size]
            yield part
    if held:
        yield bytes(held)


async def _chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for each in rest:
        yield each
