"""What is special about a store in S3: its URL, its errors, and that boto3 costs nobody else anything."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_world import ADMIN, BUCKET, Seaweed, client_of, session_of

from orchestrator.errors import NotFoundError, SpecError, StoreError
from orchestrator.storage.open import open_store
from orchestrator.storage.s3 import S3Store
from orchestrator.storage.s3_errors import CLASSES, CODES, STATUSES, Doing, classify, translate
from orchestrator.storage.s3_place import S3Place, parse_place

PLACE = S3Place(bucket="bucket", prefix="team")
DOING = Doing("read", "s3:GetObject", "runs/r/manifest.json")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("s3://bucket", S3Place(bucket="bucket")),
        ("s3://bucket/", S3Place(bucket="bucket")),
        ("s3://my.bucket-1/a/b/", S3Place(bucket="my.bucket-1", prefix="a/b")),
        ("s3://bucket/with%20space", S3Place(bucket="bucket", prefix="with space")),
        ("s3://bucket?region=eu-central-1", S3Place(bucket="bucket", region="eu-central-1")),
        (
            "s3://bucket/p?endpoint=http://10.0.0.7:8333",
            S3Place(
                bucket="bucket", prefix="p", endpoint="http://10.0.0.7:8333", path_style=True, checksums="when_required"
            ),
        ),
        (
            "s3://bucket?endpoint=https%3A%2F%2Fs3.example&region=x&path_style=false&checksums=when_supported",
            S3Place(bucket="bucket", endpoint="https://s3.example", region="x"),
        ),
    ],
)
def test_urls(url: str, place: S3Place) -> None:
    store = open_store(url)
    assert isinstance(store, S3Store)
    assert store.place == place


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://", "write s3://BUCKET/PREFIX"),
        ("s3:///prefix", "write s3://BUCKET/PREFIX"),
        ("s3://Bucket/p", "'Bucket' is not a bucket"),
        ("s3://b/../c", "is not a bucket"),
        ("s3://bucket/../c", "begins with a dot"),
        ("s3://bucket/a//b", "empty part"),
        ("s3://bucket/a#b", "#"),
        ("s3://bucket?endpiont=http://x", r"did you mean 'endpoint'\?"),
        ("s3://bucket?endpoint=x:8333", "http:// or https:// address"),
        ("s3://bucket?endpoint=http://x/?a=b", "NAME=VALUE|known are|address"),
        ("s3://bucket?path_style=yes", "path_style must be true or false, not 'yes'"),
        ("s3://bucket?checksums=off", "checksums must be when_supported or when_required"),
        ("s3://bucket?region=", "the option 'region' needs one value"),
        ("s3://bucket?region=a&region=b", "the option 'region' needs one value"),
        ("s3://bucket?path_style", "NAME=VALUE"),
    ],
)
def test_urls_that_mean_nothing(url: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        open_store(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:hunter2@bucket/p",
        "s3://bucket?secret_key=hunter2",
        "s3://bucket?endpoint=http://key:hunter2@host",
    ],
)
def test_a_secret_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(SpecError) as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)


def test_boto3_is_loaded_by_the_first_call_alone() -> None:
    code = (
        "import sys; from orchestrator.storage.open import open_store; import orchestrator.cli.main; "
        "open_store('s3://bucket'); print([m for m in ('boto3', 'botocore', 'urllib3') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("call", ["get", "exists", "list", "stream"])
def test_a_missing_bucket_is_not_a_missing_object(seaweed: Seaweed, call: str) -> None:
    place = parse_place(seaweed.url().replace(f"//{BUCKET}/", "//no-such-bucket/"))
    store = S3Store(place, session=session_of(ADMIN))

    async def scenario() -> None:
        with pytest.raises(StoreError, match="create the bucket") as caught:
            await (anext(store.stream("a")) if call == "stream" else getattr(store, call)("a"))
        assert caught.value.cause == "store_bucket"
        assert "no-such-bucket" in str(caught.value)

    asyncio.run(scenario())


def test_stores_of_one_bucket_are_apart_by_prefix(seaweed: Seaweed, s3_url: str) -> None:
    one, other = open_store(s3_url), open_store(seaweed.url())

    async def scenario() -> None:
        assert await one.create("a/b", b"1")
        assert await other.create("a/b", b"2")
        assert (await one.get("a/b"), await other.get("a/b")) == (b"1", b"2")
        assert await one.list("") == await other.list("") == ["a/b"]

    asyncio.run(scenario())


def test_a_folder_that_a_console_made_is_no_object(seaweed: Seaweed, s3_url: str) -> None:
    store = S3Store(parse_place(s3_url))
    client = client_of(ADMIN, seaweed.endpoint)
    client.put_object(Bucket=BUCKET, Key=f"{store.place.root}runs/", Body=b"")
    client.close()
    assert asyncio.run(store.list("")) == []


def test_checksums_of_s3_itself_work_where_a_service_has_them(seaweed: Seaweed, s3_url: str) -> None:
    store = open_store(f"{s3_url}&checksums=when_supported")

    async def scenario() -> None:
        assert await store.create("a", b"x")
        assert await store.get("a") == b"x"
        await store.put_blob("b", b"y" * (9 << 20))
        assert await store.get("b") == b"y" * (9 << 20)

    asyncio.run(scenario())


def test_keys_that_are_too_long_with_the_prefix_are_told(s3_url: str) -> None:
    store = S3Store(S3Place(bucket="bucket", prefix="p" * 255))
    with pytest.raises(StoreError, match="S3 takes 1024") as caught:
        asyncio.run(store.create("/".join("k" * 255 for _ in range(4)), b""))
    assert caught.value.cause == "store_name"


def test_a_blob_of_too_many_parts_is_refused(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.storage.s3._MOST_PARTS", 2)
    store = S3Store(parse_place(s3_url), part_bytes=5 << 20)

    async def scenario() -> None:
        with pytest.raises(StoreError, match="larger than 10485760 bytes") as caught:
            await store.put_blob("blobs/a", bytes((10 << 20) + 1))
        assert caught.value.cause == "store_size"
        assert await store.list("") == []

    asyncio.run(scenario())


# --- the mapping of errors ---------------------------------------------------------------------------------------------------------------

CAUSES = {fault.cause for table in (CODES, STATUSES, CLASSES) for fault in table.values()} | {"store_refused"}


def exceptions_of_boto3() -> Iterator[type[Exception]]:
    import boto3.exceptions
    import botocore.exceptions
    import botocore.parsers
    import urllib3.exceptions

    for module in (botocore.exceptions, botocore.parsers, boto3.exceptions, urllib3.exceptions):
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, Exception) and not issubclass(kind, Warning) and kind.__module__ == module.__name__:
                yield kind


def made_of(kind: type[Exception]) -> Exception:
    """Return an instance, whatever its maker wants to know."""
    error = kind.__new__(kind, "words")
    error.__dict__.update(partial=1, expected=2, length=3, _response=None)  # what some show of themselves
    return error


def test_every_exception_of_boto3_becomes_a_store_error_with_a_stable_cause() -> None:
    from botocore.exceptions import BotoCoreError, HTTPClientError
    from urllib3.exceptions import HTTPError

    kinds = list(exceptions_of_boto3())
    assert len(kinds) > 100
    for kind in kinds:
        error = made_of(kind)
        made = translate(error, DOING, PLACE, "the identity 'key'")
        assert isinstance(made, StoreError)
        assert made.cause in CAUSES, kind
        assert made.cause.startswith("store_")
        named = [each.__name__ for each in kind.__mro__ if each.__name__ in CLASSES]
        assert named or not issubclass(kind, (BotoCoreError, HTTPError)), kind
        if issubclass(kind, HTTPClientError) and kind.__name__ not in {"SSLError", "InvalidProxiesConfigError"}:
            assert classify(error).remedy == "wait", kind


def test_every_exception_about_credentials_looks_for_new_ones() -> None:
    for kind in exceptions_of_boto3():
        if re.search("Credential|Token(?!Provider)|SSO|Login", kind.__name__) and "Parse" not in kind.__name__:
            assert classify(made_of(kind)).cause == "store_credentials", kind


DOCUMENTED = re.findall(
    r"\w+",
    """
