"""A real S3 for tests: one seaweedfs for the whole session, with an identity for each writer, on loopback alone."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from s3_proxy import Wire, wire_to

from orchestrator.storage.identities import IDENTITIES, policy

BUCKET = "orchestrate"
ADMIN = "admin"
_STORE = "store"
"""Prefix below which the identities have their rights."""
_WATCHED = '"$@" & child=$!; trap "kill -9 $child" EXIT; cat'
"""The server ends with its standard input, so also when the tests are killed."""


@dataclass(frozen=True)
class Seaweed:
    endpoint: str

    def url(self, prefix: str | None = None, endpoint: str | None = None) -> str:
        """Return the URL of an empty store, or of the one with that prefix."""
        where = quote(endpoint or self.endpoint, safe=":/")
        return f"s3://{BUCKET}/{prefix or uuid.uuid4().hex}?endpoint={where}"

    @property
    def shared_url(self) -> str:
        """The URL of the store in which the identities have their rights."""
        return self.url(_STORE)


def secret(name: str) -> str:
    return f"{name}-secret-of-the-tests"


def environment(name: str) -> dict[str, str]:
    """Return the variables by which boto3's default chain finds that identity, and nothing else."""
    return {
        "AWS_ACCESS_KEY_ID": name,
        "AWS_SECRET_ACCESS_KEY": secret(name),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/nonexistent/config",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent/credentials",
    }


def session_of(name: str):
    """Return a maker of boto3 sessions of that identity."""

    def make():
        import boto3

        return boto3.session.Session(aws_access_key_id=name, aws_secret_access_key=secret(name))

    return make


def client_of(name: str, endpoint: str):
    """Return a bare boto3 client of that identity, to do what the store itself never does."""
    from botocore.config import Config

    config = Config(
        s3={"addressing_style": "path"},
        retries={"total_max_attempts": 1},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return session_of(name)().client("s3", endpoint_url=endpoint, region_name="us-east-1", config=config)


def _identities() -> str:
    def entry(name: str, **rights: object) -> dict[str, object]:
        return {"name": name, "credentials": [{"accessKey": name, "secretKey": secret(name)}], **rights}

    documents = {each.name: policy(each, BUCKET, _STORE, conditional=False) for each in IDENTITIES}
    return json.dumps(
        {
            "identities": [
                entry(ADMIN, actions=["Admin", "Read", "Write", "List"]),
                *(entry(name, policyNames=[name]) for name in documents),
            ],
            "policies": [{"name": name, "content": json.dumps(document)} for name, document in documents.items()],
        }
    )


def _free_ports(count: int) -> list[int]:
    """Return ports that are free with 10,000 added too: the server's own protocol listens there.

    Looked for from a place of this process's own, for two may look at the same time.
    """
    found: list[int] = []
    for port in range(20_000 + os.getpid() * 16 % 2_000, 22_500):
        with contextlib.ExitStack() as stack:
            try:
                for each in (port, port + 10_000):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", each))
            except OSError:
                continue
            found.append(port)
        if len(found) == count:
            return found
    msg = f"no {count} free ports"
    raise RuntimeError(msg)


class Server:
    """One seaweedfs process in a folder of its own, which may be killed and started again on the same data and ports."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._ports = _free_ports(4)
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = f"http://127.0.0.1:{self._ports[-1]}"
        (root / "s3.json").write_text(_identities())
        (root / "data").mkdir()

    def start(self) -> None:
        root, (master, volume, filer, s3) = self._root, self._ports
        command = [
            str(Path(sys.executable).parent / "weed"), "-logdir", str(root), "server",
            f"-dir={root}/data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
            "-s3", "-s3.ip.bind=127.0.0.1", f"-s3.port={s3}", f"-s3.config={root}/s3.json", "-s3.port.iceberg=0", "-s3.port.lance=0",
            f"-s3.localSocket={root}/s3.sock", f"-filer.localSocket={root}/filer.sock",
            f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}",
            "-volume.max=0", "-master.volumeSizeLimitMB=128", "-master.telemetry=false", "-master.electionTimeout=1s",
        ]  # fmt: skip
        with (root / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", _WATCHED, "sh", *command],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, cwd=root, start_new_session=True,
            )  # fmt: skip
        self._await_ready()

    def kill(self) -> None:
        """End it as a crash would: SIGKILL, at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdin.close()
        for port in self._ports:  # it has no option for where these are
            for left in Path("/tmp").glob(f"seaweedfs-*-grpc-{port + 10_000}.sock"):
                left.unlink()

    def _await_ready(self) -> None:
        deadline = time.monotonic() + 40
        while True:
            try:
                with urllib.request.urlopen(f"{self.endpoint}/healthz", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self._root / "log").read_text(errors="replace")[-2000:])
            time.sleep(0.05)  # the server tells nobody when it is ready


def _first_write(client: Any) -> None:
    """Wait until the new server takes objects: it answers before it has room for them."""
    from botocore.exceptions import BotoCoreError, ClientError

    deadline = time.monotonic() + 40
    while True:
        try:
            client.put_object(Bucket=BUCKET, Key="first", Body=b"x")
            return
        except (BotoCoreError, ClientError):
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


@contextlib.contextmanager
def own_server() -> Iterator[Server]:
    """A running server for one test, with the bucket in it."""
    root = Path(tempfile.mkdtemp(prefix="s3-", dir="/tmp"))
    server = Server(root)
    server.start()
    try:
        client = client_of(ADMIN, server.endpoint)
        client.create_bucket(Bucket=BUCKET)
        _first_write(client)
        client.close()
        yield server
    finally:
        server.kill()
        shutil.rmtree(root, ignore_errors=True)


class _Shared:
    """The one server of a session, however many folders of tests ask for it."""

    users = 0
    stack = contextlib.ExitStack()
    server: Seaweed | None = None


@pytest.fixture(scope="session")
def seaweed() -> Iterator[Seaweed]:
    """A real S3, the same for every folder of tests whose conftest.py imports this."""
    if _Shared.server is None:
        _Shared.server = Seaweed(_Shared.stack.enter_context(own_server()).endpoint)
    _Shared.users += 1
    yield _Shared.server
    _Shared.users -= 1
    if not _Shared.users:
        _Shared.server = None
        _Shared.stack.close()


@pytest.fixture
def s3_url(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty store, with credentials for all of it in the environment."""
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in environment(ADMIN).items():
        monkeypatch.setenv(name, value)
    return seaweed.url()


@pytest.fixture
def wire(seaweed: Seaweed, s3_url: str) -> Iterator[Wire]:
    """A breakable wire to the real S3."""
    with wire_to(seaweed.endpoint) as wire:
        yield wire
