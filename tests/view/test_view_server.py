"""Who may ask, what is answered, and that nothing but reading can be asked for."""

import asyncio
import json
import re

import aiohttp
import pytest
from hostile_state import TRIAL, bundle, hostile_run
from run_builder import agent, manifest, outcome, put, save, task
from view_world import EVIL, TrialId, asking, demo, hostile_lines, hostile_site, line, made_site, served, step

from orchestrator.errors import SpecError
from orchestrator.records import keys
from orchestrator.settings import load_settings
from orchestrator.storage.file import FileStore
from orchestrator.storage.open import open_store
from orchestrator.view.guard import HEADERS
from orchestrator.view.opened import OpenedFile
from orchestrator.view.runs import Fresh
from orchestrator.view.server import application, serve
from orchestrator.view.site import Site, Start, store_site

RUN = demo()


def story(work):
    return asyncio.run(work())


async def raw(address, head, path="/"):
    """Send bytes as they are and return status and headers."""
    port = int(re.search(r":(\d+)/", address)[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return int(answer.split(b" ", 2)[1]), answer


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("Host: 127.0.0.1:{port}\r\n", 200),
        ("Host: localhost:{port}\r\n", 200),
        ("Host: evil.test:{port}\r\n", 421),
        ("Host: 127.0.0.1\r\n", 421),
        ("Host: 127.0.0.1:1\r\n", 421),
        ("Host: evil.test\r\nHost: 127.0.0.1:{port}\r\n", 421),
        ("Host: 127.0.0.1:{port}.evil.test\r\n", 421),
        ("", 421),
    ],
)
def test_only_its_own_name_is_served(host, status):
    async def work():
        async with served(made_site(RUN)) as address:
            port = re.search(r":(\d+)/", address)[1]
            found, answer = await raw(address, host.format(port=port), f"/{address.split('/')[3]}/")
            assert found in ({status} if status == 200 else {400, 421})
            assert (b"<!doctype html>" in answer) == (status == 200)

    story(work)


def test_without_the_token_there_is_nothing():
    async def work():
        async with served(made_site(RUN)) as address, aiohttp.ClientSession() as session:
            base = address.rsplit("/", 2)[0]
            token = address.split("/")[3]
            for path in ("/", "/api/runs", f"/{token[:-1]}/", f"/{token}x/", f"/x/{token}/", "/favicon.ico", "/%FF/"):
                async with session.get(base + path) as answer:
                    assert answer.status == 404, path
                    assert "orchestrate" not in await answer.text()

    story(work)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_it_only_reads(method):
    async def work():
        async with served(made_site(RUN)) as address, aiohttp.ClientSession() as session:
            for path in ("", "api/runs", "app.js"):
                async with session.request(method, address + path) as answer:
                    assert answer.status == 405

    story(work)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, 200),
        ({"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, 403),
    ],
)
def test_other_pages_do_not_ask_in_its_name(sent, status):
    async def work():
        async with (
            served(made_site(RUN)) as address,
            aiohttp.ClientSession() as session,
            session.get(address + "api/start", headers=sent) as answer,
        ):
            assert answer.status == status

    story(work)


def test_every_answer_says_what_a_page_may_do():
    async def work():
        async with served(made_site(RUN)) as address, aiohttp.ClientSession() as session:
            for path in ("", "app.js", "style.css", "api/runs", "api/run?run=no", "nothing"):
                async with session.get(address + path) as answer:
                    assert {name: answer.headers[name] for name in HEADERS} == HEADERS, path
            policy = HEADERS["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; ")
            assert "frame-ancestors 'none'" in policy
            assert not re.search(r"unsafe|data:|blob:|https?:|\*", policy)

    story(work)


@pytest.mark.parametrize(
    "path", ["../guard.py", "%2e%2e/guard.py", "static/app.js", "app.js/", "..%2fguard.py", "__init__.py"]
)
def test_only_files_of_the_page_are_served(path):
    async def work():
        async with served(made_site(RUN)) as address:
            port, token = re.search(r":(\d+)/(.+)/", address).groups()
            status, answer = await raw(address, f"Host: 127.0.0.1:{port}\r\n", f"/{token}/{path}")
            assert status in {400, 404}
            assert b"def " not in answer

    story(work)


def test_an_answer_that_has_not_changed_is_not_sent_again():
    async def work():
        async with served(made_site(RUN)) as address, aiohttp.ClientSession() as session:
            url = f"{address}api/trials?run=demo-1&q=agent:careful"
            async with session.get(url) as first:
                assert (await first.json())["total"] == 60
            async with session.get(url, headers={"If-None-Match": first.headers["ETag"]}) as second:
                assert second.status == 304
                assert await second.read() == b""

    story(work)


