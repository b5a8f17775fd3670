"""Waiting until a launch is sealed: the freezer's first half. Standard library only.

The agent is proved dead twice, and whichever proof comes first has the launch sealed:

- The supervisor's lock is free: it was held while anything of the agent was alive. The kernel tells that at once.
- The driver sees the agent's container end, which the kubelet tells a second or two later.

So nobody waits for a driver that is absent, nor for the kubelet of a pod that is being ended (SIGTERM), which shows no container's ending
until all are gone; the stop file is made then. In any case nothing is read before the freezer has the lock. It keeps it, so that no agent
can start any more.

gVisor keeps the locks of each container for itself, also on a volume of both. There the driver's proof is the only one; in a pod that is
being ended, where nobody else tells, the supervisor's note that it has ended is believed: such a launch is no result anyway.
"""

# pathlib would double the start-up time.

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # ``signal`` builds enumerations that nobody needs here
import _thread
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

SETTLE_SECONDS = 1.0
"""From the lock to death: the kernel closes the files of a killed first process a moment before it kills the rest."""
JUST_NOW_SECONDS = 1.0
"""A supervisor that is told to end is quick: when the freezer is told, too, the agent may be dead already."""
_LOOK_SECONDS = 0.2
"""Between looks for the agent's start."""
_DYING_LOOK_SECONDS = 0.05
_ANSWER_SECONDS = 60.0  # a gateway answers within half of it, with nothing to say
_LONGEST_PAUSE = 2.0
_FOREVER = 1e9
_STACK_BYTES = 128 << 10
"""Of the thread that waits for the lock: the usual size would count against the container's memory."""


class Lock:
    """The lock on ``/ctl/alive``, which the supervisor has as long as anything of the agent is alive."""

    def __init__(self, places: Places) -> None:
        self._file = os.open(f"{places.ctl}/alive", os.O_RDONLY | os.O_CLOEXEC)
        self._held_at = -_FOREVER
        self.awaited = False
        """A thread waits for it."""
        self.taken_at: float | None = None
        """Since when it is ours for good."""

    def take(self) -> bool:
        """Take it for good. False: the supervisor has it."""
        if self.taken_at is None and self._try():
            self.taken_at = time.monotonic()
        return self.taken_at is not None

    def is_held(self) -> bool:
        """Look whether the supervisor has it. One that begins in this very moment tries again."""
        if self.taken_at is not None or (not self.awaited and self._try()):
            if self.taken_at is None:
                fcntl.flock(self._file, fcntl.LOCK_UN)
            return False
        self._held_at = time.monotonic()
        return True

    def was_held(self, seconds: float) -> bool:
        """Return whether the supervisor has it, or had it within the last seconds as far as was seen."""
        return self.is_held() or time.monotonic() - self._held_at < seconds

    def wait(self, waker: int) -> None:
        """Have a thread take it for good as soon as it is free, and write to a pipe then."""
        self.awaited = True
        usual = _thread.stack_size(_STACK_BYTES)
        try:
            _thread.start_new_thread(self._wait, (waker,))
        finally:
            _thread.stack_size(usual)

    def _wait(self, waker: int) -> None:
        if not self._try():
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._held_at = time.monotonic()
        self.taken_at = self.taken_at or time.monotonic()
        os.write(waker, b"l")

    def _try(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class Orders:
    """Waits for the seal. ``until_sealed`` returns once, or raises PodError."""

    def __init__(self, places: Places, gateway: Gateway, disk: DiskWatch, *, shared_lock: bool = True) -> None:
        """``shared_lock``: containers see each other's locks. Raises OSError when there is no lock to look at."""
        self._shared_lock = shared_lock
        self._places = places
        self._gateway = gateway
        self._disk = disk
        self._lock = Lock(places)
        self.dying = False
        """The pod is being ended."""
        self._asked: _socket.socket | None = None
        self._asked_at = 0.0
        self._ask_at = 0.0
        self._pause = 0.1
        self._unknown = 0
        self.interrupted = False
        """The pod was ended while the agent was alive, as far as could be seen then or a moment before."""
        self.over_disk = False
        """The agent took more of the disk than it may, and was ended for it."""

    def listen(self) -> None:
        """From now on SIGTERM is noticed."""
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.set_wakeup_fd(self._waker)
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
        if not sealed:
            insist(self._gateway, "POST", "/launch/dead", _FOREVER, {}, unknown=FREEZER_UNKNOWN)
        elif not self._lock.take() or not self._shared_lock:
            self._stop()  # whoever sealed it was told that the agent is dead, or has given it up
            while not self._lock.take():
                time.sleep(_DYING_LOOK_SECONDS)
            time.sleep(SETTLE_SECONDS)

    def _end(self, *_: object) -> None:
        """SIGTERM. Nothing waits for a long poll, or for a gateway that does not answer."""
        if not self.dying:
            self.dying = True
            alive = self._lock.was_held(JUST_NOW_SECONDS) if self._shared_lock else not self._has_ended()
            self.interrupted = alive
            self._stop()

    def _stop(self, file: str = "stop") -> None:
        try:
            os.close(os.open(f"{self._places.ctl}/{file}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o444))
        except OSError as error:
            sys.stderr.write(f"cannot make /ctl/{file}: {error.strerror}\n")

    def _look_at_disk(self) -> None:
        """End an agent that takes too much of the disk, before the node ends its whole pod, or others', for it."""
        if self._watches_disk() and self._disk.is_over():
            self.over_disk = True
            self._stop("full")

    def _watches_disk(self) -> bool:
        return not self.over_disk and not self.dying and self._lock.taken_at is None

    def _is_dead(self) -> bool:
        """Return whether it is proved that the agent is dead; then we hold the lock."""
        if not self._shared_lock:
            return self.dying and self._has_ended()
        if self.dying:
            self._lock.take()
        elif not self._lock.awaited and self._has_started():
            self._lock.wait(self._waker)
        taken = self._lock.taken_at
        return taken is not None and time.monotonic() - taken >= SETTLE_SECONDS

    def _has_ended(self) -> bool:
        """Return whether the supervisor says so: the file is there from the start and written at the end. The agent can write it, too."""
        try:
            return os.lstat(f"{self._places.log}/ending").st_size > 0
        except OSError:
            return False

    def _has_started(self) -> bool:
        return self._lock.awaited or self._lock.is_held() or os.path.lexists(f"{self._places.log}/started")

    def _wait(self) -> None:
        """Wait for an answer, a signal, the lock, or the next look."""
        now = time.monotonic()
        if self._asked is None and not self.dying and now >= self._ask_at:
            self._ask()
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if self._asked is not None:
            poll.register(self._asked.fileno(), select.POLLIN)
        poll.poll(max(0.0, self._idle_until(now) - now) * 1000)
        try:
            os.read(self._woken, 100)
        except BlockingIOError:
            return

    def _idle_until(self, now: float) -> float:
        """Return until when nothing need be looked at."""
        if self._lock.taken_at is not None:
            return self._lock.taken_at + SETTLE_SECONDS
        if self.dying:
            return now + _DYING_LOOK_SECONDS
        until = self._ask_at if self._asked is None else self._asked_at + _ANSWER_SECONDS
        if not self._lock.awaited:
            until = min(until, now + _LOOK_SECONDS)
        return min(until, now + self._disk.pause) if self._watches_disk() else until

    def _ask(self) -> None:
        try:
            self._asked = self._gateway.begin(f"/launch/stop?started={int(self._has_started())}")
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
