"""The limited child that reads frozen states: tar archives and names that an agent made.

A program of its own, standard library only, started with an empty environment and no credential. It limits itself before
it reads a byte, and says what it found as JSON lines. ``diff`` compares with the pristine files; ``unpack`` writes files
into a new folder. It never makes a link, a device or a name outside of that folder: every step goes through folder
descriptors that refuse links.
"""

from __future__ import annotations

import base64
import contextlib
import difflib
import json
import os
import resource
import signal
import stat
import sys
import tarfile
import time
from collections.abc import Iterator
from typing import IO, Any

TEXT_BYTES = 256 * 1024
"""Larger files are named with their size, not compared line by line."""
TEXT_LINES = 10_000
"""So are longer ones: the comparison takes quadratic time."""
DIFF_LINES = 200
"""Lines of one file's difference that are shown."""
DIFF_SECONDS = 1
"""Processor time for the comparison of one file."""
DIFFS_SECONDS = 10
"""Processor time after which files are only listed."""
LISTED = 300
"""Paths that ``diff`` reports one by one."""
ENTRY_BYTES = 64 * 1024
"""Longest line of the entry list."""
AREAS = ("workspace", "output")
"""What a frozen path may begin with."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

JsonObject = dict[str, Any]


def limit(cpu_seconds: int, file_bytes: int) -> None:
    """Give up what is not needed: memory, processor time, large files, core dumps."""
    for kind, value in (
        (resource.RLIMIT_AS, 1 << 30),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        lower = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (lower, lower))


def say(**fields: Any) -> None:
    """Write one line of the answer."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def read_entries(stream: IO[bytes]) -> Iterator[tuple[bytes, JsonObject]]:
    """Yield raw path and fields of each entry."""
    while line := stream.readline(ENTRY_BYTES + 1):
        if len(line) > ENTRY_BYTES:
            msg = f"an entry is longer than {ENTRY_BYTES} bytes"
            raise ValueError(msg)
        fields = json.loads(line)
        encoded = fields.get("path_b64")
        yield (base64.b64decode(encoded) if encoded else os.fsencode(fields["path"])), fields


def parts_of(path: bytes) -> list[bytes]:
    """Return the steps of a frozen path. Raises ValueError when one of them leads elsewhere."""
    parts = path.split(b"/")
    if parts[-1] == b"":
        parts.pop()
    if not parts or parts[0] not in {os.fsencode(area) for area in AREAS}:
        msg = "not below workspace or output"
        raise ValueError(msg)
    if any(part in {b"", b".", b".."} or b"\0" in part for part in parts):
        msg = "a step leads outside"
        raise ValueError(msg)
    return parts


def folder_of(root: int, parts: list[bytes], *, make: bool) -> int:
    """Return a descriptor of the folder below ``root``; the caller closes it. Links are refused by the system."""
    current = os.dup(root)
    try:
        for part in parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=current)
            following = os.open(part, FOLDER, dir_fd=current)
            os.close(current)
            current = following
    except BaseException:
        os.close(current)
        raise
    return current


def open_pristine(root: int | None, path: bytes) -> IO[bytes] | None:
    """Return the file that the agent was given under that path, or None."""
    if root is None:
        return None
    try:
        parts = parts_of(path)
        folder = folder_of(root, parts[:-1], make=False)
        try:
            found = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        finally:
            os.close(folder)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        return None
    return os.fdopen(found, "rb")


def lines_of(stream: IO[bytes] | None) -> tuple[list[str] | None, int]:
    """Return the lines of a text file, None when it is none or too large, and its size as far as it was read."""
    if stream is None:
        return [], 0
    data = stream.read(TEXT_BYTES + 1)
    if len(data) > TEXT_BYTES or b"\0" in data:
        return None, len(data)
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        return None, len(data)
    if lines and not lines[-1]:
        lines.pop()
    return (lines if len(lines) <= TEXT_LINES else None), len(data)


def compare(path: bytes, fields: JsonObject, left: IO[bytes] | None, pristine: int | None) -> None:
    """Report one path that differs, with a unified difference where both sides are short texts."""
    answer: JsonObject = {
        "path": os.fsdecode(path),
        "origin": str(fields.get("origin")),
        "type": str(fields.get("type")),
        "size": int(fields.get("size") or 0),
        "target": fields.get("target"),
        "finding": fields.get("finding"),
        "diff": None,
    }
    if fields.get("type") == "file" and (left is not None or fields.get("origin") == "removed"):
        before = open_pristine(pristine, path) if fields.get("origin") != "added" else None
        old, _ = lines_of(before)
        new, _ = lines_of(left)
        if before is not None:
            answer["old_size"] = os.fstat(before.fileno()).st_size
            before.close()
        found = difference(old, new) if old is not None and new is not None else None
        if found is not None:
            answer["diff"] = found[:DIFF_LINES]
            answer["more_lines"] = max(0, len(found) - DIFF_LINES)
    say(**answer)


def difference(old: list[str], new: list[str]) -> list[str] | None:
    """Return a unified difference, or None when making it takes too long: an agent can choose lines that are hard to align."""
    if time.process_time() > DIFFS_SECONDS:
        return None
    signal.setitimer(signal.ITIMER_VIRTUAL, DIFF_SECONDS)
    try:
        return list(difflib.unified_diff(old, new, "pristine", "left", lineterm="", n=2))[2:]
    except TimeoutError:
        return None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def too_long(_number: int, _frame: object) -> None:
    """Break off the comparison that is being made."""
    raise TimeoutError


