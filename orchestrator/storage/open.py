"""From a store's URL to the store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from orchestrator.errors import RefusedError, SpecError
from orchestrator.interfaces import ObjectStore
from orchestrator.storage.file import FileStore


def open_store(url: str) -> ObjectStore:
    """Return the store at ``file:///absolute/folder`` or at a plain path. Nothing is made or contacted yet.

    Raises RefusedError for ``s3://``, which this version does not have, and SpecError for anything else.
    """
    scheme, found, _ = url.partition("://")
    if not found:
        if not url.strip():
            msg = "the store has no name; give a folder such as .orchestrate/store"
            raise SpecError(msg)
        return FileStore(Path(url).expanduser())
    if scheme == "s3":
        msg = f"store {url!r}: s3:// comes with a later version; use a folder (file:///absolute/path or a plain path)"
        raise RefusedError(msg)
    if scheme != "file":
        msg = f"store {url!r}: unknown kind {scheme!r}; use file:///absolute/path or a plain path"
        raise SpecError(msg)
    parts = urlsplit(url)
    if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/") or parts.query or parts.fragment:
        msg = f"store {url!r}: write three slashes and an absolute path, for example file:///var/lib/orchestrate"
        raise SpecError(msg)
    return FileStore(Path(unquote(parts.path)))
