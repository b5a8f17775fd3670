"""Looking at one hostile trial: everything is shown, nothing is obeyed, nothing lands where it should not."""

import asyncio
import io
import json
import os
import re
import stat

import pytest
from demo_run import demo
from hostile_state import BIDI, MARKUP, TRIAL, Folder, bundle, hostile_run
from rich.console import Console
from run_builder import entry, tar_of

from orchestrator.errors import NotFoundError, SpecError, StoreError
from orchestrator.report.logs import show_logs
from orchestrator.report.pull import pull_trial
from orchestrator.report.show import show_trial
from orchestrator.report.text import clean, clean_lines
from orchestrator.storage.file import FileStore
from orchestrator.wiring import event_reader


def printed(function, tmp_path, *, terminal=False, width=100, **state):
    """Return what a command prints and what it returns."""

    async def story():
        store, data = await hostile_run(tmp_path, **state)
        return await function(store, data, console)

    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal)
    found = asyncio.run(story())
    return out.getvalue(), found


def shown(tmp_path, **more):
    root = tmp_path / "bundle"
    return printed(
        lambda store, data, console: show_trial(store, bundle(root), event_reader(store), data, TRIAL, console),
        tmp_path,
        **more,
    )


def pulled(tmp_path, folder, **more):
    root = tmp_path / "bundle"
    return printed(
        lambda store, data, console: pull_trial(store, bundle(root), data, TRIAL, folder, console), tmp_path, **more
    )


def test_show_tells_the_whole_story(tmp_path):
    text, _ = shown(tmp_path)
    for words in (
        "fix@sly:1   failed",
        "completed, exit code 0",
        "said       completed, confidence high",
        "FAIL hidden_tests",
        "expected exit 0",
        '"exit": 1',
        "│ test_add failed",
        "ok   blast_radius",
        "actual   too long; no word\n\n",
        "setuid: workspace/app.py",
        "1  infra  infra_lost: gateway died",
        "│ -    return a - b",
        "│ +    return a + b",
        "removed  workspace/gone.txt",
        "added    workspace/blob.bin  300 bytes, not compared line by line",
        "workspace/link  symlink, to /etc/shadow",
        "workspace/pipe  fifo, special_file",
        r"│ \xff\xfe",
    ):
        assert words in text, words


@pytest.mark.parametrize("terminal", [False, True])
def test_nothing_that_an_agent_wrote_reaches_the_terminal_raw(tmp_path, terminal):
    text, _ = shown(tmp_path, terminal=terminal, width=300)
    assert r"\x1b[2J" in text
    assert "\x1b[2J" not in text
    assert "\x07" not in text
    assert MARKUP in text
    assert not set(BIDI) & {"\u202e", "\u2066"} & set(text)
    assert max(map(len, text.split("\n"))) < 600


def test_a_wrapped_quote_stays_a_quote(tmp_path):
    text, _ = shown(tmp_path, terminal=True, width=60)
    long = [line for line in text.split("\n") if "longlong" in line]
    assert len(long) > 3
    assert all("│ " in line for line in long)


def test_show_as_json_is_the_record(tmp_path):
    _, found = shown(tmp_path)
    assert found["schema_version"] == 1
    assert found["result"] == "failed"
    assert found["verdict"]["checks"][0]["id"] == "hidden_tests"
    assert found["changes"]["counts"] == {"changed": 1, "added": 10, "removed": 1}
    assert found["changes"]["problem"] is None
    assert json.dumps(found).isprintable()


def test_logs_are_readable_and_the_raw_events_are_whole(tmp_path):
    text, (events, missing) = printed(lambda store, data, console: show_logs(store, data, TRIAL, console), tmp_path)
    assert missing == ""
    assert [event["type"] for event in events] == ["launch", "model_response", "tool_call", "seal"]
    assert events[1]["message"]["parts"][0]["text"] == "\x1b[2J[bold]hi\u202e"
    assert r"│ \x1b[2J[bold]hi\u202e" in text
    assert "    2.00s  model_response" in text
    assert (
        "tool_call              shell\n             │ command:\n             │ cat <<X\n             │ \\x1b[2J\n"
        in text
    )


