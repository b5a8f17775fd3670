"""The pure parts of the gateway: clock, tokens, usage, configuration."""

from __future__ import annotations

import contextlib
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import SpecError
from orchestrator.gateway.body import Buffered, Pool
from orchestrator.gateway.clock import WorkingClock
from orchestrator.gateway.config import GatewayConfig
from orchestrator.gateway.refusal import Refusal
from orchestrator.gateway.serving import room_for_requests
from orchestrator.gateway.tokens import TokenMint, bearer
from orchestrator.records.prices import priced
from orchestrator.records.usage import Usage
from orchestrator.settings import Price

PRICE = Price(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75)


def test_waits_that_overlap_are_counted_once():
    clock = WorkingClock()
    clock.start(10)
    clock.waited(12, 15)
    clock.waited(14, 16)
    first = clock.begin_wait(18)
    assert (clock.waiting(20), clock.working(20)) == (6, 4)
    clock.end_wait(first, 21)
    clock.stop(22)
    assert (clock.waiting(99), clock.working(99)) == (7, 5)


def test_waiting_before_the_start_does_not_count():
    clock = WorkingClock()
    clock.waited(1, 5)
    assert clock.working(9) == 0
    clock.start(4)
    assert (clock.waiting(9), clock.working(9)) == (1, 4)


def test_a_wait_can_turn_out_to_have_been_work():
    clock = WorkingClock()
    clock.start(0)
    clock.waited(1, 3)
    first, second = clock.doubt(2, 6), clock.doubt(8, 9)
    assert clock.waiting(10) == 6
    clock.was_work(first)
    assert clock.waiting(10) == 3
    clock.was_work(second)
    assert clock.waiting(10) == 2


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=8), st.integers(1, 100))
def test_work_and_waiting_are_the_whole_time(spans, end):
    clock = WorkingClock()
    clock.start(0)
    for begin, stop in spans:
        clock.waited(begin, stop)
    assert clock.working(end) + clock.waiting(end) == end
    seconds = {n for begin, stop in spans for n in range(begin, min(stop, end))}
    assert clock.waiting(end) == len(seconds)


def test_a_token_says_what_it_is_for_and_only_here():
    mint = TokenMint()
    token = mint.make("agent", "a" * 24, 2, int(time.time()) + 60)
    claim = mint.read(token)
    assert claim is not None
    assert (claim.role, claim.launch, claim.generation) == ("agent", "a" * 24, 2)
    assert TokenMint().read(token) is None
    assert mint.read(token.replace("-2-", "-3-")) is None
    assert mint.read(mint.make("agent", "a" * 24, 1, int(time.time()) - 10)) is None


@pytest.mark.parametrize(
    ("authorization", "key", "found"),
    [("Bearer x", None, "x"), ("bearer x ", "y", "x"), (None, "y", "y"), ("Basic x", None, ""), (None, None, "")],
)
def test_a_token_comes_in_two_headers(authorization, key, found):
    assert bearer(authorization, key) == found


def test_each_bucket_has_its_price():
    usage = Usage(uncached_input=100, cache_read=700, cache_write=200, output=100, reasoning=40)
    assert priced(usage, PRICE).cost_nano_usd == 100 * 3000 + 700 * 300 + 200 * 3750 + 100 * 15000
    assert priced(usage, None).cost_nano_usd is None


def test_costs_are_exact():
    usage = Usage(uncached_input=10**12, output=1)
    assert priced(usage, Price(input=0.1, output=0.0)).cost_nano_usd == 10**12 * 100


def test_memory_is_shared_and_something_is_left_for_whoever_comes():
    pool = Pool(100)
    greedy, modest = Buffered(1000, pool), Buffered(1000, pool)
    with greedy.holding() as first, modest.holding() as second:
        for _ in range(5):
            first.take(10)
        with pytest.raises(Refusal) as caught:
            first.take(10)
        second.take(20)
        assert (first.size, caught.value.status, pool.left) == (50, 429, 30)
    assert pool.left == 100


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 60)), max_size=40))
def test_memory_in_use_is_bounded_whatever_launches_ask(asked):
    pool = Pool(100)
    with contextlib.ExitStack() as stack:
        launches = [stack.enter_context(Buffered(80, pool).holding()) for _ in range(5)]
        for index, size in asked:
            with contextlib.suppress(Refusal):
                launches[index].take(size)
            assert sum(each.size for each in launches) == 100 - pool.left <= 100
    assert pool.left == 100


@pytest.mark.parametrize(
    ("files", "room"),
    [(["1024"], 512), (["max"], 2 << 30), ([str(1 << 63)], 2 << 30), ([], 2 << 30), (["max", "64"], 32)],
)
def test_the_room_for_requests_is_half_of_what_the_container_has(tmp_path, monkeypatch, files, room):
    paths = [tmp_path / name for name in ("v2", "v1")]
    for path, text in zip(paths, files, strict=False):
        path.write_text(f"{text}\n")
    monkeypatch.setattr("orchestrator.gateway.serving._MEMORY_LIMITS", paths)
    assert room_for_requests() == room


LINE = {
    "socket": "/s",
    "door": "/d",
    "admin_token": "admin-secret",
    "folder": "/f",
    "providers": {"openai": {"base_url": "http://x", "key": "key-secret"}},
}


def test_a_configuration_knows_the_secrets_of_its_line():
    config = GatewayConfig.from_json_line(json.dumps(LINE))
    assert config.providers["openai"].secrets == ("key-secret",)
    assert config.admin_token.get_secret_value() == "admin-secret"


def test_a_configuration_does_not_show_its_secrets():
    shown = repr(GatewayConfig.from_json_line(json.dumps(LINE)))
    assert "admin-secret" not in shown
    assert "key-secret" not in shown


def test_a_wrong_configuration_names_fields_and_no_values():
    with pytest.raises(SpecError) as caught:
        GatewayConfig.from_json_line(json.dumps({**LINE, "admin_token": ["admin-secret"], "sockets": 1}))
    assert "admin_token" in str(caught.value)
    assert "sockets" in str(caught.value)
    assert "admin-secret" not in str(caught.value)
