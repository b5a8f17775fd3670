"""The gateway's MCP server, spoken to by the official SDK's client, and by whoever does not keep to the protocol."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from tool_world import SlowTool, recorded

from orchestrator.gateway.sessions import MOST, Sessions

MODERN = "2026-07-28"


@asynccontextmanager
async def sandbox(world, **change):
    async with world().running() as here:
        inside = await here.launch(**change)
        slow = SlowTool()
        here.registry.find(inside.launch).tools.add(slow.tool)
        yield here, inside, slow


@asynccontextmanager
async def client(inside, mode="auto", headers=None):
    shown = headers or {"Authorization": f"Bearer {inside.registration.agent_token}"}
    transport = httpx2.AsyncHTTPTransport(local_address=getattr(inside, "address", None))
    async with (
        httpx2.AsyncClient(headers=shown, transport=transport) as http,
        Client(streamable_http_client(f"{inside.url}/mcp", http_client=http), mode=mode) as found,
    ):
        yield found


def rpc(method, params=None, number=1):
    return {"jsonrpc": "2.0", "id": number, "method": method, **({} if params is None else {"params": params})}


HELLO = rpc(
    "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
)


@pytest.mark.parametrize("mode", ["legacy", "auto", MODERN])
@pytest.mark.parametrize("key", ["Authorization", "x-api-key"])
def test_the_official_client_lists_calls_and_finishes(either, mode, key):
    async def run():
        async with sandbox(either) as (here, inside, slow):
            slow.let_go.set()
            token = inside.registration.agent_token
            headers = {key: f"Bearer {token}" if key == "Authorization" else token}
            async with client(inside, mode, headers) as mcp:
                tools = (await mcp.list_tools()).tools
                good = await mcp.call_tool("slow", {})
                failed = await mcp.call_tool("slow", {"fail": True})
                wrong = await mcp.call_tool("finish", {"status": "done"})
                with pytest.raises(MCPError, match="there is no tool 'rm'"):
                    await mcp.call_tool("rm", {})
                await mcp.call_tool("finish", {"status": "completed", "message": "✓"})
                late = await mcp.call_tool("slow", {})
            return tools, good, failed, wrong, late, await recorded(here, inside), await here.client.seal(inside.launch)

    tools, good, failed, wrong, late, events, seal = asyncio.run(run())
    assert [tool.name for tool in tools] == ["finish", "slow"]
    assert tools[0].input_schema["required"] == ["status"]
    assert (good.is_error, good.structured_content, json.loads(good.content[0].text)) == (
        False,
        {"waited": True},
        {"waited": True},
    )
    assert (failed.is_error, failed.content[0].text) == (True, "it broke")
    assert wrong.is_error
    assert "status" in wrong.content[0].text
    assert (late.is_error, late.structured_content["error"]["type"]) == (True, "already_finished")
    assert (seal.finish.status, seal.finish.message) == ("completed", "✓")
    assert {each.data["via"] for each in events if each.type == "tool_call"} == {"mcp"}
    assert [each.data["outcome"] for each in events if each.type == "tool_result"] == ["ok", "error", "invalid", "ok"]


@pytest.mark.parametrize("version", [*HANDSHAKE_PROTOCOL_VERSIONS, "1999-01-01"])
def test_every_version_of_the_handshake_is_spoken(world, version):
    async def run():
        async with sandbox(world) as (_here, inside, _slow):
            hello = rpc("initialize", {**HELLO["params"], "protocolVersion": version})
            _, answer, headers = await inside.ask("POST", "/mcp", hello)
            session = {
                "Mcp-Session-Id": headers["Mcp-Session-Id"],
                "MCP-Protocol-Version": answer["result"]["protocolVersion"],
            }
            ready = await inside.ask(
                "POST", "/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session
            )
            pinged = await inside.ask("POST", "/mcp", rpc("ping"), headers=session)
            listed = await inside.ask("POST", "/mcp", rpc("tools/list"), headers=session)
            other = await inside.ask("POST", "/mcp", rpc("resources/list"), headers=session)
            ended = await inside.ask("DELETE", "/mcp", headers=session)
            again = await inside.ask("POST", "/mcp", rpc("ping"), headers=session)
            return answer, ready, pinged, listed, other, ended, again

    answer, ready, pinged, listed, other, ended, again = asyncio.run(run())
    known = version in HANDSHAKE_PROTOCOL_VERSIONS
    assert answer["result"]["protocolVersion"] == (version if known else HANDSHAKE_PROTOCOL_VERSIONS[-1])
    assert answer["result"]["capabilities"] == {"tools": {}}
    assert ready[:2] == (202, None)
    assert pinged[:2] == (200, {"jsonrpc": "2.0", "id": 1, "result": {}})
    assert listed[1]["result"]["tools"][0]["name"] == "finish"
    assert (other[0], other[1]["error"]["code"]) == (200, -32601)
    assert (ended[0], again[0]) == (204, 404)


def test_a_client_that_takes_only_streams_gets_one_event(world):
    async def run():
        async with sandbox(world) as (_here, inside, _slow):
            headers = {"Authorization": f"Bearer {inside.registration.agent_token}", "Accept": "text/event-stream"}
            async with httpx2.AsyncClient(headers=headers, trust_env=False) as http:
                stream = await http.post(f"{inside.url}/mcp", json=rpc("ping"))
                neither = await http.post(f"{inside.url}/mcp", json=rpc("ping"), headers={"Accept": "image/png"})
                held = await http.get(f"{inside.url}/mcp")
                return stream, neither, held

    stream, neither, held = asyncio.run(run())
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.text == 'event: message\ndata: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'
    assert neither.status_code == 406
    assert (held.status_code, held.headers["allow"]) == (405, "POST, DELETE")


@pytest.mark.parametrize("mode", ["legacy", MODERN])
def test_a_cancelled_call_is_stopped(world, mode):
    async def run():
        async with sandbox(world) as (here, inside, slow):
            async with client(inside, mode) as mcp:
                call = asyncio.create_task(mcp.call_tool("slow", {}))
                await slow.began.wait()
                call.cancel()
                await asyncio.wait([call])
                async with asyncio.timeout(5):
                    while not slow.cancelled:
                        await asyncio.sleep(0.01)
                alive = await mcp.list_tools()
            return alive, await recorded(here, inside)

    alive, events = asyncio.run(run())
    assert len(alive.tools) == 2
    assert (events[-1].data["outcome"], events[-1].data["content"]) == ("error", "slow was cancelled")


def test_only_the_own_calls_of_a_session_can_be_cancelled_and_an_id_is_used_once_at_a_time(world):
    async def run():
        async with sandbox(world) as (_here, inside, slow):
            mine, other = [
                {"Mcp-Session-Id": (await inside.ask("POST", "/mcp", HELLO))[2]["Mcp-Session-Id"]} for _ in range(2)
            ]
            call = rpc("tools/call", {"name": "slow", "arguments": {}}, 7)
            running = asyncio.create_task(inside.ask("POST", "/mcp", call, headers=mine))
            await slow.began.wait()
            stop = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
            await inside.ask("POST", "/mcp", stop, headers=other)
            await inside.ask("POST", "/mcp", stop)
            twice = await inside.ask("POST", "/mcp", call, headers=mine)
            was = slow.cancelled
            await inside.ask("POST", "/mcp", stop, headers=mine)
            ended = await running
            slow.let_go.set()
            again = await inside.ask("POST", "/mcp", call, headers=mine)
            return was, twice[1]["error"]["code"], ended[1]["error"]["code"], again[1]["result"]["isError"]

    assert asyncio.run(run()) == (False, -32600, -32800, False)


def test_a_spent_budget_is_told_in_a_result(world):
    async def run():
        async with sandbox(world, budgets={"max_tool_calls": 1}) as (here, inside, slow):
            slow.let_go.set()
            async with client(inside) as mcp:
                await mcp.call_tool("slow", {})
                refused = await mcp.call_tool("slow", {})
                await mcp.call_tool("finish", {"status": "completed"})
            seal = await here.client.seal(inside.launch)
            return refused.structured_content["error"]["type"], seal.stopped, seal.finish is not None

    assert asyncio.run(run()) == ("budget_exhausted", "tool_call_cap", True)


ENVELOPE = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}


def modern(body, **change):
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": body["method"], **change}
    return {**body, "params": {**body.get("params", {}), "_meta": ENVELOPE}}, headers


@pytest.mark.parametrize(
    ("method", "body", "headers", "status", "code"),
    [
        ("POST", b"nonsense", {}, 400, -32700),
        ("POST", [rpc("ping")], {}, 400, -32700),
        ("POST", {}, {}, 400, -32600),
        ("POST", {"jsonrpc": "1.0", "id": 1, "method": "ping"}, {}, 400, -32600),
        ("POST", {"jsonrpc": "2.0", "id": 1.5, "method": "ping"}, {}, 400, -32600),
        ("POST", {"jsonrpc": "2.0", "id": None, "method": "ping"}, {}, 400, -32600),
        ("POST", rpc("tools/call", {"name": 3}), {}, 200, -32602),
        ("POST", rpc("tools/call", {"name": "finish", "arguments": []}), {}, 200, -32602),
        ("POST", rpc("tools/list", {"cursor": "x"}), {}, 200, -32602),
        ("POST", rpc("server/discover", {"_meta": ENVELOPE}), {}, 200, -32601),
        ("POST", rpc("ping"), {"Mcp-Session-Id": "f" * 32}, 404, -32600),
        ("POST", rpc("ping"), {"Origin": "http://evil.example"}, 403, -32600),
        ("POST", rpc("ping"), {"Origin": "http://[x"}, 403, -32600),
        ("POST", rpc("ping"), {"Content-Encoding": "gzip"}, 415, -32600),
        ("POST", rpc("tools/list"), {"MCP-Protocol-Version": MODERN}, 400, -32602),
        ("POST", *modern(rpc("tools/list"), **{"Mcp-Method": "ping"}), 400, -32020),
        ("POST", *modern(rpc("tools/call", {"name": "finish"}), **{"Mcp-Name": "slow"}), 400, -32020),
        ("POST", *modern(rpc("ping")), 404, -32601),
        ("POST", {"jsonrpc": "2.0", "method": "x"}, {"MCP-Protocol-Version": "2099-01-01"}, 400, -32022),
        ("DELETE", None, {}, 400, -32600),
    ],
)
def test_what_is_wrong_is_told_in_the_protocols_words(world, method, body, headers, status, code):
    async def run():
        async with sandbox(world) as (_here, inside, _slow):
            return await inside.ask(method, "/mcp", body, headers=headers)

    found, answer, _ = asyncio.run(run())
    assert (found, answer["error"]["code"]) == (status, code)


def test_tokens_limits_and_the_seal_hold_as_elsewhere(either):
    async def run():
        limits = {"body_bytes": 100_000}
        async with either(limits=limits).running() as here:
            inside = await here.launch()
            stranger = await here.launch(2)
            none = await inside.ask("POST", "/mcp", HELLO, token="")
            wrong = await inside.ask("POST", "/mcp", HELLO, token=inside.registration.sink.token)
            other = await inside.ask("POST", "/mcp", HELLO, token=stranger.registration.agent_token)
            giant = await inside.ask(
                "POST", "/mcp", rpc("tools/call", {"name": "finish", "arguments": {"message": "x" * 200_000}})
            )
            deep = await inside.ask(
                "POST",
                "/mcp",
                b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a":' + b"[" * 99 + b"]" * 99 + b"}}",
            )
            seal = await here.client.seal(inside.launch)
            return [none[0], wrong[0], other[0], giant[0], deep[0]], {each.type for each in seal.findings}

    statuses, kinds = asyncio.run(run())
    assert statuses == [401, 403, 403, 413, 400]
    assert {"no_token", "wrong_token", "request_too_large"} <= kinds


def test_thousands_of_sessions_take_no_more_than_a_few(world):
    async def run():
        async with sandbox(world) as (here, inside, _slow):
            async with httpx2.AsyncClient(
                headers={"Authorization": f"Bearer {inside.registration.agent_token}"}, trust_env=False
            ) as http:
                answers = [await http.post(f"{inside.url}/mcp", json=HELLO) for _ in range(300)]
                first, last = answers[0].headers["mcp-session-id"], answers[-1].headers["mcp-session-id"]
                found = [
                    (
                        await http.post(f"{inside.url}/mcp", json=rpc("ping"), headers={"Mcp-Session-Id": name})
                    ).status_code
                    for name in (first, last)
                ]
            return found, len(here.registry.find(inside.launch).tools.sessions._sessions)

    assert asyncio.run(run()) == ([404, 200], MOST)


def test_a_session_with_a_call_under_way_is_not_dropped():
    sessions = Sessions()
    busy = sessions.open("v")
    sessions.find(busy).running[1] = None
    for _ in range(3 * MOST):
        sessions.open("v")
    assert sessions.find(busy) is not None


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | values,
        "id": st.integers() | st.text(max_size=5) | values,
        "method": st.sampled_from(["initialize", "tools/call", "tools/list", "ping", "notifications/cancelled"])
        | values,
        "params": values
        | st.fixed_dictionaries(
            {}, optional={"name": st.just("finish") | values, "arguments": values, "requestId": values}
        ),
    },
)


def test_no_message_makes_the_gateway_fail(world):
    drawn = []

    @settings(max_examples=120, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(bodies, st.sampled_from([{}, {"MCP-Protocol-Version": MODERN}, {"MCP-Protocol-Version": "2025-06-18"}]))
    def collect(body, headers):
        drawn.append((body, headers))

    collect()

    async def run():
        async with sandbox(world) as (here, inside, _slow):
            found = [
                (body, (await inside.ask("POST", "/mcp", json.dumps(body).encode(), headers=headers))[0])
                for body, headers in drawn
            ]
            return found, await here.client.seal(inside.launch)

    found, seal = asyncio.run(run())
    assert [case for case in found if case[1] >= 500] == []
    assert "gateway_fault" not in {each.type for each in seal.findings}
