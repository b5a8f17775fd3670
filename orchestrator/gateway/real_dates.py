"""Finds the real date in what an agent of a task with a frozen clock sends: its world is not the one that the task has made.

It is a finding for people and changes no verdict. Searched are the days around now, in the forms that programs and people write, and
seconds since 1970. Not searched are days that the task's own files hold: an agent may well read them there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import re2

from orchestrator.gateway.wire import LaunchBody
from orchestrator.interfaces import Audience, BundleSource

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LONG = ("uary", "ruary", "ch", "il", "", "e", "y", "ust", "tember", "ober", "ember", "ember")
_CLOCK = r"(?:\d{1,2}:\d{2}(?::\d{2})?\s+)?(?:[A-Z]{1,5}\s+)?"
"""Between day and year, as ``date`` and ``asctime`` write it."""
_DAYS = 3
"""Days about now that are looked for in a task's files: a trial may last beyond midnight."""
_CHUNK, _OVERLAP = 1 << 20, 64
_SECONDS = 100_000
"""Times since 1970 are the same one when they differ in their last five digits alone: about a day."""


class RealDates:
    """The dates that a launch should know nothing of."""

    def __init__(
        self, frozen: datetime, clock: Callable[[], float] = time.time, known: Collection[date] = frozenset()
    ) -> None:
        """``frozen``: where the task's clock begins. ``clock`` gives the real time, in seconds since 1970.

        ``known``: days that the task's own files hold.
        """
        self._known = known
        self._frozen = frozen.astimezone(UTC).date()
        self._clock = clock
        self._day: date | None = None
        self._pattern: re2._Regexp | None = None

    def found_in(self, data: bytes) -> str | None:
        """Return how the real date is written in some text, None when it is not; in linear time."""
        pattern = self._current()
        found = None if pattern is None else pattern.search(data)
        return None if found is None else found.group(1).decode()

    def _current(self) -> re2._Regexp | None:
        """Return what finds the date. A clock that begins about now has nothing to hide."""
        now = self._clock()
        today = datetime.fromtimestamp(now, UTC).date()
        if today != self._day:
            self._day = today
            near = abs((today - self._frozen).days) <= 1
            days = [day for day in _around(today, 1) if day not in self._known]
            forms = (*(form for day in days for form in _forms(day)), *_numbers(now))
            self._pattern = None if near else _pattern(forms)
        return self._pattern


class KnownDays:
    """Which of the days about now the files of tasks hold, each bundle looked at once a day."""

    def __init__(self, bundles: BundleSource, clock: Callable[[], float] = time.time) -> None:
        self._bundles = bundles
        self._clock = clock
        self._found: dict[str, frozenset[date]] = {}
        self._day: date | None = None

    async def dates(self, body: LaunchBody) -> RealDates | None:
        """Return what finds the real date in what a launch sends; None: its clock is the real one. Raises StoreError."""
        if body.now is None:
            return None
        # The task's bundle is the first; after it come the agent's own files, whose dates are no task's.
        own = next((each.digest for each in body.bundles if each.audience == "sandbox"), None)
        known: set[date] = set()
        if body.world is not None:
            known |= await self._days("world", body.world)
        if own is not None:
            known |= await self._days("sandbox", own)
        return RealDates(body.now, self._clock, known)

    async def _days(self, audience: Audience, digest: str) -> frozenset[date]:
        today = datetime.fromtimestamp(self._clock(), UTC).date()
        if today != self._day:
            self._day, self._found = today, {}
        if digest not in self._found:
            folder = await self._bundles.fetch(audience, digest)
            self._found[digest] = await asyncio.to_thread(days_in, folder, today)
        return self._found[digest]


def days_in(folder: Path, today: date) -> frozenset[date]:
    """Return which of the days about ``today`` are written in a folder's files. Raises OSError."""
    days = {day: _pattern(_forms(day)) for day in _around(today, _DAYS)}
    any_of = _pattern(form for day in days for form in _forms(day))
    found: set[date] = set()
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            before = b""
            while chunk := file.read(_CHUNK):
                text = before + chunk
                if any_of.search(text):
                    found |= {day for day, pattern in days.items() if pattern.search(text)}
                before = text[-_OVERLAP:]
    return frozenset(found)


def _pattern(forms: Iterable[str]) -> re2._Regexp:
    return re2.compile(rf"(?i)(?:^|\D)({'|'.join(forms)})(?:\D|$)".encode())


def _around(today: date, days: int) -> list[date]:
    """Return a day and its neighbours: somewhere on earth it is another day already, or still."""
    return [today + timedelta(days=number) for number in range(-days, days + 1)]


def _forms(day: date) -> Iterator[str]:
    """Yield how a day is written."""
    month, long = _MONTHS[day.month - 1], _LONG[day.month - 1]
    name, number, year = rf"{month}(?:{long})?\.?", rf"0?{day.day}", day.year
    yield rf"{year}[-/.]?{day.month:02}[-/.]?{day.day:02}"
    yield rf"{number}\.0?{day.month}\.{year}"
    yield rf"{number}/0?{day.month}/{year}"
    yield rf"0?{day.month}/{number}/{year}"
    yield rf"{number}(?:st|nd|rd|th)?[\s-]+{name},?[\s-]+{year}"
    yield rf"{name}\s+{number}(?:st|nd|rd|th)?,?\s+{_CLOCK}{year}"


def _numbers(now: float) -> Iterator[str]:
    """Yield how the seconds and milliseconds since 1970 begin."""
    here = int(now // _SECONDS)
    yield rf"(?:{here - 1}|{here}|{here + 1})\d{{5}}(?:\d{{3}})?"
