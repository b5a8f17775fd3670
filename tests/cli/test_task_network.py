"""Tasks that list hosts: real programs in a real sandbox reach these and nothing else, and the trajectory says so."""

from __future__ import annotations

import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

_PROGRAM = r"""
import http.client, os, urllib.parse
proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
import base64
shown = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
def ask(host, port):
    connection = http.client.HTTPConnection(proxy.hostname, proxy.port, timeout=10)
    connection.set_tunnel(host, port, {"Proxy-Authorization": "Basic " + shown})
    try:
        connection.request("GET", "/")
        return connection.getresponse().read().decode()
    except OSError as error:
        return str(error)
port = int(open("port.txt").read())
open("note.txt", "w").write(ask("localhost", port))
print(ask("example.org", 443))
"""


@pytest.fixture
def port() -> Iterator[int]:
    """A web server of this machine that says ``reached``."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "7")
            self.end_headers()
            self.wfile.write(b"reached")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def _suite(folder: Path, port: int) -> Path:
    task = {
        "id": "fetch",
        "instruction": "Fetch the page.",
        "environment": {"requires": ["python3"], "network": {"allowlist": [f"localhost:{port}"]}},
        "checks": [{"id": "note", "type": "files", "path": "note.txt", "regex": "reached"}],
    }
    (folder / "suite/fetch/workspace").mkdir(parents=True)
    (folder / "suite/suite.yaml").write_text("id: network\n")
    (folder / "suite/fetch/task.yaml").write_text(json.dumps(task))
    (folder / "suite/fetch/workspace/port.txt").write_text(str(port))
    (folder / "orchestrate.toml").write_text('[egress]\nallowed = ["127.0.0.0/8"]\n')
    return folder / "suite"


def test_a_listed_host_is_reached_and_no_other(tmp_path: Path, port: int, orchestrate) -> None:  # type: ignore[no-untyped-def]
    suite = _suite(tmp_path, port)
    agents = {"python": ["python3", "-c", _PROGRAM]}
    if shutil.which("curl"):
        agents["curl"] = [
            "sh",
            "-c",
            "curl -sS --noproxy none --proxytunnel -x $HTTPS_PROXY http://localhost:$(cat port.txt)/ > note.txt",
        ]
    words: list[str | Path] = ["submit", suite, "--json"]
    for name, command in agents.items():
        (tmp_path / f"{name}.yaml").write_text(json.dumps({"type": "command", "command": command}))
        words += ["--agent", tmp_path / f"{name}.yaml"]
    done = orchestrate(*words)
    assert done.returncode == 0, done.stderr
    whole = json.loads(done.stdout)
    assert whole["manifest"]["labels"]["network"] == ["unfrozen: 1 task reaches listed hosts"]
    report = {agent["agent"]: agent["counts"] for agent in whole["agents"]}
    for name in agents:
        assert report[name]["passed"] == 1, (name, done.stderr)
    lines = orchestrate("logs", "last", "fetch@python", "--json").stdout.splitlines()
    events = [event for event in map(json.loads, lines) if event["type"] == "egress"]
    # A connection is told of when it has ended, which may be after the next one was refused.
    assert sorted((event["host"], event["outcome"]) for event in events) == [
        ("example.org", "refused"),
        ("localhost", "open"),
    ]
    assert "egress_not_allowed" in orchestrate("show", "last", "fetch@python").stdout


@pytest.mark.long
def test_addresses_of_this_machine_are_refused_unless_named(tmp_path: Path, port: int, orchestrate) -> None:  # type: ignore[no-untyped-def]
    suite = _suite(tmp_path, port)
    (tmp_path / "orchestrate.toml").unlink()
    (tmp_path / "python.yaml").write_text(json.dumps({"type": "command", "command": ["python3", "-c", _PROGRAM]}))
    done = orchestrate("submit", suite, "--json", "--agent", tmp_path / "python.yaml")
    assert done.returncode == 0, done.stderr
    [agent] = json.loads(done.stdout)["agents"]
    assert agent["counts"]["failed"] == 1
    assert "egress_not_public" in orchestrate("show", "last").stdout