def test_pull_writes_files_and_nothing_else(tmp_path):
    folder = tmp_path / "out"
    text, _ = pulled(tmp_path, folder)
    assert (folder / "workspace/app.py").read_text().startswith("def add(a, b):\n    return a + b")
    assert (folder / "workspace/same.txt").read_text() == "same\n"
    assert not (folder / "workspace/gone.txt").exists()
    assert (folder / "output/final.json").read_text() == "{}\n"
    assert json.loads((folder / "verdict.json").read_text())["result"] == "failed"
    assert (folder / "trajectory.jsonl").read_bytes().count(b"\n") == 4
    assert (folder / "output.txt").read_bytes().startswith(b"line\n")
    assert "not-written.txt" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "out", "store"]


def test_pull_makes_no_link_no_device_and_no_odd_mode(tmp_path):
    folder = tmp_path / "out"
    pulled(tmp_path, folder)
    modes = {}
    for _root, folders, files, descriptor in os.fwalk(folder):
        for name in (*folders, *files):
            found = os.lstat(name, dir_fd=descriptor).st_mode
            assert stat.S_ISDIR(found) or stat.S_ISREG(found)
            modes[name] = oct(stat.S_IMODE(found))
    assert modes["app.py"] == "0o755"
    assert modes["blob.bin"] == "0o644"
    assert "dev" not in modes
    assert "not-listed" not in modes


def test_pull_lists_what_it_did_not_write(tmp_path):
    folder = tmp_path / "out"
    pulled(tmp_path, folder)
    listed = (folder / "not-written.txt").read_text()
    for line in (
        "workspace/link: symlink -> /etc/shadow",
        "workspace/pipe: fifo",
        "workspace/../../escaped: a step leads outside",
        "/tmp/absolute: not below workspace or output",
        "verdict.json: not below workspace or output",
    ):
        assert line in listed.split("\n")


def test_pull_refuses_a_folder_with_something_in_it(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "mine").write_text("mine")
    with pytest.raises(SpecError, match="is not empty; name a new folder"):
        pulled(tmp_path, folder)
    assert (folder / "mine").read_text() == "mine"


