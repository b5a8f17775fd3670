"""Programs that people have, in a sandbox, unmodified: the client of the official MCP SDK, and curl."""

from __future__ import annotations

import json
import re
import shutil
from importlib import metadata
from pathlib import Path

import pytest
from cli_world import STARTER

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_TASK = """
id: quote
expect: ask_then_complete
instruction: Write the price of order 7 into price.txt, in the currency that the customer pays in.
environment: {requires: [python3]}
user: {mode: scripted, replies: user.yaml}
checks:
  - {id: price, type: files, path: price.txt, regex: "^70 EUR$"}
  - {id: asked, type: asked, replies: [currency]}
"""
_USER = "replies: [{id: currency, mentions: [[currency]], say: EUR}]\n"
_QUESTION = {"status": "asked", "message": "Which currency is the figure in, and for which region?"}
_CURL = f"""
curl -sS -H "Authorization: Bearer $ORCHESTRATE_TOKEN" "$ORCHESTRATE_GATEWAY/tools"
curl -sS -H "Authorization: Bearer $ORCHESTRATE_TOKEN" -d '{json.dumps(_QUESTION)}' "$ORCHESTRATE_GATEWAY/tools/finish"
"""
_CURL_MCP = f"""
curl -sS -H "x-api-key: $ORCHESTRATE_TOKEN" -d '{{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}}' "$ORCHESTRATE_GATEWAY/mcp"
curl -sS -H "x-api-key: $ORCHESTRATE_TOKEN" "$ORCHESTRATE_GATEWAY/mcp" -d '{{"jsonrpc": "2.0", "id": 2, "method": "tools/call",
  "params": {{"name": "finish", "arguments": {json.dumps(_QUESTION)}}}}}'
"""
_PROGRAM = """
import asyncio, os, sys
sys.path.insert(0, "/agent/packages")
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

async def work(mode):
    headers = {"Authorization": "Bearer " + os.environ["ORCHESTRATE_TOKEN"]}
    async with httpx2.AsyncClient(headers=headers, trust_env=False) as http:
        transport = streamable_http_client(os.environ["ORCHESTRATE_GATEWAY"] + "/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            print(mode, [tool.name for tool in (await client.list_tools()).tools])
            reply = (await client.call_tool("ask_user", {"question": "Which currency?"})).structured_content["reply"]
            with open("price.txt", "w") as file:
                file.write(f"70 {reply}")
            if mode != "legacy":
                await client.call_tool("finish", {"status": "completed", "message": "by MCP"})

asyncio.run(work("legacy"))
asyncio.run(work("auto"))
"""


def _copy(name: str, folder: Path, seen: set[str]) -> None:
    """Copy an installed distribution and all that it needs."""
    if name in seen:
        return
    seen.add(name)
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:  # for another system or an extra
        return
    for file in found.files or ():
        if ".." not in file.parts and "__pycache__" not in file.parts:
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file.locate(), target)
    for line in found.requires or ():
        if "extra ==" not in line and (match := re.match(r"[A-Za-z0-9._-]+", line)):
            _copy(match[0].lower(), folder, seen)


def test_the_official_client_works_inside_of_a_sandbox(tmp_path: Path, orchestrate) -> None:
    files = {
        "suite/suite.yaml": "id: asking\n",
        "suite/quote/task.yaml": _TASK,
        "suite/quote/user.yaml": _USER,
        "suite/quote/workspace/orders.txt": "7: 70\n",
        "agents/sdk.yaml": "type: command\ncommand: [python3, -I, /agent/program.py]\nbundle: files\n",
        "agents/files/program.py": _PROGRAM,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    seen: set[str] = set()
    for name in ("mcp", "cryptography"):
        _copy(name, tmp_path / "agents/files/packages", seen)

    done = orchestrate("submit", "suite", "--agent", "agents/sdk.yaml", "--run-id", "sdk", timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(orchestrate("show", "sdk", "quote", "--json").stdout)
    assert "legacy ['finish', 'ask_user']\nauto ['finish', 'ask_user']\n" in found["output"]
    outcome = found["outcome"]
    assert (found["result"], outcome["final"]["message"], outcome["tool_calls"]) == ("passed", "by MCP", 2)
    assert [each["reply"] for each in outcome["questions"]] == ["currency", "currency"]
    log = [json.loads(line) for line in orchestrate("logs", "sdk", "quote", "--json").stdout.splitlines()]
    assert [each["via"] for each in log if each["type"] == "tool_call"] == ["mcp"] * 3


def test_curl_finishes_a_starter_task(tmp_path: Path, orchestrate) -> None:
    words: list[str | Path] = ["submit", STARTER, "--tasks", "board-figure", "--samples", "1", "--run-id", "curl"]
    for name, script in (("plain", _CURL), ("mcp", _CURL_MCP)):
        agent = tmp_path / f"{name}.yaml"
        agent.write_text(json.dumps({"type": "command", "command": ["sh", "-c", script]}))
        words += ["--agent", agent]
    done = orchestrate(*words, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("plain", "mcp"):
        found = json.loads(orchestrate("show", "curl", f"board-figure@{name}", "--json").stdout)
        assert (found["result"], found["outcome"]["termination_reason"]) == ("passed", "asked"), found["output"]
        assert found["output"].count('"finish"') == 1
