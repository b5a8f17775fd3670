"""What people want of a run: that it stops, or goes on. It holds for whoever drives the run now or later, until somebody wants otherwise.

A driver may be killed between hearing of a stop and carrying it out, and where something makes another one by itself, that one must not go
on with the run. So a wish is the run's and not a driver's.
"""

from __future__ import annotations

import time

from orchestrator.driver.process import this_person
from orchestrator.errors import NotFoundError
from orchestrator.interfaces import ObjectStore
from orchestrator.records import keys
from orchestrator.records.lease import Wish


async def last_wish(store: ObjectStore, run: str) -> Wish | None:
    """Return what holds for a run; None when nobody has said anything. Raises StoreError."""
    found = await store.list(keys.wishes(run))
    return Wish.from_bytes(await store.get(found[-1]), found[-1]) if found else None


async def next_wish(store: ObjectStore, run: str, number: int) -> Wish | None:
    """Return the wish after number ``number``, if there is one. Raises StoreError."""
    key = keys.wish(run, number + 1)
    try:
        return Wish.from_bytes(await store.get(key), key)
    except NotFoundError:
        return None


def is_stop(wish: Wish | None) -> bool:
    """Return whether a run is to stop."""
    return wish is not None and wish.wants == "stop"


async def ask_to_stop(store: ObjectStore, run: str) -> str | None:
    """Ask whoever drives a run to stop it in order. Returns who had asked before, None when nobody had. Raises StoreError."""
    while True:
        last = await last_wish(store, run)
        if last is not None and last.wants == "stop":
            return last.by
        number = 1 if last is None else last.number + 1
        wish = Wish(number=number, wants="stop", at=time.time(), by=this_person())
        if await store.create(keys.wish(run, number), wish.to_bytes()):
            return None


async def lift(store: ObjectStore, run: str, seen: Wish | None) -> Wish | None:
    """Let a run go on, since a person resumes it who has ``seen`` what is wanted; what is wanted after that stands.

    Returns what was wanted, or what takes the place of a stop. Raises StoreError.
    """
    if seen is None or seen.wants != "stop":
        return seen
    wish = Wish(number=seen.number + 1, wants="go_on", at=time.time(), by=this_person())
    await store.create(keys.wish(run, wish.number), wish.to_bytes())  # where there is one, it says the same
    return wish
