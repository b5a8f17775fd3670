"""Too many wrong passwords lock an account for a while."""


class Lock:
    """Counts wrong passwords. ``clock`` returns seconds."""

    def __init__(self, clock, limit=5, seconds=900):
        self._clock = clock
        self._limit = limit
        self._seconds = seconds
        self._wrong = {}

    def note_failure(self, name):
        """Count a wrong password."""
        count, _ = self._wrong.get(name, (0, 0))
        self._wrong[name] = (count + 1, self._clock())

    def clear(self, name):
        """Forget wrong passwords after a right one."""
        self._wrong.pop(name, None)

    def is_locked(self, name):
        """Return whether the account is locked now."""
        count, last = self._wrong.get(name, (0, 0))
        if count < self._limit:
            return False
        if self._clock() - last >= self._seconds:
            self.clear(name)
            return False
        return True
