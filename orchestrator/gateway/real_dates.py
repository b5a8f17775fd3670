"""Finds the real date in what an agent of a task with a frozen clock sends: its world is not the one that the task has made.

It is a finding for people and changes no verdict. Searched are the days around now, in the forms that programs and people write, and
seconds since 1970; so a task whose own text holds the day on which it happens to run is found once in a while, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta

import re2

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LONG = ("uary", "ruary", "ch", "il", "", "e", "y", "ust", "tember", "ober", "ember", "ember")
_CLOCK = r"(?:\d{1,2}:\d{2}(?::\d{2})?\s+)?(?:[A-Z]{1,5}\s+)?"
"""Between day and year, as ``date`` and ``asctime`` write it."""
_SECONDS = 100_000
"""Times since 1970 are the same one when they differ in their last five digits alone: about a day."""


class RealDates:
    """The dates that a launch should know nothing of."""

    def __init__(self, frozen: datetime, clock: Callable[[], float] = time.time) -> None:
        """``frozen``: where the task's clock begins. ``clock`` gives the real time, in seconds since 1970."""
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
            forms = "|".join((*_dates(today), *_numbers(now)))
            self._pattern = None if near else re2.compile(rf"(?i)(?:^|\D)({forms})(?:\D|$)".encode())
        return self._pattern


def _dates(today: date) -> Iterator[str]:
    """Yield how today, yesterday and tomorrow are written: somewhere on earth it is each of them."""
    for day in (today, today - timedelta(days=1), today + timedelta(days=1)):
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
