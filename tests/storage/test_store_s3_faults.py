"""What may happen on the way to S3 and back, against a real one behind a wire that breaks."""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
import threading
import time
from collections.abc import AsyncIterator

import pytest
from s3_proxy import Answer, Cut, Fault, Half, Late, Lose, Refuse, Request, Wire
from s3_world import ADMIN, BUCKET, Seaweed, client_of, session_of

from orchestrator.errors import StoreError
from orchestrator.storage.s3 import S3Store
from orchestrator.storage.s3_connection import Timing
from orchestrator.storage.s3_place import S3Place, parse_place

QUICK = Timing(patience=20, first=20, read=20, shortest=0.01, longest=0.05)
"""Short pauses: how often is tried does not depend on them."""
IMPATIENT = Timing(patience=0.3, first=0.3, connect=1, read=1, shortest=0.01, longest=0.05)
PART = 5 << 20
"""The smallest part that S3 takes."""


@pytest.fixture
def place(wire: Wire, s3_url: str) -> S3Place:
    direct = parse_place(s3_url)
    return S3Place(
        bucket=direct.bucket, prefix=direct.prefix, endpoint=wire.endpoint, path_style=True, checksums="when_required"
    )


@pytest.fixture
def store(place: S3Place) -> S3Store:
    return S3Store(place, timing=QUICK, part_bytes=PART)


@pytest.fixture
def direct(s3_url: str) -> S3Store:
    """The same store, by an unbroken wire."""
    return S3Store(parse_place(s3_url))


def uploads_under(seaweed: Seaweed, prefix: str) -> list[str]:
    client = client_of(ADMIN, seaweed.endpoint)
    found = client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())
    client.close()
    return [each["Key"] for each in found if each["Key"].startswith(prefix)]


# --- markers -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "faults",
    [
        (Lose(),),
        (Lose(), Lose(), Refuse()),
        (Refuse(), Lose()),
        (Half(0), Half(1)),
        (Answer(503, "SlowDown"), Lose(), Answer(500, "InternalError")),
        (Answer(409, "ConditionalRequestConflict"), Answer(503, ""), Answer(502, "", "<html>a proxy</html>")),
    ],
    ids=str,
)
def test_a_marker_whose_answer_was_lost_is_ours(store: S3Store, wire: Wire, faults: tuple[Fault, ...]) -> None:
    async def scenario() -> None:
        wire.break_next(*faults, when="PUT")
        assert await store.create("outcomes/a", b"ours")
        assert not await store.create("outcomes/a", b"ours")
        assert await store.get("outcomes/a") == b"ours"

    asyncio.run(scenario())
    assert wire.summaries.count("PUT") == len(faults) + 2


def test_a_late_answer_counts_as_lost(place: S3Place, wire: Wire) -> None:
    store = S3Store(place, timing=Timing(read=0.5, shortest=0.01))
    wire.break_next(Late(1), when="PUT")
    assert asyncio.run(store.create("outcomes/a", b"ours"))
    assert wire.summaries.count("PUT") == 2


def test_half_an_object_is_never_ours(place: S3Place, wire: Wire) -> None:
    """A service that keeps what it got of a broken request: seaweedfs does, of a request without a digest."""
    store = S3Store(place, timing=QUICK)
    store._body = lambda data: {"Body": data}
    wire.break_next(Half(0), when="PUT")
    with pytest.raises(StoreError, match="has 0 of its 4 bytes") as caught:
        asyncio.run(store.create("outcomes/a", b"ours"))
    assert caught.value.cause == "store_corrupt"


def test_equal_bytes_of_another_writer_are_not_ours(store: S3Store, direct: S3Store, wire: Wire) -> None:
    async def scenario() -> None:
        assert await direct.create("outcomes/a", b"the same")
        wire.break_next(Lose(), when="PUT")
        assert not await store.create("outcomes/a", b"the same")

    asyncio.run(scenario())


