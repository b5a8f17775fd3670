"""Freezing what a dead sandbox left: an entry list, then a tar of what differs from the pristine folder.

Standard library only; part of the keeper. Nothing in the tree is trusted: names are bytes, links are recorded and never followed, only
regular files are opened, sizes and counts are capped. Equal trees give equal bytes.

Both blobs are made by walking in the order of the raw path bytes, so a million files need no sorting of the whole and little memory: a
folder ``a`` is listed at ``a`` and entered at ``a/``, which is exactly where its content belongs among names such as ``a-b``.
"""

# pathlib would double the start-up time of the keeper, and names in a sandbox are bytes.
# ruff: noqa: PTH118, PTH119, PTH120

from __future__ import annotations

import binascii
import marshal
import os
import stat

from orchestrator.sandbox.keeper.holes import read_out
from orchestrator.sandbox.keeper.lay import Pristine
from orchestrator.sandbox.keeper.linux import open_beneath
from orchestrator.sandbox.keeper.overlay import Layers
from orchestrator.sandbox.keeper.pax import END, header, padding
from orchestrator.sandbox.keeper.small import json_text, new_sha256
from orchestrator.spec.globs import covers_folder, matches_any

TYPE_CHECKING = False  # importing ``typing`` would cost the keeper a tenth of its start
if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.sandbox.keeper.lay import Laid

    Seen = tuple[str, int, int, int, str | None, bytes | None, str | None]
    """Kind, mode, size, hard links, SHA-256, link target, finding."""

FINAL_BYTES = 64 << 10
PATH_BYTES = 4095
"""Longest path below an area that Linux opens in one call; what lies deeper is recorded as ``name_too_long`` and not kept."""
NAME_BYTES = 256
"""Mean length of path that a full list has room for, with one entry for each 4 KiB of disk. Lists of longer ones would be gigabytes."""
FINDINGS = 200
"""Findings kept; the rest is counted."""
_CHUNK = 1 << 20
_LINES = 1000
_SILENT_BYTES = 1 << 30
"""Hashed at most before a piece of the list is given: whoever takes it counts the seconds of silence."""
_NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # digest of no bytes: empty files need no opening
_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "dir",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "char_device",
    stat.S_IFBLK: "block_device",
}


