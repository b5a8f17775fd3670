"""Agents that mean harm: each gets a typed answer or silence, and a second launch goes on as if nothing had happened."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time

import pytest
from gateway_world import put_state
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SMALL = {
    "limits": {
        "body_bytes": 1 << 20,
        "buffered_bytes": 2 << 20,
        "connections": 4,
        "idle_seconds": 1,
        "body_seconds": 0.5,
    }
}


def both(world, attack, config=None):
    """Run ``attack(here, inside, other)`` and then prove that another launch is served quickly. Returns its result and the seal."""

    async def live():
        async with world(**(SMALL if config is None else config)).running() as here:
            inside = await here.launch(1)
            other = await here.launch(2)
            found = await attack(here, inside, other)
            began = time.monotonic()
            status, _, _ = await other.chat()
            assert status == 200
            assert time.monotonic() - began < 2
            return found, await here.client.seal(inside.launch)

    return asyncio.run(live())


def kinds(seal):
    return {finding.type for finding in seal.findings}


def read_all(connection):
    connection.settimeout(10)
    data = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            data += part
    return data


def head(inside, extra="", path="/v1/chat/completions", method="POST"):
    token = inside.registration.agent_token
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{extra}\r\n".encode()


def with_another_end(token):
    return token[:-1] + ("1" if token.endswith("0") else "0")


async def answered(inside, data):
    with inside.raw(data) as connection:
        return await asyncio.to_thread(read_all, connection)


@pytest.mark.parametrize(
    ("choose", "status", "kind"),
    [
        (lambda a, b: b.registration.agent_token, 403, "wrong_token"),
        (lambda a, b: a.registration.door.token, 403, "wrong_token"),
        (lambda a, b: with_another_end(a.registration.agent_token), 401, "bad_token"),
        (lambda a, b: a.registration.agent_token.replace("agent", "freezer"), 401, "bad_token"),
        (lambda a, b: "x" * 5000, 401, "bad_token"),
        (lambda a, b: "", 401, "no_token"),
    ],
)
def test_a_wrong_token_gets_nothing_and_is_recorded(either, choose, status, kind):
    async def attack(_here, inside, other):
        return await inside.ask("GET", "/tools", token=choose(inside, other))

    answer, seal = both(either, attack)
    assert (answer[0], answer[1]["error"]["type"]) == (status, kind)
    assert kind in kinds(seal)


def test_an_api_key_header_is_a_token_too(either):
    async def attack(_here, inside, _other):
        headers = {"Authorization": "", "x-api-key": inside.registration.agent_token}
        return await inside.ask("GET", "/tools", headers=headers)

    assert both(either, attack)[0][0] == 200


def test_after_the_seal_nothing_listens(world):
    async def attack(here, inside, _other):
        kept = inside.raw(head(inside, path="/tools", method="GET"))
        await asyncio.to_thread(kept.recv, 65536)
        await here.client.seal(inside.launch)
        with kept, contextlib.suppress(ConnectionError):
            kept.sendall(head(inside, path="/tools", method="GET"))
            assert await asyncio.to_thread(read_all, kept) == b""
        with pytest.raises(ConnectionRefusedError):
            inside.raw(b"")
        return True

    assert both(world, attack)[0]


def test_a_body_that_says_it_has_ten_gigabytes_is_refused_unread(either):
    async def attack(_here, inside, _other):
        return await answered(inside, head(inside, f"Content-Length: {10 << 30}\r\n") + b"{")

    data, seal = both(either, attack)
    assert data.startswith(b"HTTP/1.1 413")
    assert "request_too_large" in kinds(seal)


def test_a_body_without_an_end_is_cut_off(either):
    def flood(inside):
        with inside.raw(head(inside, "Transfer-Encoding: chunked\r\n")) as connection:
            with contextlib.suppress(ConnectionError):
                for _ in range(64):
                    connection.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            return read_all(connection)

    async def attack(_here, inside, _other):
        await asyncio.to_thread(flood, inside)

    _, seal = both(either, attack)
    assert "request_too_large" in kinds(seal)


def test_a_body_that_drips_is_given_up(either):
    async def attack(_here, inside, _other):
        return await answered(inside, head(inside, "Content-Length: 100\r\n") + b"{")

    data, seal = both(either, attack)
    assert data.startswith(b"HTTP/1.1 408")
    assert "request_timeout" in kinds(seal)


def test_heads_that_never_end_are_given_up_and_hold_nobody_else(either):
    async def attack(_here, inside, other):
        lorises = [inside.raw(b"GET /tools HTTP/1.1\r\nX-A: ") for _ in range(20)]
        assert (await other.chat())[0] == 200
        ends = [await asyncio.to_thread(read_all, loris) for loris in lorises[:4]]
        for loris in lorises:
            loris.close()
        return ends, await inside.ask("GET", "/tools")

    (ends, after), _ = both(either, attack)
    assert all(b"200" not in end for end in ends)
    assert after[0] == 200


@pytest.mark.parametrize(
    "extra",
    [
        "".join(f"X-{n}: {n}\r\n" for n in range(5000)),
        "X: " + "a" * 100_000 + "\r\n",
        "Content-Length: 1\r\nContent-Length: 2\r\n",
    ],
)
def test_a_flood_of_headers_is_a_bad_request(either, extra):
    async def attack(_here, inside, _other):
        return await answered(inside, head(inside, extra, "/tools", "GET"))

    data, _ = both(either, attack)
    assert data == b"" or data.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"\0" * 4096, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
)
def test_bytes_that_are_no_http_are_dropped(either, garbage):
    async def attack(_here, inside, _other):
        return await answered(inside, garbage)

    data, _ = both(either, attack)
    assert b" 200 " not in data


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"a":' * 500 + b"1" + b"}" * 500, "nests deeper than 64"),
        (b"[" * 20_000, "not JSON"),
        (b"[1]", "must be a JSON object"),
        (b'{"a": NaN}', "not JSON"),
        (b'{"a": "\\ud800"}', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"", "not JSON"),
    ],
)
def test_json_that_is_wrong_or_too_deep_is_refused(world, body, says):
    async def attack(_here, inside, _other):
        return await inside.ask("POST", "/v1/chat/completions", body)

    (status, answer, _), _ = both(world, attack)
    assert (status, answer["error"]["type"]) == (400, "invalid_json")
    assert says in answer["error"]["message"]


def test_a_compressed_bomb_is_not_opened(world):
    async def attack(_here, inside, _other):
        return await inside.ask(
            "POST", "/tools/finish", b"\x1f\x8b" + b"\0" * 100, headers={"Content-Encoding": "gzip"}
        )

    (status, answer, _), _ = both(world, attack)
    assert (status, answer["error"]["type"]) == (415, "unsupported_encoding")


def test_many_large_bodies_at_once_are_bounded(either):
    part = b'{"model": "main", "messages": [{"role": "user", "content": "' + b"x" * 900_000

    async def attack(_here, inside, _other):
        open_ones = [inside.raw(head(inside, f"Content-Length: {len(part) + 4}\r\n") + part) for _ in range(4)]
        answers = await asyncio.gather(*(asyncio.to_thread(read_all, connection) for connection in open_ones))
        for connection in open_ones:
            connection.close()
        return answers

    answers, seal = both(either, attack)
    assert any(answer.startswith(b"HTTP/1.1 413") for answer in answers)
    assert {"request_too_large", "request_timeout"} <= kinds(seal)


def test_a_thousand_connections_are_taken_a_few_at_a_time(world):
    async def attack(here, inside, other):
        connections = []
        for _ in range(150):
            connection = socket.socket()
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", inside.port))
            connections.append(connection)
        assert (await other.chat())[0] == 200
        for connection in connections:
            connection.close()
        return await inside.ask("GET", "/tools")

    assert both(world, attack)[0][0] == 200


@pytest.mark.parametrize(
    ("body", "status", "kind", "code"),
    [
        ({"n": 3}, 400, "unsupported", "n"),
        ({"store": True}, 400, "unsupported", "store"),
        ({"functions": [{}]}, 400, "unsupported", "functions"),
        ({"web_search_options": {}}, 400, "unsupported", "web_search_options"),
        ({"models": ["other/model"]}, 400, "unsupported", "models"),
        ({"fallbacks": ["other/model"]}, 400, "unsupported", "fallbacks"),
        ({"plugins": [{"id": "web"}]}, 400, "unsupported", "plugins"),
        ({"search_parameters": {"mode": "on"}}, 400, "unsupported", "search_parameters"),
        ({"api_base": "http://127.0.0.1:1"}, 400, "unsupported", "api_base"),
        ({"mock_response": "done"}, 400, "unsupported", "mock_response"),
        ({"tools": [{"type": "web_search_preview"}]}, 400, "hosted_tool", "tools"),
        ({"tools": [{"type": {"a": 1}}]}, 400, "hosted_tool", "tools"),
        ({"tools": [{"type": "function", "function": "x"}]}, 400, "invalid_request", None),
        ({"messages": []}, 400, "invalid_request", None),
        ({"messages": "hello"}, 400, "invalid_request", None),
        ({"model": "gpt-99"}, 403, "model_not_allowed", None),
        ({"model": ["main"]}, 403, "model_not_allowed", None),
    ],
)
def test_what_is_not_offered_is_refused_by_name(world, body, status, kind, code):
    async def attack(_here, inside, _other):
        return await inside.ask(
            "POST", "/v1/chat/completions", {"model": "main", "messages": [{"role": "user", "content": "x"}], **body}
        )

    (found, answer, _), seal = both(world, attack)
    assert (found, answer["error"]["type"], answer["error"]["code"]) == (status, kind, code)
    assert (seal.steps, seal.stopped) == (0, None)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/files", "/v1/batches/x", "/v1/messages/batches"])
def test_other_endpoints_are_refused_by_name(either, path):
    async def attack(_here, inside, _other):
        return await inside.ask("POST", path, {})

    (status, answer, _), _ = both(either, attack)
    assert (status, answer["error"]["type"]) == (404, "unsupported_endpoint")
    assert "/v1/chat/completions" in answer["error"]["message"]


@pytest.mark.parametrize(
    "path", ["/admin/launches", "/launch/state/entries", "/launch/stop", "/../healthz", "/%00", "/tools/rm"]
)
def test_nothing_else_is_there(either, path):
    async def attack(_here, inside, _other):
        return await inside.ask("POST", path, {})

    assert both(either, attack)[0][0] == 404


@pytest.mark.parametrize("name", ["main", "scripted/careful", "careful"])
def test_a_model_has_three_names(world, name):
    async def attack(_here, inside, _other):
        return await inside.chat(model=name)

    assert both(world, attack)[0][0] == 200


def test_the_state_cannot_be_written_with_the_agents_token(world):
    async def attack(here, inside, _other):
        await here.client.seal(inside.launch)
        stolen = inside.registration.sink.__class__(
            socket=inside.registration.sink.socket, token=inside.registration.agent_token
        )
        forged = inside.registration.__class__(
            launch=inside.launch, agent_token="", door=inside.registration.door, sink=stolen
        )
        return await put_state(forged, "entries", b"forged")

    (status, answer), _ = both(world, attack)
    assert (status, answer["error"]["type"]) == (403, "wrong_token")


def test_refusals_without_end_do_not_fill_the_record(world):
    async def attack(here, inside, _other):
        for number in range(260):
            await inside.ask("POST", f"/tools/x{number}", {})
        seal = await here.client.seal(inside.launch)
        return len((await here.store.get(seal.trajectory.key)).splitlines())

    assert both(world, attack)[0] < 210


finishes = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["completed", "declined", "asked", "done", 1, None]),
        "message": st.one_of(st.text(max_size=20), st.integers(), st.lists(st.none(), max_size=2)),
        "confidence": st.one_of(st.floats(allow_nan=False), st.sampled_from(["low", "sure"]), st.booleans()),
        "escalation": st.one_of(
            st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3), st.text(max_size=3)
        ),
        "extra": st.integers(),
    },
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
message = st.fixed_dictionaries(
    {}, optional={"role": st.sampled_from(["user", "tool", "assistant", 3]), "content": values, "tool_calls": values}
)
tool = st.fixed_dictionaries(
    {"type": st.sampled_from(["function", "custom"])}, optional={"function": values, "custom": values}
)
chats = st.fixed_dictionaries(
    {"model": st.just("main") | values, "messages": st.lists(message | values, max_size=3) | values},
    optional={"tools": st.lists(tool | values, max_size=2) | values, "stream": values, "n": values, "store": values},
)


def test_no_request_makes_the_gateway_fail(either):
    """Whatever JSON an agent sends, the answer is 200 or the agent's own fault, never ours."""
    bodies = []

    @settings(max_examples=80, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.tuples(st.just("/tools/finish"), finishes | values)
        | st.tuples(st.just("/v1/chat/completions"), chats | values)
    )
    def collect(pair):
        bodies.append(pair)

    collect()
    # What is drawn differs from run to run and may hold no right request at all.
    bodies.append(("/v1/chat/completions", {"model": "main", "messages": [{"role": "user"}]}))

    async def attack(_here, inside, _other):
        found = []
        for path, body in bodies:
            data = json.dumps(body).encode()
            found.append((path, body, (await inside.ask("POST", path, data))[0]))
        return found

    found, seal = both(either, attack, config={})
    assert [case for case in found if case[2] >= 500] == []
    assert "gateway_fault" not in kinds(seal)
    assert found[-1][2] == 200


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 100\r\n\r\n{",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\n{\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n-5\r\n{}\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"Content-Encoding: br\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
@pytest.mark.parametrize("how", ["half_close", "reset", "wait"])
def test_a_body_that_breaks_off_is_never_our_failure(either, rest, how):
    async def attack(_here, inside, _other):
        start = head(inside).removesuffix(b"\r\n")
        with inside.raw(start + rest) as connection:
            if how == "half_close":
                connection.shutdown(socket.SHUT_WR)
            if how == "reset":
                await asyncio.sleep(0.05)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                return b""
            return await asyncio.to_thread(read_all, connection)

    data, seal = both(either, attack)
    assert b" 500 " not in data
    assert "gateway_fault" not in kinds(seal)
    assert seal.stopped is None


@pytest.mark.parametrize(
    "line",
    [
        b"GET http://[::1/x HTTP/1.1",
        b"GET //// HTTP/1.1",
        b"GET /tools?%ff=%00&&& HTTP/1.1",
        b"GET /%ff%fe HTTP/1.1",
        b"GET \xff\xfe HTTP/1.1",
        b"CONNECT evil.example:443 HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"TRACE / HTTP/1.1",
        b"GET http://evil.example/v1/models HTTP/1.1",
        b"GET /tools HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade",
        b"PRI * HTTP/2.0",
        b"POST /tools/ HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
def test_odd_request_lines_are_never_our_failure(world, line):
    async def attack(_here, inside, _other):
        token = inside.registration.agent_token.encode()
        request = line + b"\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " + token + b"\r\n\r\n"
        return await answered(inside, request)

    data, seal = both(world, attack)
    assert b" 500 " not in data
    assert "gateway_fault" not in kinds(seal)


@pytest.mark.parametrize(
    "line", [b"CONNECT xn--.example:443", b"CONNECT xn--a.x:1", b"GET http://xn--a.x/", b"POST //xn--.x/v1/models"]
)
@pytest.mark.parametrize("shown", [True, False], ids=["with a token", "without one"])
def test_hosts_that_no_decoder_takes_are_answered_and_fill_no_log(either, caplog, line, shown):
    async def attack(_here, inside, _other):
        token = inside.registration.agent_token.encode()
        showing = b"Authorization: Bearer " + token + b"\r\nProxy-Authorization: Bearer " + token + b"\r\n"
        request = line + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + (showing if shown else b"") + b"\r\n"
        async with asyncio.timeout(5):
            return await answered(inside, request)

    data, _ = both(world=either, attack=attack)
    assert data.startswith((b"HTTP/1.1 40", b"HTTP/1.0 400"))
    assert not caplog.records


def test_a_client_that_asks_first_may_send_its_body(world):
    async def attack(_here, inside, _other):
        body = b'{"status": "completed"}'
        extra = f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\nConnection: close\r\n"
        with inside.raw(head(inside, extra, "/tools/finish")) as connection:
            connection.settimeout(5)
            first = await asyncio.to_thread(connection.recv, 65536)
            connection.sendall(body)
            return first, await asyncio.to_thread(read_all, connection)

    (first, second), _ = both(world, attack)
    assert first == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert second.startswith(b"HTTP/1.1 200")


def test_a_client_that_hangs_up_during_a_call_is_still_metered(either):
    turns = {"conversations": [{"turns": [{"error": 500}, {"error": 500}, {"error": 500}, {"text": "late"}]}]}

    async def live():
        async with either(settle_seconds=5).running() as here:
            inside = await here.launch(script=turns)
            body = json.dumps({"model": "main", "messages": [{"role": "user", "content": "x"}]}).encode()
            with inside.raw(head(inside, f"Content-Length: {len(body)}\r\n") + body):
                while not (await here.client.spending("run-1")).steps:
                    await asyncio.sleep(0.01)
            return await here.client.seal(inside.launch)

    seal = asyncio.run(live())
    assert (seal.steps, seal.stopped) == (1, None)


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "main", "messages": [' + b"{}," * 300_000 + b"{}]}",
        b'{"model": "main", "messages": [{"role": "user"}], "seed": [' + b"0," * 300_000 + b"0]}",
        b'{"model": "main", "messages": [{"role": "user", ' + b'"":"",' * 250_000 + b'"":""}]}',
        b'{"model": "main", "messages": [' + b'{"role":"user"},' * 11_000 + b'{"role":"user"}]}',
    ],
)
def test_a_body_of_very_many_values_is_refused_before_it_costs_memory_and_time(world, body):
    async def attack(_here, inside, _other):
        began = time.monotonic()
        found = await answered(inside, head(inside, f"Connection: close\r\nContent-Length: {len(body)}\r\n") + body)
        assert time.monotonic() - began < 2
        return found

    answer, seal = both(world, attack, {})
    assert answer.startswith(b"HTTP/1.1 413")
    assert kinds(seal) == {"request_too_large"}
    assert seal.trajectory.size < 10_000


def test_commas_in_a_long_text_are_no_values(world):
    async def attack(_here, inside, _other):
        return await inside.chat([{"role": "user", "content": ',,"\\",[{' * 80_000}])

    assert both(world, attack, {})[0][0] == 200


def test_open_requests_are_counted_however_small_they_are(either):
    async def attack(_here, inside, _other):
        body = json.dumps({"model": "main", "messages": [{}]}).encode()
        open_ones = [inside.raw(head(inside, "Content-Length: 4000\r\n") + body) for _ in range(4)]
        answers = await asyncio.gather(*(asyncio.to_thread(read_all, connection) for connection in open_ones))
        for connection in open_ones:
            connection.close()
        return answers

    limits = {"limits": {**SMALL["limits"], "buffered_bytes": 40_000}}
    answers, _ = both(either, attack, limits)
    assert sum(answer.startswith(b"HTTP/1.1 413") for answer in answers) == 2