@pytest.mark.parametrize(
    ("name", "query", "status", "words"),
    [
        ("trials", {"run": "demo-1", "q": "agnt:x"}, 400, "no key 'agnt'"),
        ("trials", {"run": "demo-1", "sort": "x"}, 400, "columns:"),
        ("trials", {"run": "demo-1", "from": "-1"}, 400, "must be a number"),
        ("trials", {"run": "demo-1", "count": "1" * 30}, 400, "must be a number"),
        ("trial", {"run": "demo-1", "trial": EVIL}, 400, "is not a trial"),
        ("trial", {"run": "demo-1", "trial": "no@oracle:1"}, 400, "has no trial"),
        ("events", {"run": "demo-1", "trial": "fix-rounding@oracle:1"}, 404, "trajectory"),
        ("output", {"run": "demo-1", "trial": "fix-rounding@oracle:1"}, 404, "output"),
    ],
)
def test_what_cannot_be_answered_is_said_in_words(name, query, status, words):
    async def work():
        async with asking(made_site(RUN)) as ask:
            found, answer = await ask(name, **query)
            assert found == status
            assert words in answer["error"]

    story(work)


def test_a_file_has_no_runs(tmp_path):
    async def work():
        (tmp_path / "t.jsonl").write_bytes(line(0, "launch"))
        async with asking(Site(Start(), file=opened(tmp_path / "t.jsonl"))) as ask:
            assert (await ask("runs"))[0] == 400

    story(work)


def test_a_hostile_trial_is_told_as_it_is(tmp_path):
    async def work():
        async with asking(await hostile_site(tmp_path)) as ask:
            where = {"run": "run-1", "trial": str(TRIAL)}
            _, runs = await ask("runs")
            assert [run["run"] for run in runs["runs"]] == ["run-1"]
            _, trial = await ask("trial", **where)
            assert trial["result"] == "failed"
            assert trial["verdict"]["checks"][0]["evidence"]
            _, events = await ask("events", **where)
            assert events["total"] == 10
            assert events["closed"]
            _, changes = await ask("changes", **where)
            paths = {path["path"]: path for path in changes["paths"]}
            assert any(text.startswith("+    return a + b") for text in paths["workspace/app.py"]["diff"])
            assert changes["problem"] is None
            _, output = await ask("output", **where)
            assert output["end"] == output["bytes"]
            assert "\x1b[2J" in output["text"]
            _, raw_event = await ask("event", **where, seq=3, pointer="")
            assert json.loads(raw_event["text"])["name"] == EVIL
            assert (await ask("event", **where, seq=99))[0] == 404
            assert (await ask("event", **where, seq=3, pointer="/no"))[0] == 404
            _, compared = await ask("compare", run="run-1", left=TRIAL, right=TRIAL)
            assert compared["steps"]["first_difference"] is None
            assert (await ask("compare", run="run-1", left=TRIAL, right=TRIAL, right_run="other"))[0] == 400

    story(work)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_bucket_is_shown_like_a_folder(tmp_path, s3_url):
    async def work():
        here, _ = await hostile_run(tmp_path, events=b"".join(hostile_lines()))
        there = open_store(s3_url)
        for name in await here.list(""):
            if name.startswith("blobs/"):
                await there.put_blob(name, await here.get(name))
            else:
                assert await there.create(name, await here.get(name))
        settings = load_settings(tmp_path, overrides={"store": s3_url, "cache": str(tmp_path / "cache")})
        sites = [store_site(Start(store="s"), store, bundle(tmp_path / "bundle"), settings) for store in (here, there)]
        where = {"run": "run-1", "trial": str(TRIAL)}
        async with asking(sites[0]) as ask, asking(sites[1]) as ask_bucket:
            for name in ("runs", "run", "trials", "trial", "events", "changes", "output"):
                assert await ask(name, **where) == await ask_bucket(name, **where), name

    story(work)


def test_trials_of_two_runs_stand_side_by_side():
    async def work():
        async with asking(made_site(RUN, demo("demo-2"))) as ask:
            trials = {"left": "fix-rounding@careful:1", "right": "fix-rounding@sloppy:1"}
            status, found = await ask("compare", run="demo-1", right_run="demo-2", **trials)
            assert status == 200
            assert [side["agent"] for side in found["sides"]] == ["careful", "sloppy"]
            assert [check["id"] for check in found["checks"]] == ["hidden_tests", "blast_radius"]
            assert found["steps"] is None

    story(work)


def test_a_run_that_is_not_there(tmp_path):
    async def work():
        async with asking(await hostile_site(tmp_path)) as ask:
            for name, status in (("nobody", 400), ("../../etc", 502), ("a/b", 400), ("", 400)):
                found, answer = await ask("run", run=name)
                assert found == status, answer

    story(work)


def opened(path):
    folder = path.parent / "imported"
    folder.mkdir()
    return OpenedFile(path, folder)


def live_run(folder):
    """Return store and page of a run in which nothing has ended."""
    store = FileStore(folder / "store")
    made = manifest([task("fix", samples=2)], [agent("slow")])
    settings = load_settings(folder, overrides={"store": str(folder / "store"), "cache": str(folder / "cache")})
    return store, made, store_site(Start(store="here"), store, None, settings)