AccessDenied AccountProblem AllAccessDisabled AuthorizationHeaderMalformed BadDigest ConditionalRequestConflict EntityTooLarge
EntityTooSmall ExpiredToken IllegalLocationConstraintException IncompleteBody InternalError InvalidAccessKeyId InvalidBucketName
InvalidDigest InvalidPart InvalidPartOrder InvalidRange InvalidSecurity InvalidToken InvalidURI KeyTooLongError MethodNotAllowed
NoSuchBucket NoSuchKey NoSuchUpload NoSuchVersion NotImplemented NotSignedUp OperationAborted PermanentRedirect PreconditionFailed
Redirect RequestTimeout RequestTimeTooSkewed ServiceUnavailable SignatureDoesNotMatch SlowDown TemporaryRedirect
TokenRefreshRequired
""",
)
"""The codes of S3's own list that the store's requests can meet."""


@pytest.mark.parametrize("code", [*DOCUMENTED, *sorted({*CODES} - {*DOCUMENTED})])
def test_every_error_code_has_its_own_meaning(code: str) -> None:
    assert code in CODES
    made = translate(answer(code, 400), DOING, PLACE, "the identity 'key'")
    assert isinstance(made, NotFoundError) == (CODES[code].cause == "store_not_found")
    assert made.cause in CAUSES
    assert DOING.key in str(made)


def test_every_status_of_an_unknown_code_has_a_meaning() -> None:
    for status in (*range(300, 600), 0):
        fault = classify(answer("SomethingNew", status))
        assert fault.cause in CAUSES
        if status >= 500 and status not in {501, 507}:
            assert fault.remedy == "wait", status
    assert classify(answer("404", 404)).cause == "store_bucket"
    assert classify(answer("", 503)).cause == "store_busy"


def test_denial_says_who_needs_what_where() -> None:
    made = translate(
        answer("AccessDenied", 403), Doing("list", "s3:ListBucket", "outcomes/r/"), PLACE, "the identity 'AKIA1'"
    )
    assert str(made) == (
        "the identity 'AKIA1' may not list 'outcomes/r/' in s3://bucket/team (HTTP 403 AccessDenied: why); "
        "it needs s3:ListBucket on bucket bucket for the prefix team/outcomes/*: give it that right, or use another identity"
    )


def answer(code: str, status: int) -> Exception:
    from botocore.exceptions import ClientError

    return ClientError(
        {"Error": {"Code": code, "Message": "why"}, "ResponseMetadata": {"HTTPStatusCode": status}}, "GetObject"
    )


def test_the_urls_of_the_readme_are_understood() -> None:
    urls = re.findall(r"s3://[^\s'`]+", (Path(__file__).parents[2] / "README.md").read_text())
    assert len(set(urls)) >= 2  # a plain one, and one with an endpoint
    for url in urls:
        given = url.replace("BUCKET", "bucket").replace("HOST:PORT", "127.0.0.1:8333")
        assert isinstance(open_store(given), S3Store)
