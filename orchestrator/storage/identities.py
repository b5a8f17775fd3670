"""Who may do what in the store, as data: one identity for each writer, and its policy as an IAM document.

Nobody may put where it may delete: what is written once can be removed by ``gc`` alone, and ``gc`` can write nothing in
its place. What it writes are notices of what it removes, which nobody deletes. ``graders`` and ``solutions`` bundles are
out of reach for whoever starts agents. On one machine all of them are one person and one identity; on a cluster each
service has its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

IdentityName = Literal["submitter", "driver", "gateway", "relay", "grader", "compactor", "reader", "gc"]

PREFIXES = (
    "bundles/sandbox/",
    "bundles/world/",
    "bundles/graders/",
    "bundles/solutions/",
    "runs/",
    "leases/",
    "records/",
    "outcomes/",
    "blobs/",
    "grades/",
    "stages/",
    "datasets/",
    "probes/",
    "removed/",
)
"""All prefixes of the store. Every key begins with exactly one of them."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What one writer may do, by prefix. Whatever is not named is forbidden.

    Who puts may also get and list there: a writer whose answer was lost reads who won, and without the right to list, S3
    answers "denied" where nothing is.
    """

    name: IdentityName
    put: tuple[str, ...] = ()
    """Prefixes to create objects under; nothing is ever overwritten."""
    get: tuple[str, ...] = ()
    """Prefixes to read and list, beside those of ``put``."""
    delete: tuple[str, ...] = ()
    """Prefixes to delete objects under."""

    @property
    def read(self) -> tuple[str, ...]:
        """Every prefix that it may read and list."""
        return tuple(prefix for prefix in PREFIXES if prefix in {*self.put, *self.get})


IDENTITIES: tuple[Identity, ...] = (
    Identity(
        name="submitter",
        put=("bundles/sandbox/", "bundles/world/", "bundles/graders/", "bundles/solutions/", "runs/", "probes/"),
        # a person: who submits also looks at what came of it, with show, logs, pull, and estimates from earlier trials
        get=("leases/", "records/", "outcomes/", "blobs/", "grades/", "datasets/", "removed/"),
    ),
    Identity(
        name="driver",
        put=("leases/", "outcomes/", "stages/"),
        get=("runs/", "records/", "blobs/", "grades/", "removed/"),
    ),
    Identity(
        name="gateway",
        put=("records/", "blobs/"),
        get=("bundles/sandbox/", "bundles/world/", "bundles/solutions/", "runs/"),
    ),
    Identity(name="relay", put=("records/", "blobs/")),
    Identity(
        name="grader",
        put=("grades/",),
        get=("bundles/sandbox/", "bundles/graders/", "runs/", "records/", "outcomes/", "blobs/"),
    ),
    Identity(
        name="compactor",
        put=("datasets/",),
        get=("runs/", "records/", "outcomes/", "blobs/", "grades/", "stages/", "removed/"),
    ),
    Identity(
        name="reader",
        get=(
            "bundles/sandbox/",
            "runs/",
            "leases/",
            "records/",
            "outcomes/",
            "blobs/",
            "grades/",
            "datasets/",
            "removed/",
        ),
    ),
    Identity(
        name="gc",
        put=("removed/",),
        get=("runs/", "leases/", "records/", "outcomes/", "grades/", "datasets/"),
        delete=tuple(prefix for prefix in PREFIXES if prefix != "removed/"),
    ),
)
"""The identities of a cluster."""


def identity(name: IdentityName) -> Identity:
    """Return the identity of that name."""
    return next(each for each in IDENTITIES if each.name == name)


def policy(who: Identity, bucket: str, prefix: str = "", *, conditional: bool = True) -> dict[str, Any]:
    """Return an identity's IAM policy document for the store at ``s3://bucket/prefix``.

    With ``conditional`` a statement denies every creation without ``If-None-Match``, so that even a broken writer cannot
    overwrite. S3 itself honours it; stores that refuse conditional PUTs too under it (seaweedfs) need ``False``, and then
    nothing but our code keeps a writer from overwriting what it may put.
    """
    root = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
    objects = f"arn:aws:s3:::{bucket}/{root}"
    statements = [
        _objects("Put", ("s3:PutObject", "s3:AbortMultipartUpload"), objects, who.put),
        _objects("Get", ("s3:GetObject",), objects, who.read),
        _objects("Delete", ("s3:DeleteObject",), objects, who.delete),
        _listing(bucket, root, tuple(p for p in PREFIXES if p in {*who.read, *who.delete})),
    ]
    if conditional and who.put:
        denied = _objects("OnlyNewObjects", ("s3:PutObject",), objects, who.put)
        denied["Effect"] = "Deny"
        denied["Condition"] = {
            "Null": {"s3:if-none-match": "true"},
            "Bool": {"s3:ObjectCreationOperation": "true"},  # parts of a multipart upload are PUTs without a condition
        }
        statements.append(denied)
    return {"Version": "2012-10-17", "Statement": [each for each in statements if each["Resource"]]}


def _objects(sid: str, actions: tuple[str, ...], objects: str, prefixes: tuple[str, ...]) -> dict[str, Any]:
    resources = [f"{objects}{prefix}*" for prefix in prefixes]
    return {"Sid": sid, "Effect": "Allow", "Action": list(actions), "Resource": resources}


def _listing(bucket: str, root: str, prefixes: tuple[str, ...]) -> dict[str, Any]:
    return {
        "Sid": "List",
        "Effect": "Allow",
        "Action": ["s3:ListBucket"],
        "Resource": [f"arn:aws:s3:::{bucket}"],
        "Condition": {"StringLike": {"s3:prefix": [f"{root}{prefix}*" for prefix in prefixes]}},
    }