def test_a_trial_is_read_while_it_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("orchestrator.view.runs.LEAST_SECONDS", 0.0)
    monkeypatch.setattr("orchestrator.view.runs.SHARE", 0.0)

    async def work():
        store, made, site = live_run(tmp_path)
        await save(store, made)
        trial = TrialId("fix", "slow", 1)
        where = {"run": "run-1", "trial": str(trial)}
        async with asking(site) as ask:
            assert (await ask("events", **where))[0] == 404
            lines = [line(0, "launch"), *step(1, "one"), *step(5, "two")]
            data = b"".join(lines)
            cut = len(data) // 2
            await store.put_blob(keys.segment("run-1", trial, 1, 1, 0, 0), data[:cut])
            _, found = await ask("events", **where)
            assert 0 < found["of"] < 9
            assert not found["closed"]
            await store.put_blob(keys.segment("run-1", trial, 1, 1, 1, cut), data[cut:])
            _, found = await ask("events", **where)
            assert found["of"] == 9
            assert found["events"][1]["blocks"][0]["text"] == "go on"
            _, head = await ask("run", run="run-1")
            assert head["left"] == 2
            blob = await put(store, "run-1", "t", data + line(9, "seal"))
            assert await store.create(
                keys.outcome("run-1", trial, 1), outcome("run-1", trial, trajectory=blob).to_bytes()
            )
            _, found = await ask("events", **where)
            assert found["closed"]
            _, head = await ask("run", run="run-1")
            assert head["to_grade"] == 1

    story(work)


def test_a_file_is_followed_while_it_grows(tmp_path):
    async def work():
        path = tmp_path / "t.jsonl"
        path.write_bytes(line(0, "launch"))
        async with asking(Site(Start(), file=opened(path))) as ask:
            assert (await ask("events"))[1]["of"] == 1
            with path.open("ab") as file:
                file.write(b"".join(step(1, EVIL)))
            _, found = await ask("events", types="tool_call,model_response")
            assert (found["of"], found["total"]) == (5, 2)
            path.write_bytes(b"")
            status, answer = await ask("events")
            assert status == 502
            assert "shorter" in answer["error"]

    story(work)


def conversation(*texts):
    """Return messages as the Chat Completions API has them."""
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]}


def test_traces_of_other_programs_are_shown_one_by_one(tmp_path):
    path = tmp_path / "talks.jsonl"
    made = [conversation("first", EVIL), "nonsense", conversation("second", "yes", EVIL, "no")]
    path.write_text("".join(json.dumps(one) + "\n" for one in made))

    async def work():
        async with asking(Site(Start(), file=opened(path))) as ask:
            _, start = await ask("start")
            assert (start["file"], start["traces"]) == ("talks.jsonl", 2)
            _, found = await ask("traces")
            assert [trace["line"] for trace in found["traces"]] == [1, 3]
            assert [trace["steps"] for trace in found["traces"]] == [1, 2]
            assert "talks.jsonl:2" in found["notes"][0]
            _, first = await ask("events", trace=0)
            assert EVIL in [block["text"] for event in first["events"] for block in event["blocks"]]
            assert (await ask("events", trace=1))[1]["of"] > first["of"]
            assert (await ask("events", trace=2))[0] == 404
            assert (await ask("traces"))[0] == 200

    story(work)


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"hello\n", "x.json"), (b"{}\n", "none of these"), (b"\0" * 100, "x.json"), (b"[" * 10_000, "x.json")],
    ids=["text", "object", "zeros", "deep"],
)
def test_a_file_without_any_trace_is_refused_with_the_reason(tmp_path, data, words):
    (tmp_path / "x.json").write_bytes(data)
    with pytest.raises(SpecError, match=words):
        opened(tmp_path / "x.json")


def test_what_is_asked_at_one_time_is_read_once_and_not_too_often():
    now, reads = [0.0], []

    async def read():
        reads.append(now[0])
        now[0] += 2.0  # a slow store
        return len(reads)

    async def work():
        fresh = Fresh(read, lambda: now[0])
        assert await asyncio.gather(*(fresh.get() for _ in range(5))) == [1] * 5
        now[0] = 11.9  # ten seconds after two
        assert await fresh.get() == 1
        now[0] = 12.0
        assert await fresh.get() == 2

    story(work)


def test_a_taken_port_is_said(tmp_path):
    async def work():
        async with served(made_site(RUN)) as address:
            port = int(re.search(r":(\d+)/", address)[1])
            with pytest.raises(SpecError, match=f"port {port}"):
                await serve(made_site(RUN), port, print)

    story(work)


def test_every_address_of_the_page_is_below_the_token():
    from orchestrator.view.guard import Guard, new_token

    token = new_token()
    assert len(token) >= 32
    assert token != new_token()
    for resource in application(made_site(RUN), Guard(token)).router.resources():
        assert resource.canonical.startswith(f"/{token}/")
