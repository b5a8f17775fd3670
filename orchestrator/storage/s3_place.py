"""Where a store is in S3, as its URL says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from orchestrator.errors import SpecError, StoreError, nearest
from orchestrator.storage.names import check_key

Checksums = Literal["when_supported", "when_required"]

_OPTIONS = ("endpoint", "region", "path_style", "checksums")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_KEY_BYTES = 1024
"""S3's limit for a whole key."""


@dataclass(frozen=True, kw_only=True)
class S3Place:
    """A bucket, a prefix in it, and how its service is spoken to."""

    bucket: str
    prefix: str = ""
    """Without slashes at its ends; empty: the whole bucket."""
    endpoint: str | None = None
    """Address of an S3-compatible service; None: Amazon's, or what the AWS configuration says."""
    region: str | None = None
    """None: what the AWS configuration says, else us-east-1."""
    path_style: bool = False
    """Bucket in the path instead of the host name."""
    checksums: Checksums = "when_supported"
    """Checksums in requests and answers: ``when_supported`` is S3's own; many compatibles want ``when_required``."""

    def full_key(self, key: str) -> str:
        """Return the key within the bucket. Raises StoreError for a key that no store takes, or one too long for S3."""
        check_key(key)
        full = f"{self.root}{key}"
        if (size := len(full.encode())) > _KEY_BYTES:
            msg = f"{key[:200]!r} has {size} bytes with the store's prefix, S3 takes {_KEY_BYTES}: use a shorter prefix or names"
            raise StoreError(msg, cause="store_name")
        return full

    @property
    def root(self) -> str:
        """What every full key begins with: empty, or the prefix and a slash."""
        return f"{self.prefix}/" if self.prefix else ""

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}" + (f" at {self.endpoint}" if self.endpoint else "")


def parse_place(url: str) -> S3Place:
    """Return the place that an ``s3://`` URL names.

    Where an endpoint is given, it is an S3-compatible: path style and ``when_required`` are its defaults. Raises SpecError.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        msg = f"a store's URL cannot be read: {error}; write s3://BUCKET/PREFIX"
        raise SpecError(msg) from error
    if "@" in parts.netloc:
        msg = (
            "a store's URL has a user before its bucket; credentials come from the AWS configuration, never from a URL"
        )
        raise SpecError(msg)
    if not _BUCKET.fullmatch(parts.netloc):
        raise _wrong(url, f"{parts.netloc!r} is not a bucket; write s3://BUCKET/PREFIX")
    if parts.fragment or "#" in url:
        raise _wrong(url, "a # has no meaning here")
    prefix = unquote(parts.path).strip("/")
    if prefix:
        try:
            check_key(prefix)
        except StoreError as error:
            raise _wrong(url, str(error)) from error
    options = _options(url, parts.query)
    endpoint = _endpoint(url, options.get("endpoint"))
    default = "true" if endpoint else "false"
    checksums = options.get("checksums", "when_required" if endpoint else "when_supported")
    return S3Place(
        bucket=parts.netloc,
        prefix=prefix,
        endpoint=endpoint,
        region=options.get("region"),
        path_style=_one_of(url, "path_style", options.get("path_style", default), ("true", "false")) == "true",
        checksums=cast("Checksums", _one_of(url, "checksums", checksums, ("when_supported", "when_required"))),
    )


def _options(url: str, query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        raise _wrong(url, "what follows the ? must be NAME=VALUE, joined by &") from error
    options: dict[str, str] = {}
    for name, value in pairs:
        if name not in _OPTIONS:
            known = nearest(name, _OPTIONS) or f"; known are {', '.join(_OPTIONS)}"
            reason = f"unknown option {name!r}{known}. Credentials come from the AWS configuration, never from a URL"
            raise SpecError(f"a store's URL has an {reason}")  # without the URL: it may hold a secret
        if name in options or not value:
            raise _wrong(url, f"the option {name!r} needs one value")
        options[name] = value
    return options


def _endpoint(url: str, endpoint: str | None) -> str | None:
    if endpoint is None:
        return None
    parts = urlsplit(endpoint)
    if "@" in parts.netloc:
        msg = "a store's URL has a user in its endpoint; credentials come from the AWS configuration, never from a URL"
        raise SpecError(msg)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise _wrong(url, f"the endpoint {endpoint!r} must be an http:// or https:// address")
    return endpoint


def _one_of(url: str, name: str, value: str, valid: tuple[str, ...]) -> str:
    if value not in valid:
        raise _wrong(url, f"{name} must be {' or '.join(valid)}, not {value!r}")
    return value


def _wrong(url: str, reason: str) -> SpecError:
    return SpecError(f"store {url!r}: {reason}")