def test_pull_refuses_a_file(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(SpecError, match="cannot be used as a folder"):
        pulled(tmp_path, tmp_path / "out")


def test_a_name_that_is_no_text_is_kept(tmp_path):
    import base64

    from orchestrator.records.state import Entry

    raw = b"workspace/caf\xe9"
    odd = Entry(path_b64=base64.b64encode(raw).decode(), type="file", size=2, origin="added")
    tar = tar_of([(os.fsdecode(raw), b"x\n")])
    text, _ = shown(tmp_path, entries=[odd], tar=tar)
    assert r"workspace/caf\udce9" in text
    folder = tmp_path / "out"
    pulled(tmp_path / "again", folder, entries=[odd], tar=tar)
    assert b"caf\xe9" in os.listdir(os.fsencode(folder / "workspace"))


def test_a_broken_archive_is_said_and_hides_nothing_else(tmp_path):
    entries = [entry("workspace/a.txt", b"a\n"), entry("workspace/b.txt", b"b\n")]
    text, found = shown(tmp_path, entries=entries, tar=b"this is no archive" * 100)
    assert "left behind   0 changed, 2 added, 0 removed" in text
    assert "not complete: it could not be read" in text
    assert found["changes"]["problem"]
    assert "FAIL hidden_tests" in text


def test_by_products_are_marked_and_counted(tmp_path):
    files = {
        "workspace/app/__pycache__/a.cpython-311.pyc": b"\0",
        "workspace/a.pyc": b"\0",
        "output/__pycache__/x": b"x\n",
    }
    entries = [entry(path, data) for path, data in files.items()]
    text, _ = shown(tmp_path, entries=entries, tar=tar_of(sorted(files.items())))
    assert "3 added, 0 removed; 1 by-product among them, which diff checks ignore" in text
    marked = [line for line in text.split("\n") if line.endswith("by-product")]
    assert [line.split()[1] for line in marked] == ["workspace/app/__pycache__/a.cpython-311.pyc"]


def test_hints_can_be_typed_as_they_stand(tmp_path):
    files = {f"workspace/{number}": b"x\n" for number in range(301)}
    entries = [entry(path, data) for path, data in files.items()]
    text, _ = shown(tmp_path, entries=entries, tar=tar_of(sorted(files.items())), width=500)
    assert re.search(r"… 1 more path; all of them into a folder: \S+ pull run-1 fix@sly:1 DIR\n", text)
    assert re.search(r"each step: \S+ logs run-1 fix@sly:1\n", text)


def test_a_bomb_of_an_entry_list_ends_in_the_child(tmp_path):
    lines = [entry("workspace/" + "x" * 70_000, b"x\n")]
    text, _ = shown(tmp_path, entries=lines, tar=tar_of([]))
    assert "nothing that can be shown: it could not be read" in text


def test_the_child_holds_nothing_of_our_environment(tmp_path, monkeypatch):
    from orchestrator.report import state_child

    seen = tmp_path / "seen"
    spy = tmp_path / "spy.py"
    spy.write_text(
        f"import os, json\nopen({str(seen)!r}, 'w').write(json.dumps([dict(os.environ), os.listdir('/proc/self/fd')]))\n"
    )
    monkeypatch.setenv("SOME_API_KEY", "secret-value")
    monkeypatch.setattr(state_child, "__file__", str(spy))
    text, _ = shown(tmp_path)
    environment, descriptors = json.loads(seen.read_text())
    assert "secret-value" not in json.dumps(environment)
    assert len(descriptors) <= 7
    assert "nothing that can be shown: it ended early" in text


def test_lines_that_are_hard_to_compare_cost_only_their_own_comparison(tmp_path):
    # Hundred lines, each just rare enough to count, in two orders that hardly agree.
    lines = [f"{n % 100}\n" for n in range(9999)]
    root = tmp_path / "bundle"
    bundle(root)
    (root / "workspace/hard.txt").write_text("".join(lines))
    hard = "".join(f"{int(line) * 7 % 100}\n" for line in lines).encode()
    entries = [entry("workspace/hard.txt", hard, origin="changed"), entry("workspace/z.txt", b"z\n")]
    text, _ = shown(tmp_path, entries=entries, tar=tar_of([("workspace/hard.txt", hard), ("workspace/z.txt", b"z\n")]))
    assert "workspace/hard.txt  28,997 → 28,997 bytes, not compared line by line" in text
    assert "│ +z" in text


def test_a_state_outlives_the_files_it_is_compared_with(tmp_path):
    class Nothing:
        async def fetch(self, audience, digest):
            raise NotFoundError("bundles/sandbox/x")

    folder = tmp_path / "out"
    text, found = printed(
        lambda store, data, console: show_trial(store, Nothing(), event_reader(store), data, TRIAL, console), tmp_path
    )
    assert "not complete: the task's own files are not in the store any more" in text
    assert found["result"] == "failed"
    text, _ = printed(
        lambda store, data, console: pull_trial(store, Nothing(), data, TRIAL, folder, console), tmp_path / "again"
    )
    assert (folder / "workspace/blob.bin").exists()
    assert "workspace/same.txt: its pristine file is not there" in (folder / "not-written.txt").read_text()


def test_a_trial_without_a_state_is_shown(tmp_path):
    data = demo()
    row = next(row for row in data.rows if row.result == "infra")
    out = io.StringIO()
    asyncio.run(
        show_trial(
            FileStore(tmp_path),
            Folder(tmp_path),
            event_reader(FileStore(tmp_path)),
            data,
            row.trial,
            Console(file=out, width=100),
        )
    )
    assert "infra_lost" in out.getvalue()
    assert "nothing that can be shown: no state was frozen" in out.getvalue()
    with pytest.raises(NotFoundError, match="trajectory"):
        asyncio.run(show_logs(FileStore(tmp_path), data, row.trial))


def test_bytes_that_are_not_what_was_recorded_are_refused(tmp_path):
    async def story():
        store, data = await hostile_run(tmp_path)
        blob = next((tmp_path / "store").rglob("s-changes"))
        blob.chmod(0o644)
        blob.write_bytes(blob.read_bytes()[:-512] + b"\1" * 512)
        await show_trial(store, Folder(tmp_path), event_reader(store), data, TRIAL)

    with pytest.raises(StoreError, match="not what its record says"):
        asyncio.run(story())


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain é 漢字", "plain é 漢字"),
        ("a\tb", "a    b"),
        ("\x1b[31m", r"\x1b[31m"),
        ("\u202e\u200b\u2028", r"\u202e\u200b\u2028"),
        ("\U000e0041", r"\U000e0041"),
        ("\x9b2J", r"\x9b2J"),
        ("\ud800", r"\ud800"),
        ("x" * 500, "x" * 400 + "… (100 more characters)"),
    ],
)
def test_clean(text, seen):
    assert clean(text) == seen


def test_only_newlines_make_lines():
    assert clean_lines("a\r\nb\rc\u2028d\n") == ["a", r"b\rc\u2028d"]
