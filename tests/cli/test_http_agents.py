"""Agents behind an endpoint: they get the instruction and the files, and what they answer is graded."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

TASK = """\
id: count
instruction: Write the number of lines of poem.txt into count.txt, and delete old.txt.
environment: {requires: [python3]}
checks:
  - {id: count, type: files, path: count.txt, regex: "^4$"}
  - {id: gone, type: files, path: old.txt, exists: false}
"""


@contextlib.contextmanager
def endpoint(answer: Callable[[dict[str, Any]], tuple[int, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve a function at an address of this machine; gives the address and what was asked."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status, value = answer(asked[-1])
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/run?team=a", asked
        server.shutdown()
        thread.join()


@pytest.fixture
def task(tmp_path: Path) -> Path:
    folder = tmp_path / "lines" / "count"
    (folder / "workspace" / "notes").mkdir(parents=True)
    (folder.parent / "suite.yaml").write_text("id: lines\n")
    (folder / "task.yaml").write_text(TASK)
    (folder / "workspace" / "poem.txt").write_text("a\nb\nc\nd\n")
    (folder / "workspace" / "old.txt").write_text("old")
    (folder / "workspace" / "notes" / "picture").write_bytes(b"\xff\xfe")
    (tmp_path / "orchestrate.toml").write_text('[egress]\nallowed = ["127.0.0.0/8"]\n')
    return folder


def agent(folder: Path, url: str) -> Path:
    file = folder / "remote.yaml"
    file.write_text(f"type: http\nurl: {url}\n")
    return file


@pytest.mark.long
def test_what_an_endpoint_answers_is_its_work(orchestrate: Callable[..., Any], task: Path, tmp_path: Path) -> None:
    def answer(asked: dict[str, Any]) -> tuple[int, Any]:
        count = asked["files"]["poem.txt"].count("\n")
        return 200, {
            "status": "completed",
            "message": "Counted.",
            "confidence": 0.9,
            "files": {"count.txt": f"{count}\n", "old.txt": None},
        }

    with endpoint(answer) as (url, asked):
        done = orchestrate("try", task, "--agent", agent(tmp_path, url), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    [request] = asked
    assert sorted(request["files"]) == ["old.txt", "poem.txt"]
    assert request["omitted"] == ["notes/picture"]
    assert "Write the number of lines" in request["instruction"]
    outcome = json.loads(done.stdout)["outcome"]
    assert (outcome["termination_reason"], outcome["final"]["message"]) == ("completed", "Counted.")
    assert (outcome["usage"]["cost_nano_usd"], outcome["unrecorded"]) == (None, ["tokens"])
    said = orchestrate("show", "last", "count").stdout
    assert "tokens not recorded" in said
    assert "act at an endpoint" in orchestrate("report", "last").stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "value", "says"),
    [
        (404, {"error": "no such route"}, "gave no answer: HTTP 404"),
        (200, b"<html>", "is no JSON"),
        (200, [1], "is no JSON object"),
        (200, {"files": {"../../etc/x": "y"}}, "cannot be written"),
    ],
)
def test_an_endpoint_without_an_answer_has_failed(
    orchestrate: Callable[..., Any], task: Path, tmp_path: Path, status: int, value: Any, says: str
) -> None:
    with endpoint(lambda _: (status, value)) as (url, _):
        done = orchestrate("try", task, "--agent", agent(tmp_path, url))
    assert done.returncode == 1
    assert "unhandled_exception" in done.stdout
    assert says in done.stdout


def test_a_limit_on_what_nobody_counts_is_refused(in_process: Callable[..., Any], task: Path, tmp_path: Path) -> None:
    file = agent(tmp_path, "https://agent.example.com/run")
    done = in_process("submit", task.parent, "--agent", file, "--max-cost", "1")
    assert done.returncode == 2
    assert "agent remote: what it spends at its endpoint is not seen" in done.stderr
