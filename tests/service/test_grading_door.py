"""The port for grading pods: what is laid arrives whole, each token opens its own door once, and nobody else gets anything."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import os
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from grading_world import RESULT, pair

from grader_service.cluster import door as door_module
from grader_service.cluster.door import Door, Ticket, host_address, write_tar
from grader_service.cluster.render import Laid, inputs
from grader_service.pod.prepare import lay


class Asker:
    """Asks a door."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __call__(self, method: str, path: str, token: str = "", **more: Any) -> tuple[int, bytes]:
        headers, url = {"Authorization": f"Bearer {token}"}, f"http://127.0.0.1:{self.port}{path}"
        async with aiohttp.ClientSession() as session, session.request(method, url, headers=headers, **more) as answer:
            return answer.status, await answer.read()


def scene(what: Callable[[Door, Ticket, Asker], Awaitable[Any]], folder: Path) -> Any:
    async def go() -> Any:
        door = Door()
        server = await door.listen("127.0.0.1", 0)
        ticket = door.admit(lambda: inputs([pair(folder)], 600), 1)
        try:
            return await what(door, ticket, Asker(server.sockets[0].getsockname()[1]))
        finally:
            server.close()

    return asyncio.run(go())


def test_each_token_opens_its_own_door_once(tmp_path: Path) -> None:
    async def what(door: Door, ticket: Ticket, ask: Asker) -> None:
        get, ready, put = ("GET", "/grading/inputs"), ("POST", "/grading/prepared"), ("PUT", "/grading/results/0")
        for way in (get, ready, put):
            assert (await ask(*way))[0] == 401
            assert (await ask(*way, "guess"))[0] == 401
        assert (await ask(*get, ticket.runner_token))[0] == 401
        assert (await ask(*put, ticket.prepare_token, json=RESULT))[0] == 401
        assert (await ask(*get, ticket.prepare_token))[0] == 200
        assert (await ask(*ready, ticket.prepare_token))[0] == 204
        assert (await ask(*get, ticket.prepare_token))[0] == 409
        assert (await ask("PUT", "/grading/results/1", ticket.runner_token, json=RESULT))[0] == 404
        assert (await ask("PUT", "/grading/results/0", ticket.runner_token, json={**RESULT, "cause": "x"}))[0] == 400
        assert (await ask("PUT", "/grading/results/0", ticket.runner_token, data=b"[" * 100_000))[0] == 400
        assert (await ask(*put, ticket.runner_token, json=RESULT))[0] == 204
        assert (await ask(*put, ticket.runner_token, json={**RESULT, "code": 1}))[0] == 204
        assert ticket.results[0].result().code == 0
        assert (await ask("GET", "/healthz"))[0] == 200
        door.forget(ticket)
        assert (await ask(*put, ticket.runner_token, json=RESULT))[0] == 401

    scene(what, tmp_path)


