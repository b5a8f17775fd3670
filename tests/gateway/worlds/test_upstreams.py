"""A team's own servers behind the gateway: their keys stay there, agents choose paths and arguments alone, and what fails is what it is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from test_worlds_of_launches import lay

from orchestrator.driver.record import made_cassette, to_bytes
from orchestrator.spec.bundle import Bundle, Item
from orchestrator.spec.cassette import Cassette
from orchestrator.spec.task import Fixtures
from orchestrator.trace.read import read_events

KEY = "crm-very-secret-key"
TEAM = "another-secret-value"


@asynccontextmanager
async def served(handle: Any) -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.StreamResponse:
        made: web.StreamResponse = await handle(request)
        return made

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Api:
    """A stateful API: each GET of /api/orders/N tells how many requests there were."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.method, request.raw_path, dict(request.headers), await request.read()))
        match request.path.removeprefix("/api"):
            case "/echo":
                return web.Response(
                    text=f"you said {request.headers.get('Authorization')} and {request.headers.get('x-team')}"
                )
            case "/away":
                return web.Response(status=302, headers={"Location": "http://169.254.169.254/secret"})
            case "/missing":
                return web.json_response({"error": "no such order"}, status=404)
            case "/busy":
                return web.json_response({"error": "later"}, status=503, headers={"Retry-After": "7"})
            case "/large":
                return web.Response(body=b"x" * (2 << 20))
            case "/slow":
                await asyncio.sleep(5)
        return web.json_response({"number": len(self.seen), "query": dict(request.query)})


def settings(url: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "http",
        "base_url": f"{url}/api",
        "key": KEY,
        "headers": {"x-team": TEAM},
        "timeout_seconds": 1,
        **more,
    }


def task(**more: Any) -> Bundle:
    raw = {"upstream": [{"name": "crm", "http": {"methods": ["GET", "POST"]}}], **more}
    return Bundle.of([Item("task.json", data=json.dumps(raw).encode())])


@asynccontextmanager
async def reaching(world: Any, providers: dict[str, Any], bundle: Bundle) -> AsyncIterator[Any]:
    here = world(providers=providers)
    name = f"w{len(providers)}"
    async with here.running():
        lay(here, name, bundle)
        yield here, await here.launch(len(providers) + 1, world=name, models={}, scripts=None)


async def events_of(here: Any, inside: Any) -> tuple[Any, list[Any], bytes]:
    seal = await here.client.seal(inside.launch)
    data = await here.store.get(seal.trajectory.key)
    return seal, list(read_events(data)), data


def test_an_api_is_reached_with_its_key_as_a_tool_and_by_its_path(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def live() -> Any:
        api = Api()
        async with served(api) as url, reaching(world, {"crm": settings(url)}, task()) as (here, inside):
            asked = {"method": "POST", "path": "/orders/7", "query": {"a": "b c&d"}, "body": {"x": 1}}
            answers = [
                await inside.ask("POST", "/tools/crm", asked),
                await inside.ask("GET", "/upstream/crm/orders/8?page=2"),
                await inside.ask("POST", "/upstream/crm/orders", {"new": True}),
                await inside.ask("GET", "/upstream/crm/missing"),
                await inside.ask("POST", "/tools/crm", {"method": "GET", "path": "/echo"}),
                await inside.ask("GET", "/upstream/other/orders"),
            ]
            return answers, api.seen, await events_of(here, inside)

    answers, seen, (seal, events, data) = asyncio.run(live())
    assert answers[0][:2] == (200, {"status": 200, "body": {"number": 1, "query": {"a": "b c&d"}}})
    assert answers[1][:2] == (200, {"number": 2, "query": {"page": "2"}})
    assert answers[2][0] == 200
    assert answers[3][0] == 404
    assert "[hidden]" in str(answers[4][1])
    assert (answers[5][0], answers[5][1]["error"]["type"]) == (404, "unknown_upstream")
    assert [(method, path) for method, path, _, _ in seen[:3]] == [
        ("POST", "/api/orders/7?a=b+c%26d"), ("GET", "/api/orders/8?page=2"), ("POST", "/api/orders"),
    ]  # fmt: skip
    assert {headers["Authorization"] for _, _, headers, _ in seen} == {f"Bearer {KEY}"}
    assert inside_only(seen)
    assert json.loads(seen[2][3]) == {"new": True}
    everything = json.dumps([answer[:2] for answer in answers], default=str) + data.decode() + caplog.text
    assert KEY not in everything
    assert TEAM not in everything
    calls = [event.data for event in events if event.type == "tool_call"]
    assert [call["arguments"]["path"] for call in calls] == ["/orders/7", "/orders/8", "/orders", "/missing", "/echo"]
    assert (seal.tool_calls, seal.stopped) == (5, None)


def inside_only(seen: list[Any]) -> bool:
    """Whether nothing of the agent's own headers, its token first, went out."""
    return not any("orchestrate" in json.dumps(headers).lower() or "cookie" in headers for _, _, headers, _ in seen)


ELSEWHERE = [
    *(
        "//evil.example/x",
        "http://evil.example/",
        "",
        "/../admin",
        "/a/../../b",
        "/a/./b",
        "/..",
        "/%2e%2e/admin",
        "/a%0d%0aX: y",
    ),
    *("/a\r\nX: y", "/a b", "/a\\b", "/a?b=1", "/a#b", "/" + "x" * 2001, 7),
]


@pytest.mark.parametrize("path", ELSEWHERE)
def test_paths_lead_nowhere_else(world: Any, path: Any) -> None:
    async def live() -> Any:
        api = Api()
        async with served(api) as url, reaching(world, {"crm": settings(url)}, task()) as (_, inside):
            return await inside.ask("POST", "/tools/crm", {"method": "GET", "path": path}), api.seen

    (status, answer, _), seen = asyncio.run(live())
    assert (status, answer["error"]["type"], seen) == (400, "invalid_arguments", [])


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [("/busy", 503, "http_503"), ("/large", 502, "too_large"), ("/slow", 504, "timeout")],
)
def test_what_an_api_answers_is_an_answer(world: Any, path: str, status: int, kind: str) -> None:
    async def live() -> Any:
        async with served(Api()) as url, reaching(world, {"crm": settings(url)}, task()) as (here, inside):
            return await inside.ask("POST", "/tools/crm", {"method": "GET", "path": path}), await here.client.seal(
                inside.launch
            )

    (got, answer, headers), seal = asyncio.run(live())
    assert (got, answer["error"]["type"], seal.stopped) == (status, kind, None)
    assert headers.get("Retry-After") == ("7" if path == "/busy" else None)


