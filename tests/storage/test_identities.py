"""Every identity of a cluster, on a real S3: each access it needs is allowed, each other one is refused."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from s3_world import ADMIN, BUCKET, Seaweed, client_of, session_of

from orchestrator.errors import StoreError
from orchestrator.records import keys
from orchestrator.records.ids import TrialId
from orchestrator.storage.identities import IDENTITIES, PREFIXES, Identity, identity, policy
from orchestrator.storage.s3 import S3Store
from orchestrator.storage.s3_place import parse_place

NAMES = [each.name for each in IDENTITIES]


@pytest.fixture(scope="module")
def there(seaweed: Seaweed) -> str:
    """Objects under every prefix, for all to try their rights on; returns the root of their keys."""
    client = client_of(ADMIN, seaweed.endpoint)
    for prefix in PREFIXES:
        client.put_object(Bucket=BUCKET, Key=f"store/{prefix}there", Body=b"x")
    client.close()
    return "store/"


def refused(call: Any, **arguments: Any) -> bool:
    from botocore.exceptions import ClientError

    try:
        call(Bucket=BUCKET, **arguments)
    except ClientError as error:
        if error.response["Error"]["Code"] != "AccessDenied":
            raise
        return True
    return False


@pytest.mark.parametrize("name", NAMES)
def test_the_matrix_of_accesses(seaweed: Seaweed, there: str, name: str) -> None:
    who = identity(name)
    client = client_of(name, seaweed.endpoint)
    wrong = []
    for prefix in PREFIXES:
        new, old = f"{there}{prefix}by-{name}", f"{there}{prefix}there"
        upload = {"MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": '"x"'}]}, "UploadId": "u"}
        tried = {
            "put": (refused(client.put_object, Key=new, Body=b"x", IfNoneMatch="*"), prefix in who.put),
            "begin": (refused(client.create_multipart_upload, Key=f"{new}-2"), prefix in who.put),
            "get": (refused(client.get_object, Key=old), prefix in who.read),
            "list": (refused(client.list_objects_v2, Prefix=f"{there}{prefix}"), prefix in {*who.read, *who.delete}),
            "delete": (refused(client.delete_object, Key=new), prefix in who.delete),
        }
        if prefix not in who.put:
            tried["complete"] = (refused(client.complete_multipart_upload, Key=f"{new}-3", **upload), False)
        wrong += [(prefix, what) for what, (denied, allowed) in tried.items() if denied is allowed]
    client.close()
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_nobody_sees_all_of_the_bucket_or_changes_it(seaweed: Seaweed, there: str, name: str) -> None:
    client = client_of(name, seaweed.endpoint)
    assert refused(client.list_objects_v2)
    assert refused(client.list_objects_v2, Prefix=there)
    assert refused(client.get_object, Key="elsewhere/there")
    assert refused(client.put_object, Key="elsewhere/there", Body=b"")
    assert refused(client.put_bucket_policy, Policy=json.dumps(policy(identity(name), BUCKET)))
    assert refused(client.delete_bucket)
    client.close()


def test_each_writer_can_do_its_work_and_is_told_what_it_lacks(seaweed: Seaweed) -> None:
    async def scenario() -> None:
        for who in (each for each in IDENTITIES if each.put):
            store = S3Store(parse_place(seaweed.shared_url), session=session_of(who.name))
            for prefix in who.put:
                key = f"{prefix}work-of-{who.name}"
                assert not await store.exists(key)
                assert await store.create(key, b"x")
                assert not await store.create(key, b"y")
                assert await store.get(key) == b"x"
                assert key in await store.list(prefix)
            ref = await store.put_blob(f"{who.put[0]}blob-of-{who.name}", b"z" * (9 << 20))
            assert ref.size == 9 << 20
            lacked = next(prefix for prefix in PREFIXES if prefix not in who.put)
            with pytest.raises(StoreError) as caught:
                await store.create(f"{lacked}x", b"")
            assert caught.value.cause == "store_denied"
            assert f"the identity {who.name!r} may not write" in str(caught.value)
            assert f"it needs s3:PutObject on arn:aws:s3:::{BUCKET}/store/{lacked}*" in str(caught.value)

    asyncio.run(scenario())


SAMPLES = {
    "audience": ("sandbox", "world", "graders", "solutions"),
    "digest": ("sha256:0",),
    "run": ("r",),
    "trial": (TrialId("task", "agent", 1),),
    "launch": (1,),
    "epoch": (1,),
    "name": ("seal.json",),
    "unique": ("u",),
    "grader_digest": ("sha256:0",),
    "table": ("trials",),
    "suite": ("starter",),
    "month": ("2026-01",),
    "sha256": ("0" * 64,),
    "number": (1,),
    "offset": (0,),
    "hundred": (0,),
    "kind": ("runs", "objects"),
    "step": ("begun", "done"),
    "writer": ("host-1-2",),
}


def spelled_keys() -> Iterator[str]:
    """Yield a key of every function that spells one; a parameter without a sample fails here."""
    for _, function in inspect.getmembers(keys, inspect.isfunction):
        of_here = function.__module__ == keys.__name__ and not function.__name__.startswith("_")
        if of_here and function.__annotations__["return"] == "str":
            names = inspect.signature(function).parameters
            for arguments in itertools.product(*(SAMPLES[name] for name in names)):
                yield function(*arguments)


def test_every_key_has_one_prefix_and_a_writer() -> None:
    found = list(spelled_keys())
    assert len(found) > 10
    for key in found:
        homes = [prefix for prefix in PREFIXES if key.startswith(prefix)]
        assert len(homes) == 1, key
        assert any(homes[0] in each.put for each in IDENTITIES), key


def test_writers_are_apart() -> None:
    for prefix in PREFIXES:
        writers = {each.name for each in IDENTITIES if prefix in each.put}
        assert len(writers) == 1 or writers == {"gateway", "relay"}, prefix
    assert [each.name for each in IDENTITIES if each.delete] == ["gc"]
    assert not any(set(each.put) & set(each.delete) for each in IDENTITIES)
    assert identity("gc").put == ("removed/",)
    starts_agents = ("driver", "gateway", "relay", "reader")
    assert not any("bundles/graders/" in identity(name).read for name in starts_agents)
    assert not any("grades/" in identity(name).put for name in starts_agents)


def test_the_policy_for_s3_itself_denies_creation_without_the_condition() -> None:
    document = policy(Identity(name="relay", put=("blobs/",), get=("runs/",)), "bucket", "team/a")
    assert document == {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "Put",
                "Effect": "Allow",
                "Action": ["s3:PutObject", "s3:AbortMultipartUpload"],
                "Resource": ["arn:aws:s3:::bucket/team/a/blobs/*"],
            },
            {
                "Sid": "Get",
                "Effect": "Allow",
                "Action": ["s3:GetObject"],
                "Resource": ["arn:aws:s3:::bucket/team/a/runs/*", "arn:aws:s3:::bucket/team/a/blobs/*"],
            },
            {
                "Sid": "List",
                "Effect": "Allow",
                "Action": ["s3:ListBucket"],
                "Resource": ["arn:aws:s3:::bucket"],
                "Condition": {"StringLike": {"s3:prefix": ["team/a/runs/*", "team/a/blobs/*"]}},
            },
            {
                "Sid": "OnlyNewObjects",
                "Effect": "Deny",
                "Action": ["s3:PutObject"],
                "Resource": ["arn:aws:s3:::bucket/team/a/blobs/*"],
                "Condition": {"Null": {"s3:if-none-match": "true"}, "Bool": {"s3:ObjectCreationOperation": "true"}},
            },
        ],
    }
