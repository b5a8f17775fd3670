"""A small cache with a time to live. ``clock`` returns seconds."""

import time
from collections import OrderedDict


class Cache:
    """Keeps up to ``size`` answers for ``ttl`` seconds each."""

    def __init__(self, size=128, ttl=60.0, clock=time.monotonic):
        self.size = size
        self.ttl = ttl
        self.hits = 0
        self.misses = 0
        self._clock = clock
        self._entries = OrderedDict()

    def get_or_load(self, key, load):
        """Return the answer for a key, calling ``load()`` for it when there is none that is fresh."""
        entry = self._entries.get(key)
        now = self._clock()
        if entry is not None and now - entry[0] <= self.ttl:
            self.hits += 1
            self._entries[key] = (now, entry[1])
            return entry[1]
        self.misses += 1
        self._entries[key] = (now, None)
        value = load()
        self._entries[key] = (now, value)
        if len(self._entries) > self.size:
            self._entries.popitem(last=False)
        return value

    def forget(self, matches):
        """Drop all entries whose key ``matches(key)`` is true for; return how many."""
        doomed = [key for key in self._entries if matches(key)]
        for key in doomed:
            del self._entries[key]
        return len(doomed)

    def __len__(self):
        return len(self._entries)
