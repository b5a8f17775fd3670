"""Ages, the service's clock, and deletion in S3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from orchestrator.interfaces import Stored

MOST_DELETED = 1000
"""Objects that one request may delete."""


@dataclass(frozen=True, kw_only=True)
class Greeting:
    """How a service answers."""

    identity: str
    """Who it was asked by, in words."""
    credentials_from: str
    """Kind of place where the credentials were found."""
    time: datetime | None
    """What its clock said; None when it did not say."""


def objects_of(page: Mapping[str, Any], root: str) -> list[Stored]:
    """Return the objects of one page of a listing, without folders that a console made."""
    now = service_time(page) or datetime.now(UTC)
    return [
        Stored(
            key=each["Key"].removeprefix(root),
            size=int(each["Size"]),
            age_s=(now - each["LastModified"]).total_seconds(),
        )
        for each in page.get("Contents", ())
        if not each["Key"].endswith("/")
    ]


def service_time(answer: Mapping[str, Any]) -> datetime | None:
    """Return what the service's clock said when it answered; None when it did not say."""
    try:
        return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    except (KeyError, TypeError, ValueError):
        return None


def delete_batch(targets: Sequence[Mapping[str, str]], client: Any) -> None:
    """Delete objects of one bucket by one request. Raises ClientError with the first refusal: others may be deleted."""
    from botocore.exceptions import ClientError

    objects = {"Objects": [{"Key": target["Key"]} for target in targets], "Quiet": True}
    answer = client.delete_objects(Bucket=targets[0]["Bucket"], Delete=objects)
    for refusal in answer.get("Errors", ()):
        if refusal.get("Code") != "NoSuchKey":
            raise ClientError({"Error": refusal, "ResponseMetadata": {"HTTPStatusCode": 0}}, "DeleteObjects")
