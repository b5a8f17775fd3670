"""What a gateway of a cluster keeps on its volume beside trajectories, so that the process after it can go on: the key of tokens, what each
launch is, which epochs drivers have, and when a process was last alive.

Files are replaced whole and small. They are with the kernel when a method returns, so they outlive the process; what outlives the machine
is only known after ``leave``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from orchestrator.errors import StoreError
from orchestrator.gateway.wire import LaunchBody, Part
from orchestrator.records.base import BlobRef, Record

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_KEY_BYTES = 32


class CardPod(Record):
    """The pod that has begun a launch."""

    uid: str
    address: str | None


class Card(Record):
    """What a launch is, beside what its trajectory tells."""

    body: LaunchBody
    generation: int
    expires: int
    """Seconds since 1970."""
    minted_until: int
    """Seconds since 1970."""
    begun: CardPod | None = None
    started: float | None = None
    """When the working clock started, seconds since 1970."""
    halted: bool = False
    """An operator wants its end."""
    parts: dict[Part, BlobRef] = Field(default_factory=dict)
    """What has been taken of its state."""


class Life(Record):
    """A process that serves, or served, from this volume."""

    boot: str
    """Which start of which machine it ran on."""
    left: bool = False
    """It has ended in order, with all on the disk."""


@dataclass(frozen=True)
class Absence:
    """The time between two processes."""

    since: float
    """When the one before was last alive, seconds since 1970; now where there was none."""
    machine_died: bool
    """What that one did last may not have reached the disk."""


class Volume:
    """The files. Methods raise StoreError when the volume cannot be used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._launches = folder / "launches"
        self._life = folder / "process.json"
        with _usable(folder):
            self._launches.mkdir(mode=0o700, parents=True, exist_ok=True)

    def key(self) -> bytes:
        """Return the key of this volume's tokens, made by the first process. It is not readable for others and stays here."""
        path = self._folder / "token.key"
        with _usable(path):
            with contextlib.suppress(FileNotFoundError):
                if len(found := path.read_bytes()) == _KEY_BYTES:
                    return found
                path.unlink()
            fresh = self._folder / f".key-{secrets.token_hex(8)}"
            _write(fresh, secrets.token_bytes(_KEY_BYTES), sync=True)
            fresh.replace(path)
            return path.read_bytes()

    def absence(self) -> Absence:
        """Return how long no process has served."""
        with _usable(self._life), contextlib.suppress(FileNotFoundError):
            since, before = self._life.stat().st_mtime, _life(self._life.read_bytes())
            died = before is None or (before.boot != _boot() and not before.left)
            return Absence(min(since, time.time()), machine_died=died)
        return Absence(time.time(), machine_died=False)

    def begin(self) -> None:
        """Note that a process serves, once it has taken up what the one before has left."""
        with _usable(self._life):
            _replace(self._life, Life(boot=_boot()).to_bytes())

    async def stay_alive(self) -> None:
        """Note every second that this process is alive."""
        while True:
            self.alive()
            await asyncio.sleep(1)

    def alive(self) -> None:
        """Note that the process is alive now."""
        with contextlib.suppress(OSError):
            os.utime(self._life)

    def leave(self) -> None:
        """Note that the process ends in order, once all it kept is on the disk."""
        with _usable(self._folder):
            for path in [*self._launches.iterdir(), self._folder / "epochs.json"]:
                with contextlib.suppress(FileNotFoundError):
                    _sync(path)
            _sync(self._launches)
            _replace(self._life, Life(boot=_boot(), left=True).to_bytes())
            _sync(self._life)
            _sync(self._folder)

    def keep(self, card: Card) -> None:
        """Keep what a launch is, instead of what was kept of it before."""
        path = self._launches / f"{card.body.id}.json"
        with _usable(path):
            _replace(path, card.to_bytes())

    def drop(self, launch: str) -> None:
        """Forget a launch."""
        for suffix in ("json", "open"):
            with contextlib.suppress(OSError):
                (self._launches / f"{launch}.{suffix}").unlink()

    def cards(self) -> Iterator[Card | str]:
        """Yield what each launch is; only the name of one whose file cannot be read."""
        for path in sorted(self._launches.glob("*.json")):
            try:
                yield Card.from_bytes(path.read_bytes(), path.name)
            except (StoreError, OSError):
                yield path.stem

    def mark(self, launch: str, *, is_open: bool) -> None:
        """Note whether a launch has connections to the outside, which no process can take over."""
        path = self._launches / f"{launch}.open"
        with _usable(path):
            if is_open:
                path.touch(0o600)
            else:
                path.unlink(missing_ok=True)

    def is_marked(self, launch: str) -> bool:
        """Return whether a launch had connections to the outside when its process died."""
        return (self._launches / f"{launch}.open").exists()

    def keep_epochs(self, epochs: dict[str, int]) -> None:
        """Keep the highest epoch of each run."""
        path = self._folder / "epochs.json"
        with _usable(path):
            _replace(path, json.dumps(epochs).encode())

    def epochs(self) -> dict[str, int]:
        """Return the highest epoch of each run."""
        try:
            found = json.loads((self._folder / "epochs.json").read_bytes())
            return {str(run): int(epoch) for run, epoch in found.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            msg = f"{self._folder}/epochs.json, which says which drivers were replaced, cannot be read; delete it when no run goes on"
            raise StoreError(msg, cause="volume_unusable") from error


@contextlib.contextmanager
def _usable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        msg = f"{path} of the gateway's volume cannot be used: {error.strerror}; see its size and its rights"
        raise StoreError(msg, cause="volume_unusable") from error


def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return "unknown"


def _life(text: bytes) -> Life | None:
    try:
        return Life.from_bytes(text, "process.json")
    except StoreError:
        return None


def _replace(path: Path, data: bytes) -> None:
    fresh = path.with_name(f".{path.name}.new")
    _write(fresh, data)
    fresh.replace(path)


def _write(path: Path, data: bytes, *, sync: bool = False) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