def test_where_metadata_are_dropped_equal_bytes_are_ours(store: S3Store, direct: S3Store, wire: Wire) -> None:
    """Such a service is not seaweedfs, so the object is made without, as it would be there."""

    async def scenario() -> None:
        for there, ours in ((b"ours", True), (b"another's", False)):
            key = f"outcomes/{ours}"

            def commit(request: Request, key: str = key, there: bytes = there) -> Fault | None:
                if request.summary == "PUT":
                    wire.rule = lambda _: None
                    client = client_of(ADMIN, f"http://{wire.upstream}")
                    client.put_object(Bucket=BUCKET, Key=store.place.full_key(key), Body=there)
                    client.close()
                    return Refuse()
                return None

            wire.rule = commit
            assert await store.create(key, b"ours") is ours

    asyncio.run(scenario())


def test_50_writers_of_equal_bytes_on_a_bad_wire_have_one_winner(place: S3Place, wire: Wire) -> None:
    """Each writer has a store of its own; every third answer is lost, others are errors."""
    chance = random.Random(7)
    faults = [Lose(), Lose(), Answer(409, "ConditionalRequestConflict"), Answer(503, "SlowDown"), Refuse(), *[None] * 5]
    wire.rule = lambda request: chance.choice(faults) if request.summary == "PUT" else None
    stores = [S3Store(place, timing=QUICK, threads=4) for _ in range(10)]

    async def scenario() -> list[bool]:
        return await asyncio.gather(*(stores[n % 10].create("outcomes/a", b"equal") for n in range(50)))

    assert sum(asyncio.run(scenario())) == 1
    assert len(wire.seen) > 60
    assert not [each for each in wire.seen if "Expect" in each.headers]  # each would cost its writer a second


def test_s3_may_be_down_for_a_while(store: S3Store, wire: Wire) -> None:
    healing = threading.Timer(1.0, wire.break_next)

    async def scenario() -> None:
        assert not await store.exists("outcomes/a")
        wire.break_all(Answer(503, "SlowDown"))
        healing.start()
        assert await store.create("outcomes/a", b"x")
        assert await store.list("") == ["outcomes/a"]

    asyncio.run(scenario())
    healing.join()
    assert wire.summaries.count("PUT") > 5


@pytest.mark.parametrize(
    ("fault", "cause", "words"),
    [
        (Answer(503, "SlowDown"), "store_busy", "HTTP 503 SlowDown"),
        (Answer(409, "ConditionalRequestConflict"), "store_conflict", "kept it busy"),
        (Answer(500, "InternalError"), "store_unavailable", "HTTP 500"),
        (Refuse(), "store_unavailable", "reachable"),
        (Answer(200, body="<html>Welcome</html>"), "store_answer", "not S3"),
        (Answer(501, "NotImplemented"), "store_unsupported", "doctor"),
        (Answer(507, "XMinioStorageFull"), "store_full", "free space"),
        (
            Answer(403, "RequestTimeTooSkewed", headers={"Date": "Mon, 02 Mar 2026 09:00:00 GMT"}),
            "store_clock",
            "s ahead",
        ),
        (Answer(301, "PermanentRedirect"), "store_region", "elsewhere"),
        (Answer(301, body="<html>Use https</html>"), "store_region", "elsewhere"),
        (Answer(418, "Teapot"), "store_refused", "HTTP 418 Teapot: made by the test"),
    ],
)
def test_what_does_not_pass_is_told(place: S3Place, wire: Wire, fault: Fault, cause: str, words: str) -> None:
    wire.break_all(fault)
    with pytest.raises(StoreError, match=words) as caught:
        asyncio.run(S3Store(place, timing=IMPATIENT).list("outcomes/r/"))
    assert caught.value.cause == cause
    assert "outcomes/r/" in str(caught.value)
    assert wire.endpoint in str(caught.value)


def test_a_web_page_is_never_taken_for_an_answer(place: S3Place, wire: Wire) -> None:
    store = S3Store(place, timing=IMPATIENT, part_bytes=PART)
    wire.break_all(Answer(200, body="<html>Log in to this network</html>"))

    async def scenario() -> None:
        for call in (
            store.create("a", b"x"),
            store.get("a"),
            store.exists("a"),
            store.list("a"),
            anext(store.stream("a")),
            store.create_by_multipart("a", b"x"),
        ):
            with pytest.raises(StoreError, match="something that is not S3 answered") as caught:
                await call
            assert caught.value.cause == "store_answer"

    asyncio.run(scenario())