class Freezer:
    """Freezes the areas ``output`` and ``workspace``. Use ``entries`` to its end, then ``changes``."""

    def __init__(
        self, areas: dict[str, int], pristine: Pristine, exclude: list[str], limit: int, folder_bits: int = 0o7777
    ) -> None:
        """Take open folders by area name, the workspace's pristine content, patterns to leave out, and the most bytes to read.

        ``limit`` holds for one file and, twice over, for all files together: a disk of that size holds no more unless files are sparse or
        hard links. ``folder_bits``: those of a folder's mode that are the agent's doing, and not inherited from a volume.
        """
        self.findings: list[tuple[str, str]] = []
        self.findings_cut = 0
        self._areas = sorted(areas.items())
        self._pristine = pristine
        self._folder_bits = folder_bits
        self._layers = None if pristine.upper is None else Layers(pristine.upper, pristine.entries)
        self._exclude = exclude
        self._limit = limit
        self._left = 2 * limit
        self._names_left = 0
        self._contents: dict[bytes, list[bytes]] = {}
        self._kept = bytearray()
        self._large = max(1 << 20, limit >> 12)
        self._digests: dict[tuple[str, bytes], tuple[str | None, str | None]] = {}
        """Of files of ``_large`` bytes or more: who asks for the list again does not wait for them again. A few thousand at most."""
        self._hashed = 0
        """Since the last piece."""

    def entries(self) -> Iterator[bytes]:
        """Yield ``entries.jsonl`` in pieces: the canonical JSON of ``records.state.Entry``, one a line, sorted by raw path bytes."""
        self.findings.clear()  # a lost connection makes the sink ask for everything again
        self.findings_cut = 0
        self._hashed = 0
        self._left = 2 * self._limit
        self._names_left = NAME_BYTES * max(1 << 18, self._limit >> 12)
        self._contents.clear()
        self._kept.clear()
        for area, root in self._areas:
            expected = self._pristine.rows() if area == "workspace" else iter(())
            coming = next(expected, None)
            lines: list[str] = []
            for path, info in self._walk(root, area):
                while coming is not None and coming[0] < path:
                    lines.extend(self._removed(area, *coming))
                    coming = next(expected, None)
                before = None
                if coming is not None and coming[0] == path:
                    before = coming[1]
                    coming = next(expected, None)
                lines.append(self._entry(area, root, path, info, before))
                if len(lines) >= _LINES or self._hashed >= _SILENT_BYTES:
                    yield "".join(lines).encode("utf-8", "surrogatepass")
                    lines.clear()
                    self._hashed = 0
            while coming is not None:
                lines.extend(self._removed(area, *coming))
                coming = next(expected, None)
                if len(lines) >= _LINES:
                    yield "".join(lines).encode("utf-8", "surrogatepass")
                    lines.clear()
            yield "".join(lines).encode("utf-8", "surrogatepass")

    def changes(self) -> Iterator[bytes]:
        """Yield the tar of changed and added entries, once ``entries`` has been read to its end."""
        gathered = bytearray()
        for piece in self._members():
            gathered += piece
            if len(gathered) >= _CHUNK:
                yield bytes(gathered)
                gathered.clear()
        yield bytes(gathered)

    def _members(self) -> Iterator[bytes | memoryview]:
        roots = dict(self._areas)
        at = 0
        while at < len(self._kept):
            length = int.from_bytes(self._kept[at : at + 4], "little")
            area, path, kind, mode, size, digest, target = marshal.loads(self._kept[at + 4 : at + 4 + length])  # noqa: S302 - our own bytes
            at += 4 + length
            yield header(area.encode() + b"/" + path, kind, mode, size, target)
            if kind == "file" and size:
                yield from self._content(roots[area], area, path, size, digest)
        yield END

    def note(self, kind: str, detail: str) -> None:
        """Record a finding, or only count it when there are too many."""
        if len(self.findings) < FINDINGS:
            self.findings.append((kind, detail))
        else:
            self.findings_cut += 1

    def _walk(self, root: int, area: str) -> Iterator[tuple[bytes, os.stat_result | None]]:
        """Yield path and status of everything below ``root``, in the order of the raw path bytes. No status: it is as it was."""
        top = self._list(root, area, b"")
        if top is None:
            self.note("too_many_names", f"{area}: nothing of it is listed")
        stack = [top or []]
        while stack:
            if not stack[-1]:
                stack.pop()
                continue
            item = stack[-1].pop()
            if item.endswith(b"/"):
                stack.append(self._contents.pop(item[:-1], []))
                continue
            if self._is_untouched(area, item):
                yield item, None
                continue
            info = self._status(root, item)
            if info is None:
                self.note("vanished", f"{area}/{readable(item)}")
                continue
            yield item, info

    def _list(self, root: int, area: str, folder: bytes) -> list[bytes] | None:
        """Return the paths in a folder, last first; a sub-folder is there twice: as itself and, with a slash, for its content.

        None: there are more names than a list has room for.
        """
        left = self._names_left
        found: list[bytes] = []
        try:
            for path, is_folder in self._content_of(root, area, folder):
                left -= len(path)
                if left < 0:
                    return None
                self._add(found, area, path, is_folder)
        except OSError as error:
            self.note("unreadable", f"{area}/{readable(folder)}: {error.strerror}")
            return []
        self._names_left = left
        found.sort(reverse=True)
        return found

    def _content_of(self, root: int, area: str, folder: bytes) -> Iterator[tuple[bytes, bool]]:
        """Yield the paths in a folder, and whether each is a folder. Raises OSError."""
        if self._layers is not None and self._is_untouched(area, folder):
            yield from self._layers.children(folder)
            return
        descriptor = open_beneath(root, folder or b".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(descriptor) as items:
                for item in items:
                    yield os.path.join(folder, os.fsencode(item.name)), item.is_dir(follow_symlinks=False)
        finally:
            os.close(descriptor)

    def _is_untouched(self, area: str, path: bytes) -> bool:
        """Return whether nothing has to be read to know what is there: the overlay shows what the lower folder has."""
        return self._layers is not None and area == "workspace" and self._layers.untouched(path)

    def _add(self, found: list[bytes], area: str, path: bytes, is_folder: bool) -> None:
        text = os.fsdecode(path) if self._exclude and area == "workspace" else ""
        if text and matches_any(self._exclude, text):
            return
        found.append(path)
        if not is_folder or (text and any(covers_folder(pattern, text) for pattern in self._exclude)):
            return
        if len(path) < PATH_BYTES:
            found.append(path + b"/")

    def _status(self, root: int, path: bytes) -> os.stat_result | None:
        try:
            if len(path) <= PATH_BYTES:
                return os.stat(path, dir_fd=root, follow_symlinks=False)
            parent = open_beneath(root, os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
            try:
                return os.stat(os.path.basename(path), dir_fd=parent, follow_symlinks=False)
            finally:
                os.close(parent)
        except OSError:
            return None

    def _entry(self, area: str, root: int, path: bytes, info: os.stat_result | None, before: Laid | None) -> str:
        if info is not None:
            seen = self._look(area, root, path, info)
        elif before is not None:
            seen = self._recall(area, root, path, before)
        else:
            msg = "only what was laid is untouched"
            raise AssertionError(msg)
        kind, mode, size, _, digest, target, finding = seen
        if finding is not None:
            self.note(finding, f"{area}/{readable(path)}" + (f": {size} bytes" if kind == "file" else f": {kind}"))
        now = (kind, bool(mode & 0o100) and kind == "file", size, digest, target)
        origin = "added" if before is None else "pristine" if before == now else "changed"
        if origin != "pristine" and (digest is not None or (kind in {"symlink", "dir"} and finding is None)):
            packed = marshal.dumps((area, path, kind, mode, size, digest or "", target or b""))
            self._kept += len(packed).to_bytes(4, "little") + packed
        return line(f"{area}/".encode() + path, origin, seen)

    def _recall(self, area: str, root: int, path: bytes, before: Laid) -> Seen:
        """Return what is at an untouched path, by the same rules as if it were looked at."""
        kind, executable, size, digest, target = before
        if kind == "symlink":
            return self._link(area, path, 0o777, target or b"")
        if kind == "dir":
            return kind, 0o755, 0, 1, None, None, self._look_into(area, root, path)
        finding = None if self._affords(size) else "too_large"
        return kind, 0o755 if executable else 0o644, size, 1, None if finding else digest, None, finding

    def _look(self, area: str, root: int, path: bytes, info: os.stat_result) -> Seen:
        kind = _KINDS.get(stat.S_IFMT(info.st_mode), "file")
        mode = stat.S_IMODE(info.st_mode) & (self._folder_bits if kind == "dir" else 0o7777)
        if len(path) > PATH_BYTES or (kind == "dir" and len(path) == PATH_BYTES):
            return kind, mode, info.st_size if kind == "file" else 0, 1, None, None, "name_too_long"
        if kind == "file":
            digest, finding = self._digest(area, root, path, info.st_size)
            if mode & 0o6000:
                finding = finding or ("setuid" if mode & 0o4000 else "setgid")
            if info.st_nlink > 1:
                self.note("hard_link", f"{area}/{readable(path)}: {info.st_nlink} names")
            return kind, mode, info.st_size, info.st_nlink, digest, None, finding
        if kind == "symlink":
            return self._link(area, path, mode, os.readlink(path, dir_fd=root))
        return kind, mode, 0, 1, None, None, "special_file" if kind != "dir" else self._look_into(area, root, path)

    def _link(self, area: str, path: bytes, mode: int, target: bytes) -> Seen:
        self._names_left -= len(target)
        if self._names_left < 0:
            return "symlink", mode, 0, 1, None, None, "too_many_names"
        if leads_outside(path, target):
            self.note("link_outside", f"{area}/{readable(path)} -> {readable(target)}")
        return "symlink", mode, 0, 1, None, target, None

    def _look_into(self, area: str, root: int, folder: bytes) -> str | None:
        """List a folder ahead of its turn, so that its own entry can say when its content is left out."""
        if area == "workspace" and any(covers_folder(pattern, os.fsdecode(folder)) for pattern in self._exclude):
            return None
        content = self._list(root, area, folder)
        if content is None:
            return "too_many_names"
        self._contents[folder] = content
        return None

    def _removed(self, area: str, path: bytes, before: Laid) -> list[str]:
        text = os.fsdecode(path)
        if self._exclude and any(matches_any(self._exclude, name) for name in _with_parents(text)):
            return []
        kind, executable, size, digest, target = before
        mode = 0o777 if kind == "symlink" else 0o755 if executable or kind == "dir" else 0o644
        return [line(f"{area}/".encode() + path, "removed", (kind, mode, size, 1, digest, target, None))]

    def _digest(self, area: str, root: int, path: bytes, size: int) -> tuple[str | None, str | None]:
        """Return digest and finding of a regular file."""
        if not self._affords(size):
            return None, "too_large"
        if size == 0:
            return _NOTHING, None
        if size < self._large:
            return self._hash(root, path, size)
        known = self._digests.get((area, path))
        if known is None:
            known = self._digests[area, path] = self._hash(root, path, size)
        return known

    def _hash(self, root: int, path: bytes, size: int) -> tuple[str | None, str | None]:
        self._hashed += size
        try:
            descriptor = self._open(root, path)
        except OSError:
            return None, "unreadable"
        try:
            sha = new_sha256()
            left = size
            for chunk in read_out(descriptor, size):
                sha.update(chunk)
                left -= len(chunk)
            grew = os.fstat(descriptor).st_size != size
        except OSError:
            return None, "unreadable"
        finally:
            os.close(descriptor)
        # Only the bytes that the size promised are kept; a file that shrank meanwhile has no digest of that size.
        return (None if left else sha.hexdigest()), ("changed_while_frozen" if grew or left else None)

    def _affords(self, size: int) -> bool:
        """Count the bytes of a file, unless they are more than may be read."""
        if size > self._limit or size > self._left:
            return False
        self._left -= size
        return True

    def _open(self, root: int, path: bytes) -> int:
        descriptor = open_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(0, "no regular file any more")
        return descriptor

    def _content(self, root: int, area: str, path: bytes, size: int, digest: str) -> Iterator[bytes | memoryview]:
        sha = new_sha256()
        left = size
        try:
            descriptor = self._open(root, path)
        except OSError:
            descriptor = -1
        try:
            for chunk in read_out(descriptor, size) if descriptor >= 0 else ():
                sha.update(chunk)
                left -= len(chunk)
                yield chunk
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        if left or sha.hexdigest() != digest:
            self.note("changed_while_frozen", f"{area}/{readable(path)}: its bytes differ from its entry")
        while left:
            filler = bytes(min(_CHUNK, left))
            left -= len(filler)
            yield filler
        yield padding(size)


def line(path: bytes, origin: str, seen: Seen) -> str:
    """Return one line of ``entries.jsonl``: keys sorted, no spaces, every field there."""
    kind, mode, size, nlink, digest, target, finding = seen
    try:
        name, raw = json_text(path.decode()), "null"
    except UnicodeDecodeError:
        name, raw = "null", json_text(binascii.b2a_base64(path, newline=False).decode())
    link = "null" if target is None else json_text(target.decode("utf-8", "backslashreplace"))
    return (
        f'{{"finding":{_text(finding)},"mode":{mode},"nlink":{nlink},"origin":"{origin}","path":{name},"path_b64":{raw},'
        f'"sha256":{_text(digest)},"size":{size},"target":{link},"type":"{kind}"}}\n'
    )


def read_final(output: int) -> bytes | None:
    """Return the bytes of ``final.json`` in the folder ``output``: a regular file of at most 64 KiB, else None. Nothing is parsed."""
    try:
        descriptor = open_beneath(output, b"final.json", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return None
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > FINAL_BYTES:
            return None
        data = os.read(descriptor, FINAL_BYTES + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data if len(data) <= FINAL_BYTES else None


def leads_outside(path: bytes, target: bytes) -> bool:
    """Return whether a link's text leads out of its area. Absolute links into ``/workspace`` or ``/output`` stay inside."""
    if target.startswith(b"/"):
        return not (target + b"/").startswith((b"/workspace/", b"/output/"))
    depth = path.count(b"/")
    for part in target.split(b"/"):
        depth += -1 if part == b".." else 0 if part in (b"", b".") else 1
        if depth < 0:
            return True
    return False


def readable(path: bytes) -> str:
    """Return a path for people, on one line: bytes that are no text and control characters are escaped, and it is cut at 300 characters."""
    text = path.decode("utf-8", "backslashreplace")
    text = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text[:600])
    return text if len(text) <= 300 else text[:150] + "…" + text[-149:]


def _with_parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _text(value: str | None) -> str:
    return "null" if value is None else f'"{value}"'
