"""What hidden tests import: the agent's work, run elsewhere, seen only as JSON values.

::

    from subject import call, script, run, SubjectError, SubjectDied

    assert call("auth:check", "alice", "") is False
    assert script("from auth import Box; b = Box(); result = b.add(3)") == 3
    assert run("python3", "-m", "app", files={"in.csv": "…"}, read=["out.csv"]).files["out.csv"] == "…"

Every request is a fresh process over the frozen workspace, which is its current folder.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orchestrate_report  # type: ignore[import-not-found]  # it lies beside this file in the runner

__all__ = ["Completed", "SubjectDied", "SubjectError", "call", "run", "script"]

SECONDS = 20.0
"""Default time limit of one request, in seconds."""
_CHANNEL = 3
_LINE_BYTES = 1 << 20
_PIECE_BYTES = 64 << 10
_GRACE_SECONDS = 60


class SubjectError(Exception):
    """The agent's code raised an exception."""

    def __init__(self, kind: str, kinds: tuple[str, ...], message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.type = kind
        """Name of the exception's class."""
        self.types = kinds
        """Names of the class and its bases: ``"KeyError"`` is also a ``"LookupError"``."""
        self.message = message
        """Its text."""


class SubjectDied(Exception):  # noqa: N818 - it is what happened to the subject
    """No usable answer: the process ended, took too long, wrote too much, or its value is no JSON. Never what a right program does."""


@dataclass(frozen=True)
class Completed:
    """A program that ended by itself."""

    exit_code: int
    """Exit code; minus the signal when one ended it."""
    stdout: str
    stderr: str
    files: dict[str, str]
    """Text of the files asked for with ``read``, as far as they are there."""


def call(target: str, /, *args: Any, **kwargs: Any) -> Any:
    """Call ``module:function`` (or ``module:Class.method``) with JSON arguments and return its JSON value."""
    module, _, name = target.partition(":")
    if not module or not name:
        msg = f"{target!r} is no target; write module:function"
        raise ValueError(msg)
    return _value(_exchange({"op": "call", "target": target, "args": args, "kwargs": kwargs, "timeout": SECONDS}))


def script(code: str, *, timeout: float = SECONDS) -> Any:
    """Run Python code in the workspace and return the JSON value of its variable ``result``."""
    return _value(_exchange({"op": "script", "code": code, "timeout": timeout}))


def run(
    *argv: str,
    stdin: str = "",
    files: Mapping[str, str] | None = None,
    read: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
    timeout: float = SECONDS,
) -> Completed:
    """Run a program in the workspace, with ``files`` written into it before, and return what it said and the files in ``read``."""
    wanted, given = list(read), dict(files or {})
    for name in (*wanted, *given):
        if name.startswith("/") or ".." in name.split("/"):
            msg = f"{name!r} must be a path inside the workspace"
            raise ValueError(msg)
    request = {
        "op": "run",
        "argv": list(argv),
        "stdin": stdin,
        "files": given,
        "read": wanted,
        "env": dict(env or {}),
        "timeout": timeout,
    }
    reply = _exchange(request)
    if not all(isinstance(reply.get(key), str) for key in ("stdout", "stderr")) or not isinstance(
        reply.get("files"), dict
    ):
        raise _died("the answer has another form than agreed")
    code = reply["exit_code"] if reply["exit_code"] is not None else -int(reply["signal"] or 0)
    return Completed(code, reply["stdout"], reply["stderr"], {str(k): str(v) for k, v in reply["files"].items()})


def _value(reply: dict[str, Any]) -> Any:
    text = reply.get("answer")
    if not isinstance(text, str):
        ending = f"signal {reply.get('signal')}" if reply.get("signal") else f"exit code {reply.get('exit_code')}"
        output = str(reply.get("output") or "").strip()
        raise _died(
            f"it ended without an answer ({ending})" + (f"; its last output: {output[-500:]}" if output else "")
        )
    try:
        answer = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError, MemoryError) as wrong:
        raise _died(f"its value is not JSON ({type(wrong).__name__})") from None
    if not isinstance(answer, dict) or len(answer) != 1:
        raise _died("its answer has another form than agreed")
    if "value" in answer:
        return answer["value"]
    if "not_json" in answer:
        raise _died(f"its value is not JSON: {answer['not_json']}")
    error = answer.get("error")
    if not isinstance(error, dict):
        raise _died("its answer has another form than agreed")
    kinds = error.get("types")
    raise SubjectError(
        str(error.get("type")), tuple(map(str, kinds)) if isinstance(kinds, list) else (), str(error.get("message"))
    ) from None


def _refuse(word: str) -> Any:
    msg = f"{word} is no JSON number"
    raise ValueError(msg)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        _refuse(text)
    return number


def _died(why: str) -> SubjectDied:
    return SubjectDied(f"the subject gave no usable answer: {why}")


class _Channel:
    """The line to the subject. One request at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._received = bytearray()
        self._over: str | None = None

    def exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return the reply to it."""
        nonce = secrets.token_hex(16)
        data = json.dumps({**request, "nonce": nonce}, allow_nan=False).encode() + b"\n"
        if len(data) > _LINE_BYTES:
            msg = f"a request of {len(data)} bytes is larger than 1 MiB"
            raise ValueError(msg)
        with self._lock:
            if self._over is not None:
                raise _died(self._over)
            try:
                return self._speak(data, nonce, request["timeout"])
            except (OSError, ValueError, RecursionError, MemoryError) as error:
                self._over = f"the subject's sandbox is gone or broken ({str(error) or type(error).__name__})"
                raise _died(self._over) from None

    def _speak(self, data: bytes, nonce: str, seconds: float) -> dict[str, Any]:
        if self._socket is None:
            orchestrate_report.note_asked()
            self._socket = socket.socket(fileno=os.dup(_CHANNEL))
        until = time.monotonic() + seconds + _GRACE_SECONDS
        self._socket.settimeout(seconds + _GRACE_SECONDS)
        self._socket.sendall(data)
        line = self._line(self._socket, until)
        reply = json.loads(line)
        if not isinstance(reply, dict) or not secrets.compare_digest(str(reply.pop("nonce", "")), nonce):
            msg = "a reply came to another request"
            raise ValueError(msg)
        return reply

    def _line(self, subject: socket.socket, until: float) -> bytes:
        """Receive the next line, in the memory that its bytes take however they come. Raises OSError, ValueError."""
        looked = 0
        while (end := self._received.find(b"\n", looked)) < 0:
            looked = len(self._received)
            if looked > _LINE_BYTES:
                msg = f"its line is longer than {_LINE_BYTES} bytes"
                raise ValueError(msg)
            subject.settimeout(max(0.001, until - time.monotonic()))
            part = subject.recv(_PIECE_BYTES)
            if not part:
                msg = "the line ended"
                raise ValueError(msg)
            self._received += part
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line


_channel = _Channel()


def _exchange(request: dict[str, Any]) -> dict[str, Any]:
    reply = _channel.exchange(request)
    if reply.get("problem"):
        raise _died(str(reply["problem"]))
    if reply.get("timed_out"):
        raise _died(f"no answer within {request['timeout']:g} s")
    if reply.get("too_large"):
        raise _died("it wrote more than a request may")
    return reply