def test_an_address_where_nothing_answers_is_told_sooner_than_a_service_that_went_away(
    place: S3Place, wire: Wire
) -> None:
    store = S3Store(place, timing=Timing(first=0.2, patience=1.5, shortest=0.01, longest=0.05))

    def seconds_of_failing() -> float:
        begun = time.monotonic()
        with pytest.raises(StoreError, match="see whether the service is up"):
            asyncio.run(store.get("a"))
        return time.monotonic() - begun

    wire.break_all(Refuse())
    assert seconds_of_failing() < 1.5
    wire.break_next()
    assert not asyncio.run(store.exists("a"))
    wire.break_all(Refuse())
    assert seconds_of_failing() >= 1.5


def test_a_time_that_was_signed_too_long_ago_is_signed_again(store: S3Store, wire: Wire) -> None:
    wire.break_next(Answer(403, "RequestTimeTooSkewed"))
    assert asyncio.run(store.create("a", b""))


# --- credentials -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidAccessKeyId", "TokenRefreshRequired"])
def test_credentials_that_no_longer_hold_are_looked_up_again(place: S3Place, wire: Wire, code: str) -> None:
    made = []

    def session():
        made.append(1)
        return session_of(ADMIN)()

    store = S3Store(place, session=session, timing=QUICK)

    async def scenario() -> None:
        await store.create("a", b"")
        # The last refusal arrives when others have long found new credentials, which it must not throw away.
        wire.break_next(*[Answer(403, code)] * 7, Answer(403, code, seconds=1))
        await asyncio.gather(*(store.get("a") for _ in range(8)))

    asyncio.run(scenario())
    assert len(made) == 2


def test_a_rotated_credentials_file_is_read_again(place: S3Place, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "credentials"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))

    def write(key: str, secret: str) -> None:
        file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")

    write("gone", "x" * 20)
    store = S3Store(place, timing=QUICK)
    with pytest.raises(StoreError, match="identity 'gone'") as caught:
        asyncio.run(store.create("a", b""))
    assert caught.value.cause == "store_credentials"
    assert "x" * 20 not in str(caught.value)
    write("admin", "admin-secret-of-the-tests")
    assert asyncio.run(store.create("a", b""))


