"""What agents put into arguments and authors into ``tools.py``: refused, bounded, told; and nothing else notices."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from world_world import ADD, GET, ORDER, in_a_loop, played, tool

ECHO = tool(
    "echo",
    arguments={"type": "object", "properties": {"text": {}}},
    sql=["insert into orders values (:text, 'x', 1, 'open')"],
    result={"all": {"rows": "select id from orders"}},
)
NUMBERS = "with recursive r(n) as (select 1 union all select n + 1 from r"
LIMITS = {"database": 262144, "seconds": 1, "memory": 64 << 20}


@in_a_loop
async def test_arguments_are_values_and_never_sql(tmp_path: Path) -> None:
    async with played(tmp_path, ECHO, GET) as call:
        texts = (
            "'; drop table orders; --",
            "x' or 1=1 --",
            ":order_id",
            "\"; attach '/etc/passwd' as p",
            "\0",
            "%",
            "\N{PILE OF POO}",
        )
        for text in texts:
            assert (await call("echo", text=text)).outcome == "ok", text
            assert {"id": text} in (await call("echo", text=f"{text}2")).data["all"], text
        assert (await call("get_order", order_id="' or 1=1 --")).kind == "not_found"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (1 << 70, "invalid_argument"),
        ("\ud800", "invalid_argument"),
        ([[[["deep"] * 1000]]], None),
        ("x" * 300_000, "tool_failed"),  # the database may have 256 KiB
        (None, None),
    ],
)
@in_a_loop
async def test_odd_values_are_refused_or_kept(tmp_path: Path, text: object, kind: str | None) -> None:
    async with played(tmp_path, ECHO, GET, limits=LIMITS) as call:
        assert (await call("echo", text=text)).kind == kind
        assert (await call("get_order", order_id="o1")).outcome == "ok"


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        (f"{NUMBERS}) select max(n) from r", "too_slow"),
        (f"select count(*) from orders a, orders b, ({NUMBERS} limit 9000000) select n from r)", "too_slow"),
        ("select hex(zeroblob(1000000000))", "tool_failed"),
        ("select printf('%.*c', 100000000, 'x')", None),  # longer than a text may be: null
        ("select randomblob(10)", "tool_failed"),
        ("select load_extension('x')", "tool_failed"),
        ("select * from pragma_database_list", "tool_failed"),
        (f"{NUMBERS} limit 5000) select * from r", "tool_failed"),
        ("select json('[' || replace(hex(zeroblob(2000)), '00', '[') || ']')", "tool_failed"),
    ],
)  # fmt: skip
@in_a_loop
async def test_statements_without_end_or_measure_end(tmp_path: Path, sql: str, kind: str) -> None:
    async with played(tmp_path, tool("ask", result={"a": {"rows": sql}}), GET, limits=LIMITS) as call:
        assert (await call("ask")).kind == kind
        assert (await call("get_order", order_id="o1")).outcome == "ok"


@in_a_loop
async def test_a_full_database_undoes_the_call_and_goes_on(tmp_path: Path) -> None:
    fill = tool("fill", sql=[f"{NUMBERS} limit 200000) insert into orders select 'f' || n, 'x', 1, 'y' from r"])
    async with played(tmp_path, fill, ADD, limits=LIMITS) as call:
        for _ in range(3):
            full = await call("fill")
            assert (full.kind, full.status) == ("tool_failed", 500)
            assert "full" in (full.detail or "")
        assert (await call("add_cents", order_id="o2", cents=1)).data == {"cents": 301}


EVIL = """
import os, socket, sys, threading
def evil(world, arguments):
    try:
        return {"got": repr(eval(arguments["code"]))[:200]}
    except BaseException as error:
        return {"refused": type(error).__name__}
"""


@pytest.mark.parametrize(
    "code",
    [
        "socket.socket()",
        "socket.create_connection(('127.0.0.1', 80))",
        "os.fork()",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "os.execv('/bin/true', ['true'])",
        "threading.Thread(target=print).start()",
        "os.kill(os.getppid(), 9)",
        "open('/etc/passwd').read()",
        "open(f'/proc/{os.getppid()}/environ').read()",
        "open(f'/proc/{os.getppid()}/mem', 'rb').read(1)",
        "os.listdir('..')",
        "open('../other/world.db').read()",
        "open('/tmp/evil', 'w')",
        "os.chmod('..', 0o777)",
        "os.symlink('/etc/passwd', '../link')",
        "bytearray(1 << 30)",
        "world.execute('delete from _calls')",
        "world.execute('attach x as y')",
        "world.query('select * from pragma_database_list')",
        "(_ for _ in ()).throw(SystemExit)",
    ],
)  # fmt: skip
@in_a_loop
async def test_functions_reach_nothing_but_their_database(tmp_path: Path, code: str) -> None:
    (tmp_path / "worlds/other").mkdir(parents=True)
    (tmp_path / "worlds/other/world.db").write_text("another launch's")
    evil = tool("evil", arguments={"type": "object", "properties": {"code": {}}}, function="evil")
    async with played(tmp_path, evil, GET, functions=EVIL, limits=LIMITS) as call:
        answer = await call("evil", code=code)
        assert set(answer.data) == {"refused"}, answer
        assert (await call("get_order", order_id="o1")).outcome == "ok"
    assert not Path("/tmp/evil").exists()


@in_a_loop
async def test_functions_see_no_environment_and_print_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATE_SECRET", "sk-secret")
    evil = tool("evil", arguments={"type": "object", "properties": {"code": {}}}, function="evil")
    async with played(tmp_path, evil, functions=EVIL) as call:
        assert "secret" not in (await call("evil", code="dict(os.environ)")).data["got"].lower()
        assert (await call("evil", code="print('x' * 100000)")).data == {"got": "None"}
        assert (
            await call("evil", code="sorted(int(n) for n in range(100) if not os.set_blocking(n, True))[3:]")
        ).outcome == "ok"


DEAF = "import signal; signal.signal(14, signal.SIG_IGN)\n    while True: pass"


@pytest.mark.parametrize(
    "body", ["while True: pass", DEAF, "import os; os._exit(0)", "import os; os.abort()", "raise KeyboardInterrupt"]
)
@in_a_loop
async def test_functions_that_never_return_or_die_cost_their_call_alone(tmp_path: Path, body: str) -> None:
    source = f'def evil(world, arguments):\n    world.execute("delete from orders")\n    {body}\n'
    evil, limits = tool("evil", arguments=ORDER, function="evil"), LIMITS | {"seconds": 0.3}
    async with played(tmp_path, evil, GET, functions=source, limits=limits) as call:
        answer = await call("evil", order_id="o1")
        assert answer.kind == "tool_failed"
        assert answer.detail
        assert (await call("get_order", order_id="o1")).outcome == "ok"


@in_a_loop
async def test_the_program_that_is_killed_is_started_again(tmp_path: Path) -> None:
    async with played(tmp_path, ADD) as call:
        await call("add_cents", order_id="o2", cents=1)
        os.kill(call.world._engine._process.pid, 9)
        assert (await call("add_cents", order_id="o2", cents=1)).data == {"cents": 302}
        assert (await call("add_cents", order_id="o2", cents=1)).data == {"cents": 303}
