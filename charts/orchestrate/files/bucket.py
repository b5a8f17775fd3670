"""Make the bucket of the bundled store through its file server, which listens on loopback, and say when it really keeps objects."""

from __future__ import annotations

import http.client
import pathlib
import signal
import sys
import time


def keep_one(bucket: str) -> None:
    """Put an object, which makes the folder above it, and such a folder is a bucket. Raises OSError when it is not kept."""
    filer = http.client.HTTPConnection("127.0.0.1", 8888, timeout=10)
    try:
        filer.request("PUT", f"/buckets/{bucket}/.ready", b"ready", {"Content-Type": "text/plain"})
        answer = filer.getresponse()
        if answer.status >= 300:
            msg = f"{answer.status} {answer.reason}"
            raise OSError(msg)
    finally:
        filer.close()


def main(bucket: str) -> None:
    """Try until it works; then stay, since a pod's container must not end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        try:
            keep_one(bucket)
            break
        except (OSError, http.client.HTTPException) as error:
            sys.stderr.write(f"waiting for the store: {error}\n")
            time.sleep(1)
    pathlib.Path("/ready/ready").touch()
    signal.pause()


main(sys.argv[1])
