"""A small agent: ask the model, run its tool calls, repeat. It runs inside a sandbox, with nothing but the standard library.

Standard input holds one JSON object: {"prompt": system prompt or null, "params": sampling parameters}. The gateway's address,
the token and the model come from the environment. What it does is written to standard output, one short line a step.

Exit status: 0 when it finished, was told that a budget is spent, or the model had no more to say; 1 when it cannot go on.

It is started in every trial, so imports count: HTTP is spoken over a bare socket (http.client alone takes 40 ms to load).
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SYSTEM = (
    "You are an agent that works in a sandbox by calling tools. Look before you change anything, make the smallest change that "
    "does what is asked, check it by running what there is to run, then call `finish`."
)
REMINDER = "You called no tool. Go on with a tool call, or call `finish` when the work is done or cannot be done."
INSTRUCTION = "/task/instruction.md"
MOST_OUTPUT = 10_000
"""Characters of a command's output that the model gets; the middle of a longer one is left out."""
DEFAULT_SECONDS = 120
MOST_SECONDS = 600
TRIES = 4
CALL_SECONDS = 1800

SHELL = {
    "type": "function",
    "function": {
        "name": "shell",
        "description": "Run a command with `sh -c` in the workspace. Returns its output and exit code.",
        "parameters": {
            "type": "object",
            "additionalProperties": False,
            "required": ["command"],
            "properties": {
                "command": {"type": "string"},
                "timeout_seconds": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MOST_SECONDS,
                    "description": f"Seconds after which it is killed; {DEFAULT_SECONDS} when absent.",
                },
            },
        },
    },
}


class GiveUpError(Exception):
    """It cannot go on; the text says why."""


class SpentError(Exception):
    """The gateway says that a budget is spent or the trial is over."""


class Gateway:
    """The gateway, over one connection per request."""

    def __init__(self, address: str, token: str) -> None:
        host, _, port = address.removeprefix("http://").rstrip("/").partition(":")
        self._host = host
        self._port = int(port or "80")
        self._token = token

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Return status and JSON object. Tries again when the connection fails. Raises GiveUpError."""
        problem: Exception | None = None
        for attempt in range(TRIES):
            if attempt:
                time.sleep(0.2 * 2**attempt)
            try:
                return self._once(method, path, body)
            except (OSError, ValueError) as error:
                problem = error
        msg = f"{method} {path}: the gateway cannot be reached: {problem}"
        raise GiveUpError(msg)

    def _once(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        data = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        )
        with socket.create_connection((self._host, self._port), timeout=CALL_SECONDS) as connection:
            connection.sendall(head.encode() + data)
            parts = []
            while part := connection.recv(1 << 16):
                parts.append(part)
        top, separator, content = b"".join(parts).partition(b"\r\n\r\n")
        if not separator:
            msg = "the answer ended early"
            raise ValueError(msg)
        lines = top.decode("latin-1").split("\r\n")
        length = [line.partition(":")[2] for line in lines if line.lower().startswith("content-length:")]
        if length and len(content) != int(length[0]):
            msg = "the answer was cut short"
            raise ValueError(msg)
        found: dict[str, Any] = json.loads(content)
        return int(lines[0].split(" ")[1]), found


def run_shell(command: str, seconds: float) -> str:
    """Run a command; return its output, cut in the middle, and how it ended. What it left behind in the background lives on."""
    reading, writing = os.pipe()
    output = Output()
    try:
        try:
            process = _spawn(command, writing)
        finally:
            os.close(writing)
        code = _watch(process, reading, output, time.monotonic() + seconds)
    finally:
        os.close(reading)
    ending = f"timed out after {seconds:g} s and was killed" if code is None else f"exit code {code}"
    return f"{output.text()}[{ending}]"


def _spawn(command: str, writing: int) -> int:
    return os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", command],
        os.environ,  # noqa: TID251  (this program runs inside a sandbox)
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writing, 1),
            (os.POSIX_SPAWN_DUP2, writing, 2),
        ],
        setsid=True,
    )


def _watch(process: int, reading: int, output: Output, deadline: float) -> int | None:
    """Read until the command itself has ended, whoever still holds its output. None: it was killed at the deadline."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    is_open = True
    while True:
        if not is_open:
            time.sleep(0.005)
        elif poll.poll(20):
            part = os.read(reading, 1 << 16)
            output.add(part)
            is_open = bool(part)
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            # What is still in the pipe: it holds 64 KiB, and what a process in the background adds is no output of this command.
            for _ in range(4):
                if is_open and poll.poll(0):
                    output.add(os.read(reading, 1 << 16))
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return None