def test_redirects_are_not_followed_and_other_methods_not_sent(world: Any) -> None:
    async def live() -> Any:
        api = Api()
        async with (
            served(api) as url,
            reaching(world, {"crm": settings(url, query={"version": "2"})}, task()) as (_, inside),
        ):
            away = await inside.ask("GET", "/upstream/crm/away?version=9&x=1")
            deleted = await inside.ask("POST", "/tools/crm", {"method": "DELETE", "path": "/orders/7"})
            return away, deleted, api.seen

    away, deleted, seen = asyncio.run(live())
    assert (away[0], deleted[0]) == (302, 400)
    assert [path for _, path, _, _ in seen] == ["/api/away?version=2&x=1"]  # what the operator gave wins


def test_an_api_that_takes_no_connection_is_our_failure(world: Any) -> None:
    async def live() -> Any:
        async with served(Api()) as url:
            gone = settings(url)
        async with reaching(world, {"crm": gone}, task()) as (here, inside):
            return await inside.ask("GET", "/upstream/crm/orders"), await here.client.seal(inside.launch)

    (status, answer, _), seal = asyncio.run(live())
    assert (status, answer["error"]["type"], seal.stopped) == (503, "unreachable", "infra_lost")


def test_what_is_not_configured_refuses_the_launch(world: Any) -> None:
    async def live() -> None:
        async with reaching(world, {"crm": settings("http://x", type="mcp")}, task()):
            pass

    with pytest.raises(Exception, match=r"task task-1 needs upstream 'crm' of type http, and there are: crm"):
        asyncio.run(live())


FIXTURES = Fixtures(cassette="fixtures/c.jsonl", tools=("crm*", "wiki_*"), volatile=("query.at",))


_PATHS = (
    "/upstream/crm/orders/7?at=now",
    "/upstream/crm/orders/7?at=now",
    "/upstream/crm/missing",
    "/upstream/crm/orders/8?at=now",
)


async def recorded(here: Any, inside: Any) -> bytes:
    _, events, _ = await events_of(here, inside)
    return to_bytes(made_cassette(events, FIXTURES, Cassette((), ())))


def replaying(cassette: bytes, **more: Any) -> Bundle:
    made = task(fixtures=json.loads(FIXTURES.model_dump_json()), **more)
    return Bundle.of([*made.items, Item("fixtures/c.jsonl", data=cassette)])


def test_what_an_api_answered_is_replayed_without_it(world: Any, tmp_path: Path) -> None:
    async def live() -> Any:
        async with served(Api()) as url, reaching(world, {"crm": settings(url)}, task()) as (here, inside):
            first = [await inside.ask("GET", path) for path in _PATHS]
            return first, await recorded(here, inside)

    async def again(cassette: bytes) -> Any:
        async with reaching(world, {}, replaying(cassette)) as (here, inside):
            found = [await inside.ask("GET", path) for path in _PATHS]
            found.append(await inside.ask("GET", "/upstream/crm/orders/8?at=later"))
            found.append(await inside.ask("GET", "/upstream/crm/orders/9?at=now"))
            return found, await here.client.seal(inside.launch)

    first, cassette = asyncio.run(live())
    assert KEY not in cassette.decode()
    found, seal = asyncio.run(again(cassette))
    assert [answer[:2] for answer in found[:4]] == [answer[:2] for answer in first]
    assert found[4][:2] == first[3][:2]  # the masked field makes no difference
    assert (found[5][1]["error"]["type"], seal.fixture_misses) == ("fixture_miss", 1)
    [miss] = [finding.detail for finding in seal.findings if finding.type == "fixture_miss"]
    assert "path" in miss
    assert "/orders/9" in miss