def test_a_host_that_no_decoder_takes_is_refused_and_fills_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def what(_door: Door, _ticket: Ticket, ask: Asker) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", ask.port)
        writer.write(b"GET http://xn--.x/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(5):
            data = await reader.read()
        writer.close()
        return data

    assert scene(what, tmp_path).startswith(b"HTTP/1.1 401")
    assert not caplog.records


async def is_over(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(0.2):
            return await reader.read(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_a_subject_that_holds_all_connections_of_its_pod_keeps_no_result_out(tmp_path: Path) -> None:
    async def what(door: Door, ticket: Ticket, ask: Asker) -> tuple[int, int]:
        held = [await asyncio.open_connection("127.0.0.1", ask.port) for _ in range(200)]
        status, _ = await ask("PUT", "/grading/results/0", ticket.runner_token, json=RESULT)
        ended = sum(await asyncio.gather(*(is_over(reader) for reader, _ in held)))
        for _, writer in held:
            writer.close()
        return ended, status

    ended, status = scene(what, tmp_path)
    assert status == 204
    assert ended >= 72


def test_who_has_shown_a_token_is_not_crowded_out(tmp_path: Path) -> None:
    async def what(door: Door, ticket: Ticket, ask: Asker) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", ask.port)
        body = json.dumps(RESULT).encode()
        writer.write(
            b"PUT /grading/results/0 HTTP/1.1\r\nHost: grader\r\nAuthorization: Bearer %b\r\nContent-Length: %d\r\n\r\n"
            % (ticket.runner_token.encode(), len(body))
        )
        await asyncio.sleep(0.1)
        held = [await asyncio.open_connection("127.0.0.1", ask.port) for _ in range(200)]
        writer.write(body)
        status = int((await reader.readline()).split()[1])
        for each in (writer, *(other for _, other in held)):
            each.close()
        return status

    assert scene(what, tmp_path) == 204


def test_who_calls_without_end_is_hung_up_on_and_keeps_no_result_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_module, "_CALLS_PER_SECOND", 0.0)
    monkeypatch.setattr(door_module, "_CALLS_AT_ONCE", 20)
    made: list[object] = []
    counted = door_module._Counted.connection_made
    monkeypatch.setattr(
        door_module._Counted, "connection_made", lambda self, *more: (made.append(more), counted(self, *more))[-1]
    )

    async def what(door: Door, ticket: Ticket, ask: Asker) -> tuple[int, int]:
        held = [await asyncio.open_connection("127.0.0.1", ask.port) for _ in range(200)]
        for _, writer in held[-10:]:
            writer.write(b"PUT /grading/results/0 HTTP/1.1\r\nAuthorization: Bearer guess\r\n\r\n")
        status, _ = await ask("PUT", "/grading/results/0", ticket.runner_token, json=RESULT)
        ended = sum(await asyncio.gather(*(is_over(reader) for reader, _ in held)))
        for _, writer in held:
            writer.close()
        return ended, status

    ended, status = scene(what, tmp_path)
    assert status == 204
    assert ended >= 200 - 20 - 128 + 10
    assert len(made) == 21, "for the others nothing was made"


def tar_of(*laid: Laid) -> bytes:
    out = io.BytesIO()
    write_tar(lambda: laid, out.write)  # type: ignore[arg-type]
    return out.getvalue()


def test_what_was_laid_is_what_there_is(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "empty").mkdir(parents=True)
    (source / "run.sh").write_text("x")
    (source / "run.sh").chmod(0o755)
    (source / "big").write_bytes(os.urandom(3 << 20))
    (source / "link").symlink_to("/etc/passwd")
    os.link(source / "big", source / "twin")
    (source / os.fsdecode(b"\xff")).write_text("odd")
    target.mkdir()
    lay(io.BytesIO(tar_of(Laid(path="a/b", source=source), Laid(path="plan", source=b"{}"))), str(target))
    for name in ("run.sh", "big", "twin", os.fsdecode(b"\xff")):
        assert (target / "a/b" / name).read_bytes() == (source / name).read_bytes()
        assert not (target / "a/b" / name).is_symlink()
    assert (target / "a/b/run.sh").stat().st_mode & 0o777 == 0o755
    assert os.readlink(target / "a/b/link") == "/etc/passwd"
    assert (target / "a/b/empty").is_dir()
    assert (target / "plan").read_bytes() == b"{}"


@pytest.mark.parametrize("cut", [0, 100, 511, 512, 1024, -1024, -10240])
def test_a_stream_that_was_cut_off_is_noticed(tmp_path: Path, cut: int) -> None:
    data = tar_of(Laid(path="a", source=b"x" * 9000))
    whole = len(data.rstrip(b"\0")) // 512 * 512
    with pytest.raises((tarfile.ReadError, http.client.IncompleteRead)):
        lay(io.BytesIO(data[: max(0, whole - 512 + cut) if cut < 0 else cut]), str(tmp_path))


@pytest.mark.parametrize("name", ["../x", "/x", "a//b", "a/./b"])
def test_a_path_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    out.seek(0)
    with pytest.raises(tarfile.ExtractError):
        lay(out, str(tmp_path))


def test_pods_get_an_address_and_no_name() -> None:
    assert host_address("http://127.0.0.1:8090") == "http://127.0.0.1:8090"
    assert host_address("http://[::1]:8090") == "http://[::1]:8090"
    with pytest.raises(OSError, match=r"\w"):
        host_address("http://no-such-host.invalid:1")
