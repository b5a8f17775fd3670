"""From a store's URL to the store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from orchestrator.errors import SpecError
from orchestrator.interfaces import SweepableStore
from orchestrator.storage.file import FileStore


def open_store(url: str) -> SweepableStore:
    """Return the store at a URL. Nothing is made or contacted yet.

    - ``file:///absolute/folder`` or a plain path: a folder.
    - ``s3://BUCKET/PREFIX``: a bucket, which must exist. Credentials and region are found as every AWS tool finds them
      (environment, profile, role) and never stand in the URL. Options of an S3-compatible service follow a ``?``, joined
      by ``&``: ``endpoint=http://HOST:PORT``, ``region=NAME``, ``path_style=true|false`` (bucket in the path; true where an
      endpoint is given), ``checksums=when_supported|when_required`` (checksums in requests and answers; when_required
      where an endpoint is given, since many compatibles refuse S3's newer ones).

    Raises SpecError.
    """
    scheme, found, _ = url.partition("://")
    if not found:
        if not url.strip():
            msg = "the store has no name; give a folder such as .orchestrate/store"
            raise SpecError(msg)
        return FileStore(Path(url).expanduser())
    if scheme == "s3":
        from orchestrator.storage.s3 import S3Store
        from orchestrator.storage.s3_place import parse_place

        return S3Store(parse_place(url))
    if scheme != "file":
        msg = f"store {url!r}: unknown kind {scheme!r}; use a folder, file:///absolute/path or s3://BUCKET/PREFIX"
        raise SpecError(msg)
    parts = urlsplit(url)
    if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/") or parts.query or parts.fragment:
        msg = f"store {url!r}: write three slashes and an absolute path, for example file:///var/lib/orchestrate"
        raise SpecError(msg)
    return FileStore(Path(unquote(parts.path)))