class Wiki:
    """An MCP server, with answers as JSON or as a stream of events."""

    def __init__(self, streams: bool) -> None:
        self.streams = streams
        self.asked: list[tuple[str, str | None, Any]] = []

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        said = json.loads(await request.read())
        self.asked.append((said["method"], request.headers.get("Mcp-Session-Id"), said.get("params")))
        assert request.headers["Authorization"] == f"Bearer {KEY}"
        if "id" not in said:
            return web.Response(status=202)
        text = json.dumps({"jsonrpc": "2.0", "id": said["id"], **self.answer(said["method"], said["params"])})
        headers = {"Mcp-Session-Id": "s1"}
        if self.streams:
            note = json.dumps({"jsonrpc": "2.0", "method": "notifications/message"})
            body = f"event: message\r\ndata: {note}\r\n\r\ndata: {text}\r\n\r\n"
            return web.Response(body=body.encode(), content_type="text/event-stream", headers=headers)
        return web.Response(text=text, content_type="application/json", headers=headers)

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        search = {
            "name": "search",
            "description": "Searches.",
            "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}},
        }
        match method, params.get("name"), params.get("cursor"):
            case "initialize", _, _:
                return {
                    "result": {
                        "protocolVersion": "2025-06-18",
                        "capabilities": {},
                        "serverInfo": {"name": "w", "version": "1"},
                    }
                }
            case "tools/list", _, None:
                return {"result": {"tools": [search], "nextCursor": "2"}}
            case "tools/list", _, _:
                return {"result": {"tools": [{"name": "delete", "inputSchema": {"type": "object"}}, {"bad": 1}]}}
            case "tools/call", "search", _ if params["arguments"].get("q") == "bad":
                return {"result": {"isError": True, "content": [{"type": "text", "text": f"no {KEY}"}]}}
            case "tools/call", "search", _:
                return {"result": {"content": [{"type": "text", "text": f"found {params['arguments']['q']}"}]}}
        return {"error": {"code": -32602, "message": "unknown"}}


@pytest.mark.parametrize("streams", [False, True])
def test_tools_of_an_mcp_server_are_offered_called_and_replayed(world: Any, streams: bool) -> None:
    wants = {"upstream": [{"name": "wiki", "mcp": {"tools": ["search"]}}]}

    async def live() -> Any:
        wiki = Wiki(streams)
        async with served(wiki) as url:
            server = {"type": "mcp", "base_url": f"{url}/mcp", "key": KEY, "timeout_seconds": 2}
            async with reaching(world, {"wiki": server}, task(**wants)) as (here, inside):
                tools = (await inside.ask("GET", "/tools"))[1]["tools"]
                found = [await inside.ask("POST", "/tools/wiki_search", {"q": q}) for q in ("tea", "bad")]
                found.append(await inside.ask("POST", "/tools/wiki_search", {"q": 1}))
                return tools, found, wiki.asked, await recorded(here, inside)

    async def again(cassette: bytes) -> Any:
        async with reaching(world, {}, replaying(cassette, **wants)) as (_, inside):
            tools = (await inside.ask("GET", "/tools"))[1]["tools"]
            return tools, [await inside.ask("POST", "/tools/wiki_search", {"q": q}) for q in ("tea", "bad", "other")]

    tools, found, asked, cassette = asyncio.run(live())
    assert [each["function"]["name"] for each in tools] == ["finish", "wiki_search"]
    assert found[0][:2] == (200, {"text": "found tea"})
    assert (found[1][0], found[1][1]["error"]["type"], found[1][1]["error"]["message"]) == (
        502,
        "tool_error",
        "no [hidden]",
    )
    assert found[2][0] == 400
    assert [method for method, _, _ in asked].count("initialize") == 2  # one for the list, one for the launch
    assert asked[-1][1] == "s1"
    assert KEY not in cassette.decode()
    replayed_tools, replayed = asyncio.run(again(cassette))
    assert [each["function"]["name"] for each in replayed_tools] == ["finish", "wiki_search"]
    assert replayed[0][:2] == found[0][:2]
    assert (replayed[1][0], replayed[1][1]["error"]["type"]) == (502, "tool_error")
    assert replayed[2][1]["error"]["type"] == "fixture_miss"


def test_a_server_that_cannot_list_its_tools_is_our_failure(world: Any) -> None:
    async def live() -> None:
        async def broken(_request: web.Request) -> web.Response:
            return web.Response(status=500)

        async with served(broken) as url:
            server = {"type": "mcp", "base_url": f"{url}/mcp", "timeout_seconds": 1}
            async with reaching(world, {"wiki": server}, task(upstream=[{"name": "wiki", "mcp": {}}])):
                pass

    with pytest.raises(Exception, match="the tools of upstream wiki cannot be listed"):
        asyncio.run(live())
