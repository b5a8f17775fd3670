"""An agent behind an endpoint: send it instruction and workspace, write down what comes back. Runs inside the sandbox.

Standard library only. One ``POST`` of JSON: ``instruction``, ``files`` (path to text, of the workspace) and ``omitted`` (paths that are
no text, or too much). The answer is JSON: ``status``, ``message``, ``confidence``, ``escalation`` as in final.json, and ``files`` (path to
text, or null to delete). The endpoint is reached through the gateway's proxy, which lets this sandbox out to that host.

Exit status: 0 when an answer was written down, 1 when there was none.
"""

# ruff: noqa: PTH103, PTH107, PTH113, PTH114, PTH118, PTH120, PTH123, TID251 - a program of a sandbox: paths and environment are its own

from __future__ import annotations

import base64
import http.client
import json
import os
import sys
import time
from urllib.parse import urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

INSTRUCTION = "/task/instruction.md"
FINAL = "/output/final.json"
MOST_FILE = 256 << 10
"""Bytes of a file that is sent."""
MOST_SENT = 8 << 20
"""Bytes of all files that are sent."""
MOST_ANSWER = 64 << 20
SECONDS = 3600
PAUSES = (1.0, 4.0, 10.0)
"""Seconds before each further try, when nobody answered or the service was busy."""
BUSY = (429, 502, 503, 504)
ENDING = ("status", "message", "confidence", "escalation")


class NoAnswerError(Exception):
    """There is no answer; the message says why."""


def main() -> None:
    """Ask, and write down what was answered. Raises NoAnswerError."""
    with open(INSTRUCTION, encoding="utf-8") as file:
        instruction = file.read()
    files, omitted = workspace(".")
    answer = ask(os.environ["ORCHESTRATE_URL"], {"instruction": instruction, "files": files, "omitted": omitted})
    if not isinstance(answer, dict):
        raise NoAnswerError("the endpoint's answer is no JSON object")
    write(answer.get("files") or {})
    ending = {name: answer[name] for name in ENDING if answer.get(name) is not None}
    if ending:
        with open(FINAL, "w", encoding="utf-8") as file:
            json.dump(ending, file)


def workspace(folder: str) -> tuple[dict[str, str], list[str]]:
    """Return the texts of a folder by path, and the paths of what is left out."""
    files: dict[str, str] = {}
    omitted: list[str] = []
    left = MOST_SENT
    for here, below, names in os.walk(folder):
        below.sort()
        for name in sorted(names):
            path = os.path.join(here, name)
            shown = os.path.relpath(path, folder)
            text = _text(path, min(MOST_FILE, left))
            if text is None:
                omitted.append(shown.encode("utf-8", "replace").decode())
            else:
                files[shown] = text
                left -= len(text.encode())
    return files, omitted


def _text(path: str, most: int) -> str | None:
    if os.path.islink(path) or not os.path.isfile(path):
        return None
    try:
        path.encode()
        with open(path, "rb") as file:
            data = file.read(most + 1)
        return data.decode() if len(data) <= most else None
    except (OSError, UnicodeError):
        return None


def ask(url: str, body: dict[str, Any]) -> Any:
    """Return the endpoint's answer. Raises NoAnswerError."""
    data = json.dumps(body).encode()
    for pause in (*PAUSES, None):
        try:
            status, answer = _post(url, data)
            failure = f"HTTP {status}: {answer[:500].decode('utf-8', 'replace')}"
            if status == 200:
                return json.loads(answer)
            if status not in BUSY:
                break
        except (OSError, http.client.HTTPException) as error:
            failure = f"{type(error).__name__}: {error}"
        except ValueError:
            raise NoAnswerError("the endpoint's answer is no JSON") from None
        if pause is not None:
            time.sleep(pause)
    raise NoAnswerError(f"the endpoint {url} gave no answer: {failure}")


def _post(url: str, data: bytes) -> tuple[int, bytes]:
    wanted, proxy = urlsplit(url), urlsplit(os.environ["HTTPS_PROXY"])
    kind = http.client.HTTPSConnection if wanted.scheme == "https" else http.client.HTTPConnection
    shown = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
    connection = kind(proxy.hostname or "", proxy.port, timeout=SECONDS)
    connection.set_tunnel(
        wanted.hostname or "",
        wanted.port or (443 if wanted.scheme == "https" else 80),
        headers={"Proxy-Authorization": f"Basic {shown}"},
    )
    target = wanted.path or "/"
    try:
        connection.request(
            "POST",
            f"{target}?{wanted.query}" if wanted.query else target,
            body=data,
            headers={"Content-Type": "application/json", "Host": wanted.netloc},
        )
        reply = connection.getresponse()
        return reply.status, reply.read(MOST_ANSWER)
    finally:
        connection.close()


def write(files: Any) -> None:
    """Write the answer's files into the workspace; the sandbox is what keeps them there. Raises NoAnswerError."""
    if not isinstance(files, dict):
        raise NoAnswerError("'files' of the endpoint's answer is no object")
    for path, text in files.items():
        try:
            if text is None:
                os.remove(path)
                continue
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        except (OSError, TypeError, ValueError) as error:
            raise NoAnswerError(f"the endpoint's file {path!r:.200} cannot be written: {error}") from error


if __name__ == "__main__":
    try:
        main()
    except NoAnswerError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