def diff(entries: IO[bytes], changes: IO[bytes], pristine: int | None) -> None:
    """Report what differs from the pristine files."""
    different = {path: fields for path, fields in read_entries(entries) if fields.get("origin") != "pristine"}
    # A folder goes without saying when something in it is listed.
    for path in [path.rsplit(b"/", 1)[0] for path in different if b"/" in path]:
        if different.get(path, {}).get("type") == "dir":
            del different[path]
    counts = dict.fromkeys(("changed", "added", "removed"), 0)
    for fields in different.values():
        counts[fields["origin"]] = counts.get(fields["origin"], 0) + 1
    say(counts=counts, listed=min(LISTED, len(different)))
    shown = dict(sorted(different.items())[:LISTED])
    for member, content in members(changes):
        if member in shown and content is not None:
            compare(member, shown.pop(member), content, pristine)
    for path, fields in shown.items():
        compare(path, fields, None, pristine)


def members(changes: IO[bytes]) -> Iterator[tuple[bytes, IO[bytes] | None]]:
    """Yield raw name and content of the archive's members; content is None for all but plain files."""
    with tarfile.open(fileobj=changes, mode="r|", encoding="utf-8", errors="surrogateescape") as archive:
        for member in archive:
            plain = member.isreg() and not member.issparse()
            yield os.fsencode(member.name), archive.extractfile(member) if plain else None
            # The archive remembers every member, which a million of them would turn into a gigabyte.
            archive.members = []  # type: ignore[attr-defined]


def write_file(root: int, path: bytes, mode: int, content: IO[bytes], room: int) -> int:
    """Write a new file of at most ``room`` bytes and return how many it has. Raises OSError and ValueError."""
    parts = parts_of(path)
    folder = folder_of(root, parts[:-1], make=True)
    written = 0
    try:
        target = os.open(parts[-1], NEW_FILE, 0o600, dir_fd=folder)
        with os.fdopen(target, "wb") as file:
            while block := content.read(1 << 20):
                written += len(block)
                if written > room:
                    msg = "more bytes than the task's disk could hold"
                    raise ValueError(msg)
                file.write(block)
            os.fchmod(file.fileno(), 0o755 if mode & 0o111 else 0o644)
    finally:
        os.close(folder)
    return written


def unpack(entries: IO[bytes], changes: IO[bytes], pristine: int | None, root: int, room: int) -> None:
    """Write the whole frozen world: unchanged files from the pristine folder, the others from the archive."""
    wanted: dict[bytes, JsonObject] = {}
    files = total = 0
    for path, fields in read_entries(entries):
        kind, origin = fields.get("type"), fields.get("origin")
        if origin == "removed":
            continue
        if kind != "file":
            place_other(root, path, fields)
        elif origin != "pristine":
            wanted[path] = fields
        elif content := open_pristine(pristine, path):
            with content:
                size = attempt(root, path, fields, content, room - total)
            files, total = files + (size is not None), total + (size or 0)
        else:
            say(skipped=os.fsdecode(path), reason="its pristine file is not there")
    for path, content in members(changes):
        fields = wanted.pop(path, {}) if content is not None else {}
        if fields and content is not None:
            size = attempt(root, path, fields, content, room - total)
            files, total = files + (size is not None), total + (size or 0)
    for path, fields in wanted.items():
        say(skipped=os.fsdecode(path), reason=str(fields.get("finding") or "its bytes were not kept"))
    say(files=files, bytes=total)


def attempt(root: int, path: bytes, fields: JsonObject, content: IO[bytes], room: int) -> int | None:
    """Write a file or say why not."""
    try:
        return write_file(root, path, int(fields.get("mode") or 0), content, room)
    except (OSError, ValueError) as error:
        say(skipped=os.fsdecode(path), reason=error.strerror if isinstance(error, OSError) else str(error))
        return None


def place_other(root: int, path: bytes, fields: JsonObject) -> None:
    """Make a folder; write down what a link or a special file was, and make none."""
    if fields.get("type") != "dir":
        say(link=os.fsdecode(path), type=str(fields.get("type")), target=fields.get("target"))
        return
    try:
        os.close(folder_of(root, parts_of(path), make=True))
    except (OSError, ValueError) as error:
        say(skipped=os.fsdecode(path), reason=error.strerror if isinstance(error, OSError) else str(error))


def main() -> None:
    """Do what the one argument says: ``{mode, entries, changes, pristine, root, room, cpu}``, descriptors by number."""
    job = json.loads(sys.argv[1])
    limit(job["cpu"], job["room"] + (1 << 20))
    os.umask(0o022)
    pristine = os.open(job["pristine"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if job["pristine"] else None
    with os.fdopen(job["entries"], "rb") as entries, os.fdopen(job["changes"], "rb") as changes:
        if job["mode"] == "diff":
            signal.signal(signal.SIGVTALRM, too_long)
            diff(entries, changes, pristine)
        else:
            root = os.open(job["root"], FOLDER)
            unpack(entries, changes, pristine, root, job["room"])
    say(done=True)


if __name__ == "__main__":
    main()
