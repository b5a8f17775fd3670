"""Make the bucket of the bundled store through its file server, which listens on loopback, and say when it really keeps objects."""

import pathlib
import signal
import sys
import time
import urllib.request

FILER = "http://127.0.0.1:8888/buckets/"


def put(url):
    request = urllib.request.Request(url, data=b"ready", method="PUT", headers={"Content-Type": "text/plain"})
    with urllib.request.urlopen(request, timeout=10):
        pass


def main(bucket):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        try:
            put(f"{FILER}{bucket}/.ready")  # makes the folder above it, and such a folder is a bucket
            break
        except OSError as error:
            print(f"waiting for the store: {error}", file=sys.stderr, flush=True)
            time.sleep(1)
    pathlib.Path("/ready/ready").touch()
    signal.pause()


main(sys.argv[1])