class Output:
    """Keeps head and tail of an output, so that an endless one costs no memory."""

    def __init__(self) -> None:
        self._head = b""
        self._tail = b""
        self._size = 0

    def add(self, part: bytes) -> None:
        """Take more output."""
        self._size += len(part)
        room = MOST_OUTPUT // 2 - len(self._head)
        self._head += part[: max(room, 0)]
        self._tail = (self._tail + part[max(room, 0) :])[-MOST_OUTPUT // 2 :]

    def text(self) -> str:
        """Return it as text that ends with a newline when there is any."""
        left_out = self._size - len(self._head) - len(self._tail)
        middle = f"\n[… {left_out} bytes left out …]\n".encode() if left_out else b""
        text = (self._head + middle + self._tail).decode("utf-8", "replace")
        return text + ("" if not text or text.endswith("\n") else "\n")


class Loop:
    """One conversation with the model."""

    def __init__(self, gateway: Gateway, model: str, settings: dict[str, Any]) -> None:
        self._gateway = gateway
        self._model = model
        self._params: dict[str, Any] = settings.get("params") or {}
        self._tools: list[dict[str, Any]] = []
        self._messages: list[dict[str, Any]] = [{"role": "system", "content": settings.get("prompt") or SYSTEM}]
        self._finished = False

    def run(self, instruction: str) -> None:
        """Work until finished. Raises GiveUpError, SpentError."""
        self._tools = [SHELL, *self._checked("GET", "/tools")["tools"]]
        self._messages.append({"role": "user", "content": instruction})
        reminded = False
        step = 0
        while not self._finished:
            step += 1
            message = self._next()
            self._messages.append(message)
            calls = message.get("tool_calls") or []
            if message.get("content"):
                say(f"[{step}] {message['content']}")
            for call in calls:
                self._messages.append(
                    {"role": "tool", "tool_call_id": call.get("id"), "content": self._call(step, call)}
                )
            if not calls:
                if reminded:
                    say("stopped: the model calls no tool any more")
                    return
                reminded = True
                self._messages.append({"role": "user", "content": REMINDER})

    def _next(self) -> dict[str, Any]:
        body = {**self._params, "model": self._model, "messages": self._messages, "tools": self._tools}
        answer = self._checked("POST", "/v1/chat/completions", body)
        try:
            message: dict[str, Any] = answer["choices"][0]["message"]
            return {key: message[key] for key in ("role", "content", "tool_calls") if message.get(key) is not None}
        except (KeyError, IndexError, TypeError, AttributeError):
            msg = "the model's answer has no message"
            raise GiveUpError(msg) from None

    def _checked(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        status, answer = self._gateway.ask(method, path, body)
        if status == 200:
            return answer
        error = answer.get("error") or {}
        if error.get("type") in {"budget_exhausted", "sealed"}:
            raise SpentError(error.get("message"))
        msg = f"{method} {path}: status {status}: {error.get('type')}: {error.get('message')}"
        raise GiveUpError(msg)

    def _call(self, step: int, call: dict[str, Any]) -> str:
        function = call.get("function") or {}
        name = str(function.get("name"))
        try:
            arguments = json.loads(function.get("arguments") or "{}")
        except ValueError as error:
            return f"error: the arguments of {name} are not JSON: {error}"
        if not isinstance(arguments, dict):
            return f"error: the arguments of {name} must be a JSON object"
        say(f"[{step}] {name} {json.dumps(arguments)}")
        return self._shell(arguments) if name == "shell" else self._remote(name, arguments)

    def _shell(self, arguments: dict[str, Any]) -> str:
        command, seconds = arguments.get("command"), arguments.get("timeout_seconds", DEFAULT_SECONDS)
        if not isinstance(command, str) or not command.strip() or "\0" in command:
            return "error: shell needs `command`, a text that is not empty"
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MOST_SECONDS:
            return f"error: timeout_seconds must be a number from 1 to {MOST_SECONDS}"
        try:
            return run_shell(command, seconds)
        except (OSError, ValueError) as error:  # too long, not to be encoded, no process left: the model's to mend
            return f"error: the command could not be started: {error}"

    def _remote(self, name: str, arguments: dict[str, Any]) -> str:
        known = [tool["function"]["name"] for tool in self._tools]
        if name not in known:
            return f"error: there is no tool {name!r}; there are: {', '.join(known)}"
        status, answer = self._gateway.ask("POST", f"/tools/{name}", arguments)
        if name == "finish" and status in {200, 409}:
            self._finished = True
        if status == 200:
            return json.dumps(answer)
        return f"error: {(answer.get('error') or {}).get('message')}"


def say(text: str) -> None:
    """Write a line for whoever reads the trial's output."""
    line = text.encode("utf-8", "replace").replace(b"\n", b"\\n")
    os.write(1, (line if len(line) <= 400 else line[:400] + b" ...") + b"\n")


def main() -> int:
    """Run the agent; return the exit status."""
    env = os.environ  # noqa: TID251  (this program runs inside a sandbox)
    try:
        settings = json.loads(sys.stdin.read() or "{}")
        gateway = Gateway(env["ORCHESTRATE_GATEWAY"], env["ORCHESTRATE_TOKEN"])
        path = sys.argv[1] if len(sys.argv) > 1 else INSTRUCTION
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  (pathlib costs start-up time)
            instruction = file.read()
        Loop(gateway, env["ORCHESTRATE_MODEL"], settings).run(instruction)
    except SpentError as spent:
        say(f"stopped: {spent}")
    except (GiveUpError, OSError, ValueError, KeyError) as problem:
        sys.stderr.write(f"react: {type(problem).__name__}: {problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
