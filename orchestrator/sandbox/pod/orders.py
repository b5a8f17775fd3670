"""Waiting until a launch is sealed: the freezer's first half. Standard library only.

The launch is sealed by the driver, which sees the agent's container end. Two things can keep the driver from seeing it, and then the
freezer proves the death itself, by the lock that the supervisor holds while anything of the agent is alive:

- The pod is being ended (SIGTERM): no container's ending is shown until all are gone. The stop file is made, the lock waited for.
- The driver is absent: the lock is free, the agent had started, and no seal came for a while.

In any case nothing is read before the freezer has the lock. It keeps it, so that no agent can start any more.
"""

# pathlib would double the start-up time.

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # ``signal`` builds enumerations that nobody needs here
import fcntl
import os
import select
import sys
import time

from orchestrator.sandbox.pod.talk import UNKNOWN_TRIES, Gateway, insist
from orchestrator.sandbox.pod.world import FREEZER_UNKNOWN, Places, PodError

TYPE_CHECKING = False  # importing ``typing`` would cost a tenth of the start
if TYPE_CHECKING:
    import _socket

    from orchestrator.sandbox.pod.usage import DiskWatch

ABSENT_SECONDS = 10.0
"""How long the agent is dead before its driver counts as absent."""
SETTLE_SECONDS = 1.0
"""From the lock to death: the kernel closes the files of a killed first process a moment before it kills the rest."""
_LOOK_SECONDS = 1.0
_DYING_LOOK_SECONDS = 0.05
_ANSWER_SECONDS = 60.0  # a gateway answers within half of it, with nothing to say
_LONGEST_PAUSE = 2.0
_FOREVER = 1e9


class Lock:
    """The lock on ``/ctl/alive``."""

    def __init__(self, places: Places) -> None:
        self._file = os.open(f"{places.ctl}/alive", os.O_RDONLY | os.O_CLOEXEC)

    def take(self) -> bool:
        """Take it for good. False: the supervisor has it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_free(self) -> bool:
        """Look. A supervisor that begins in this very moment tries again."""
        if not self.take():
            return False
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return True


class Orders:
    """Waits for the seal. ``until_sealed`` returns once, or raises PodError."""

    def __init__(self, places: Places, gateway: Gateway, disk: DiskWatch) -> None:
        """Raises OSError when there is no lock to look at."""
        self._places = places
        self._gateway = gateway
        self._disk = disk
        self._lock = Lock(places)
        self._held = False  # at the last look
        self._started = False
        self._free_since: float | None = None
        self._looked = 0.0
        self.dying = False
        """The pod is being ended."""
        self._asked: _socket.socket | None = None
        self._asked_at = 0.0
        self._ask_at = 0.0
        self._pause = 0.1
        self._unknown = 0
        self.interrupted = False
        """The pod was ended while the agent was alive, as far as could be seen then or a second before."""
        self.over_disk = False
        """The agent took more of the disk than it may, and was ended for it."""

    def listen(self) -> None:
        """From now on SIGTERM is noticed."""
        self._woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.set_wakeup_fd(waker)
        _signal.signal(_signal.SIGTERM, self._end)

    def until_sealed(self) -> None:
        """Obey the gateway until it says that the launch is sealed, or until the agent is proved dead and the gateway knows."""
        try:
            sealed = False
            while not sealed and not self._is_dead():
                self._wait()
                self._look_at_disk()
                sealed = self._answered()
        finally:
            self._hang_up()
        if sealed and self._lock.take():
            return
        if sealed:
            self._stop()  # whoever sealed it was told that the agent is dead, or has given it up
            self._wait_for_lock()
        time.sleep(SETTLE_SECONDS)
        if not sealed:
            insist(self._gateway, "POST", "/launch/dead", _FOREVER, {}, unknown=FREEZER_UNKNOWN)

    def _end(self, *_: object) -> None:
        """SIGTERM. Nothing waits for a long poll, or for a gateway that does not answer."""
        if not self.dying:
            self.dying = True
            self.interrupted = (
                self._held or not self._lock.is_free()
            )  # a supervisor is told at the same time, and quick
            self._stop()

    def _stop(self, file: str = "stop") -> None:
        try:
            os.close(os.open(f"{self._places.ctl}/{file}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o444))
        except OSError as error:
            sys.stderr.write(f"cannot make /ctl/{file}: {error.strerror}\n")

    def _look_at_disk(self) -> None:
        """End an agent that takes too much of the disk, before the node ends its whole pod, or others', for it."""
        if not self.over_disk and not self.dying and self._disk.is_over():
            self.over_disk = True
            self._stop("full")

    def _wait_for_lock(self) -> None:
        while not self._lock.take():
            time.sleep(_DYING_LOOK_SECONDS)

    def _wait(self) -> None:
        """Wait for an answer, a signal, or the next look."""
        if self._asked is None and not self.dying and time.monotonic() >= self._ask_at:
            self._ask()
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if self._asked is not None:
            poll.register(self._asked.fileno(), select.POLLIN)
        pause = _DYING_LOOK_SECONDS if self.dying else _LOOK_SECONDS
        poll.poll((pause if self.over_disk else min(pause, self._disk.pause)) * 1000)
        try:
            os.read(self._woken, 100)
        except BlockingIOError:
            return

    def _ask(self) -> None:
        started = self._started or os.path.lexists(f"{self._places.log}/started")
        try:
            self._asked = self._gateway.begin(f"/launch/stop?started={int(started)}")
            self._asked_at = time.monotonic()
        except OSError as error:
            self._later(str(error.strerror or error))

    def _answered(self) -> bool:
        """Take the answer to the long poll, if there is one. True: sealed. Raises PodError."""
        if self._asked is None:
            return False
        poll = select.poll()
        poll.register(self._asked.fileno(), select.POLLIN)
        if not poll.poll(0):
            if time.monotonic() - self._asked_at > _ANSWER_SECONDS:
                self._hang_up()
            return False
        connection, self._asked = self._asked, None
        try:
            status, value = self._gateway.finish(connection)
        except OSError as error:
            self._later(str(error.strerror or error))
            return False
        if status != 200 or not isinstance(value, dict):
            self._refused(status, value)
            return False
        self._pause = 0.1
        self._unknown = 0
        self._ask_at = max(time.monotonic(), self._asked_at + 0.2)
        if value.get("stopped"):
            self._stop()
        return value.get("sealed") is True

    def _refused(self, status: int, value: object) -> None:
        self._unknown = self._unknown + 1 if status == 401 else 0
        if self._unknown >= UNKNOWN_TRIES:
            self._stop()  # what it does now counts for nothing
            message = f"the gateway {self._gateway.address} does not know this launch: it was started anew"
            raise PodError(FREEZER_UNKNOWN, "gateway_restarted", message)
        self._later(f"HTTP {status}: {value!r:.200}")

    def _later(self, failure: str) -> None:
        sys.stderr.write(f"no orders from {self._gateway.address}: {failure}\n")
        self._ask_at = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _hang_up(self) -> None:
        if self._asked is not None:
            self._asked.close()
            self._asked = None

    def _is_dead(self) -> bool:
        """Return whether it is for us to say that the agent is dead; then we hold the lock."""
        if self.dying:
            return self._lock.take()
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return False
        self._looked = now
        self._held = not self._lock.is_free()
        self._started = self._started or self._held or os.path.lexists(f"{self._places.log}/started")
        if self._held or not self._started:
            self._free_since = None
            return False
        if self._free_since is None:
            self._free_since = now
        return now - self._free_since >= ABSENT_SECONDS and self._lock.take()
