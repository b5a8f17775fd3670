"""``orchestrate record``: a cassette from a live trial, never over another one by itself."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

SOLVE = """\
#!/bin/sh
python3 - <<'P'
import os, urllib.request
shown = {"Authorization": "Bearer " + os.environ["ORCHESTRATE_TOKEN"], "Content-Type": "application/json"}
asked = urllib.request.Request(os.environ["ORCHESTRATE_GATEWAY"] + "/tools/get_order", b'{"order_id": "o1"}', shown)
open("status.txt", "wb").write(urllib.request.urlopen(asked).read())
P
"""
FILES = {
    "suite.yaml": "id: suite\ndefaults:\n  environment: {requires: [python3]}\n",
    "order/task.yaml": (
        "id: order\ninstruction: Write it down.\nworld: world/\n"
        "fixtures: {cassette: fixtures/calls.jsonl, tools: [get_order]}\n"
        "checks: [{id: status, type: files, path: status.txt, regex: open}]\n"
    ),
    "order/world/seed.sql": "create table orders (id text, status text);\ninsert into orders values ('o1', 'open');\n",
    "order/world/tools.yaml": (
        "tools:\n  - name: get_order\n    description: Gets an order.\n"
        "    arguments: {type: object, properties: {order_id: {type: string}}}\n"
        "    result: {order: {row: 'select * from orders where id = :order_id'}}\n"
    ),
    "order/solution/solve.sh": SOLVE,
}


@pytest.mark.long
@pytest.mark.timeout(120)
def test_record_writes_a_cassette_and_replaces_one_only_when_told_to(orchestrate, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / "suite" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "suite" / name).write_text(text)
    task = tmp_path / "suite/order"
    cassette = task / "fixtures/calls.jsonl"
    missing = orchestrate("try", task)
    assert missing.returncode == 2
    assert "`orchestrate record" in missing.stderr
    nothing = orchestrate("record", task, "--agent", "nop")
    assert nothing.returncode == 2
    assert "called none of the tools in fixtures.tools" in nothing.stderr
    assert not cassette.parent.exists()
    first = orchestrate("record", task)
    assert first.returncode == 0, first.stderr
    assert "get_order: 1 call; 1 new, 0 gone, 0 with other answers" in first.stdout
    recorded = cassette.read_bytes()
    assert json.loads(recorded.splitlines()[1])["data"] == {"order": {"id": "o1", "status": "open"}}
    (task / "world/seed.sql").write_text(FILES["order/world/seed.sql"].replace("'open'", "'shut'"))
    assert orchestrate("try", task).returncode == 0  # what was recorded still answers
    refused = orchestrate("record", task)
    assert refused.returncode == 1
    assert "1 with other answers" in refused.stdout
    assert "--yes" in refused.stderr
    assert cassette.read_bytes() == recorded
    assert orchestrate("record", task, "--yes").returncode == 0
    assert b"shut" in cassette.read_bytes()
    assert [path.name for path in cassette.parent.iterdir()] == ["calls.jsonl"]


class _Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"path": self.path, "said": self.headers.get("Authorization")}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_server_is_recorded_and_needed_no_more(orchestrate, tmp_path: Path) -> None:
    solve = SOLVE.replace("/tools/get_order", "/upstream/crm/orders/7").replace(
        ', b\'{"order_id": "o1"}\', shown', ", headers=shown"
    )
    spec = (
        "id: order\ninstruction: Write it down.\nupstream: [{name: crm, http: {}}]\n"
        "fixtures: {cassette: fixtures/calls.jsonl, tools: [crm]}\nchecks: [{id: status, type: files, path: status.txt, regex: orders/7}]\n"
    )
    for name, text in {
        "suite.yaml": FILES["suite.yaml"],
        "order/task.yaml": spec,
        "order/solution/solve.sh": solve,
    }.items():
        (tmp_path / "suite" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "suite" / name).write_text(text)
    (tmp_path / "suite/order/workspace").mkdir()
    settings = tmp_path / "orchestrate.toml"
    with ThreadingHTTPServer(("127.0.0.1", 0), _Api) as api:
        Thread(target=api.serve_forever, daemon=True).start()
        (tmp_path / "key").write_text("a-very-secret-key")
        address = f"http://127.0.0.1:{api.server_port}/api"
        settings.write_text(f'[providers.crm]\ntype = "http"\nbase_url = "{address}"\nkey = {{file = "key"}}\n')
        recorded = orchestrate("record", tmp_path / "suite/order")
        api.shutdown()
    assert recorded.returncode == 0, recorded.stderr
    settings.unlink()
    assert orchestrate("try", tmp_path / "suite/order").returncode == 0
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "key"]
    assert not [data for data in kept if b"a-very-secret-key" in data]