def test_no_credentials_at_all_are_told(place: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(
        StoreError, match=r"no credentials were found.*give this process valid AWS credentials"
    ) as caught:
        asyncio.run(S3Store(place, timing=QUICK).list(""))
    assert caught.value.cause == "store_credentials"


# --- reading -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["get", "stream"])
def test_a_broken_download_goes_on_where_it_broke(store: S3Store, direct: S3Store, wire: Wire, way: str) -> None:
    data = random.Random(3).randbytes(3_500_000)

    async def scenario() -> None:
        await direct.put_blob("blobs/a", data)
        wire.break_next(Cut(1_300_000), Cut(100_000), Cut(0), Refuse(), Answer(503, "SlowDown"), when="GET")
        if way == "get":
            assert await store.get("blobs/a") == data
        else:
            assert b"".join([piece async for piece in store.stream("blobs/a")]) == data

    asyncio.run(scenario())
    begins = [int(re.match(r"bytes=(\d+)-", each.headers["Range"])[1]) for each in wire.seen if "Range" in each.headers]
    assert begins == sorted(begins)
    assert begins[0] > 1_000_000
    assert len(wire.seen) == 6


def test_a_download_that_never_gets_on_is_given_up(place: S3Place, direct: S3Store, wire: Wire) -> None:
    async def scenario() -> None:
        await direct.put_blob("blobs/a", b"x" * 100_000)
        wire.break_all(Cut(0))
        with pytest.raises(StoreError, match="blobs/a") as caught:
            await S3Store(place, timing=IMPATIENT).get("blobs/a")
        assert caught.value.cause == "store_unavailable"

    asyncio.run(scenario())


def test_an_object_that_changes_while_it_is_read_is_told(
    store: S3Store, direct: S3Store, wire: Wire, seaweed: Seaweed
) -> None:
    client = client_of(ADMIN, seaweed.endpoint)

    async def scenario() -> None:
        await direct.put_blob("blobs/a", b"x" * 3_000_000)
        wire.break_next(Cut(2_000_000))
        stream = store.stream("blobs/a")
        assert len(await anext(stream)) == 1 << 20
        client.put_object(Bucket=BUCKET, Key=store.place.full_key("blobs/a"), Body=b"y" * 3_000_000)
        with pytest.raises(StoreError, match="changed by something else") as caught:
            async for _ in stream:
                pass
        assert caught.value.cause == "store_precondition"

    asyncio.run(scenario())
    client.close()


def test_a_listing_takes_as_many_pages_as_there_are(place: S3Place, wire: Wire) -> None:
    store = S3Store(place, timing=QUICK, page=3)
    keys = [f"outcomes/r/t@a:{number}/1.json" for number in range(10)]

    async def scenario() -> None:
        for key in keys:
            await store.create(key, b"")
        wire.break_next(None, Answer(503, "SlowDown"), Cut(20), Lose(), when="GET list")
        assert await store.list("outcomes/") == sorted(keys)

    asyncio.run(scenario())
    assert wire.summaries.count("GET list") == 4 + 3


# --- multipart ---------------------------------------------------------------------------------------------------------------------------


async def pieces(data: bytes, size: int = 300_000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize(
    ("fault", "when"),
    [
        (Lose(), "POST begin"),
        (Lose(), "PUT part 2"),
        (Answer(503, "SlowDown"), "PUT part 3"),
        (Answer(500, "InternalError"), "POST complete"),
        (Lose(), "POST complete"),
    ],
)
def test_a_large_blob_survives_a_bad_wire(store: S3Store, wire: Wire, fault: Fault, when: str) -> None:
    data = random.Random(5).randbytes(2 * PART + 1_000_000)
    wire.break_next(fault, when=when)

    async def scenario() -> None:
        ref = await store.put_blob("blobs/a", pieces(data))
        assert (ref.sha256, ref.size) == (hashlib.sha256(data).hexdigest(), len(data))
        assert await store.get("blobs/a") == data
        with pytest.raises(StoreError, match="never overwritten") as caught:
            await store.put_blob("blobs/a", pieces(data))
        assert caught.value.cause == "store_exists"

    asyncio.run(scenario())
    assert wire.summaries.count(when) == 2


def test_a_large_blob_is_sent_while_it_is_made(store: S3Store, wire: Wire) -> None:
    async def made() -> AsyncIterator[bytes]:
        for number in range(4):
            yield bytes(PART)
            # One part may be waiting and one be looked ahead for, not more.
            assert len([each for each in wire.summaries if "part" in each]) >= number - 1

    asyncio.run(store.put_blob("blobs/a", made()))
    assert [each for each in wire.summaries if "PUT" in each] == [f"PUT part {n}" for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("when", ["PUT part 2", "POST complete"])
def test_an_upload_that_is_refused_leaves_nothing(store: S3Store, wire: Wire, seaweed: Seaweed, when: str) -> None:
    wire.break_next(Answer(403, "AccessDenied"), when=when)

    async def scenario() -> None:
        with pytest.raises(StoreError, match="s3:PutObject"):
            await store.put_blob("blobs/a", pieces(bytes(2 * PART)))
        assert await store.list("") == []

    asyncio.run(scenario())
    assert wire.summaries[-2] == "DELETE complete"
    assert uploads_under(seaweed, store.place.root) == []


@pytest.mark.parametrize("how", ["error", "cancel"])
def test_a_sender_that_ends_early_leaves_nothing(store: S3Store, wire: Wire, seaweed: Seaweed, how: str) -> None:
    async def broken(waiting: asyncio.Event) -> AsyncIterator[bytes]:
        yield bytes(PART + 1)
        if how == "error":
            msg = "the sender is gone"
            raise ConnectionError(msg)
        waiting.set()
        await asyncio.Event().wait()

    async def scenario() -> None:
        waiting = asyncio.Event()
        writing = asyncio.create_task(store.put_blob("blobs/a", broken(waiting)))
        if how == "cancel":
            await waiting.wait()
            writing.cancel()
        with pytest.raises((ConnectionError, asyncio.CancelledError)):
            await writing
        assert await store.list("") == []

    asyncio.run(scenario())
    assert "POST begin" in wire.summaries
    assert uploads_under(seaweed, store.place.root) == []
