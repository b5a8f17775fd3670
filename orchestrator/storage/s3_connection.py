"""Calls to S3 that are tried until they succeed or cannot: backoff, new credentials, one kind of error.

boto3's own retries are off: whoever writes a marker must know whether an earlier try may have arrived.
"""

from __future__ import annotations

import asyncio
import functools
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from orchestrator.errors import StoreError
from orchestrator.storage.s3_errors import Doing, answered, classify, foreign, translate
from orchestrator.storage.s3_place import S3Place

T = TypeVar("T")

_MAKING = threading.Lock()
"""boto3 makes sessions and clients in one thread at a time."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long S3 is waited for, in seconds."""

    patience: float = 120
    """One call is tried again for so long, while S3 is down or limits requests: more than a restart or a bad minute."""
    first: float = 30
    """The same while nothing has ever answered: then a wrong address is likelier than a bad minute."""
    connect: float = 10
    """To open a connection."""
    read: float = 60
    """For an answer to begin, and between its pieces."""
    shortest: float = 0.1
    """The first pause between two tries; each is twice the one before, less up to half of it by chance."""
    longest: float = 8
    """The longest pause."""


class Tries:
    """How often one call was tried."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.count = 0
        self.remedies: set[str] = set()
        """Remedies that help once or never."""

    @property
    def again(self) -> bool:
        """Whether an earlier try may have been carried out without our hearing of it."""
        return self.count > 1


class Connection:
    """One S3 client, made when it is first needed and anew when its credentials no longer hold."""

    def __init__(self, place: S3Place, session: Callable[[], Any] | None, timing: Timing, threads: int) -> None:
        self.place = place
        self._session = session or _default_session
        self._timing = timing
        self._threads = threads
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="s3")
        self._client: Any = None
        self._identity = "nobody: no credentials were found"
        self.credentials_from = "nowhere"
        """Kind of place where the credentials were found, in boto3's words."""
        self._answered = False

    @property
    def identity(self) -> str:
        """Who asks, in words; known after the first call."""
        return self._identity

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Run a function in one of the store's own threads: the shared ones are too few for many slow calls."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, functools.partial(function, *args))

    async def call(self, doing: Doing, function: Callable[[Any], T], tries: Tries | None = None) -> T:
        """Return what the function makes of the client, however often it must be tried; it runs in a thread.

        ``tries`` tells the caller afterwards whether an earlier try may have been carried out. Raises StoreError.
        """
        tries = tries or Tries()
        while True:
            tries.count += 1
            used = self._client
            try:
                used = used or await self.run(self._made)
                result = await self.run(function, used)
            except foreign() as error:
                self._answered = self._answered or answered(error)
                if await self._helped(error, tries, used):
                    continue
                seconds = time.monotonic() - tries.begun
                raise translate(error, doing, self.place, self._identity, seconds) from error
            self._answered = True
            return result

    async def _helped(self, error: Exception, tries: Tries, used: Any) -> bool:
        """Do what may help against an error, and return whether another try is worth while."""
        remedy = classify(error).remedy
        if remedy == "wait":
            return await self._wait(tries)
        if remedy == "none" or remedy in tries.remedies:
            return False
        tries.remedies.add(remedy)
        if remedy == "renew" and self._client is used:  # unless another call has renewed it meanwhile
            self._client = None
        return True

    async def _wait(self, tries: Tries) -> bool:
        timing = self._timing
        patience = timing.patience if self._answered else min(timing.first, timing.patience)
        if time.monotonic() - tries.begun >= patience:
            return False
        longest = min(timing.longest, timing.shortest * 2 ** min(tries.count - 1, 20))
        await asyncio.sleep(longest * random.uniform(0.5, 1))  # noqa: S311 - it only has to differ among writers
        return True

    def _made(self) -> Any:
        with _MAKING:
            if self._client is None:
                self._client = self._new_client()
            return self._client

    def _new_client(self) -> Any:
        from botocore.config import Config

        config = Config(
            s3={"addressing_style": "path"} if self.place.path_style else {},
            retries={"mode": "standard", "total_max_attempts": 1},
            connect_timeout=self._timing.connect,
            read_timeout=self._timing.read,
            max_pool_connections=self._threads,
            request_checksum_calculation=self.place.checksums,
            response_checksum_validation=self.place.checksums,
            tcp_keepalive=True,
        )
        try:
            session = self._session()
            credentials = session.get_credentials()
            if credentials is not None:
                self._identity = f"the identity {credentials.get_frozen_credentials().access_key!r}"
                self.credentials_from = str(credentials.method)
            region = self.place.region or session.region_name or "us-east-1"
            client = session.client("s3", region_name=region, endpoint_url=self.place.endpoint, config=config)
        except ValueError as error:
            msg = f"no connection to {self.place} can be made: {error}; correct the AWS configuration of this process"
            raise StoreError(msg, cause="store_client") from error
        client.meta.events.register_last("before-call.s3", _at_once)
        if self.place.endpoint:
            client.meta.events.register("before-call.s3", _stay)
        return client


def _at_once(params: dict[str, Any], **_: Any) -> None:
    """Send bodies without asking first.

    A service asks for a body only when its writer's turn has come, and boto3 waits a whole second for that: with many
    writers of one marker all but the first lose that second, and no body here is large.
    """
    params["headers"].pop("Expect", None)


def _stay(params: dict[str, Any], **_: Any) -> None:
    """Keep boto3 from looking for the bucket in other regions: an address that was given has none.

    It would ask the same address again, and without end when that is a web server that redirects everything.
    """
    params.get("context", {}).get("s3_redirect", {})["redirected"] = True


def _default_session() -> Any:
    """Return a session with whatever credentials this process has: environment, profile, role.

    They are looked up anew, which finds a rotated file. The service's description is read once for all sessions: reading it
    takes longer than everything else.
    """
    import boto3
    import botocore.session

    inner = botocore.session.Session()
    inner.register_component("data_loader", _loader())
    return boto3.session.Session(botocore_session=inner)


@functools.cache
def _loader() -> Any:
    from botocore.loaders import create_loader

    return create_loader()
