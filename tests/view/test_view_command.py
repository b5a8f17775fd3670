"""The command itself: what it prints, how it ends, and what it tells a browser."""

import re
import signal
import stat
import subprocess
import sys
import urllib.request
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from view_world import line

from orchestrator.cli.app import run_command
from orchestrator.cli.view import opener


def started(folder, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "view", "--no-open", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("kind", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_it_serves_until_it_is_told_to_end(tmp_path, kind):
    (tmp_path / "t.jsonl").write_bytes(line(0, "launch"))
    process = started(tmp_path, "t.jsonl")
    try:
        address = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", address)
        with urllib.request.urlopen(address, timeout=20) as answer:
            assert b"<!doctype html>" in answer.read()
        process.send_signal(kind)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()


def test_a_run_that_is_not_there_is_a_usage_error(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command(["view", "nobody", "--no-open"]) == 2
    assert "no run" in capsys.readouterr().err


def test_a_file_that_is_no_trajectory_is_said_at_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.txt").write_text("hello\n")
    assert run_command(["view", "x.txt", "--no-open"]) != 0
    assert "x.txt" in capsys.readouterr().err


class Browser(webbrowser.BackgroundBrowser):
    def __init__(self):
        super().__init__("browser")
        self.opened = []

    def open(self, url, new=0, autoraise=True):
        path = Path(unquote(urlsplit(url).path))
        self.opened.append((url, path, stat.S_IMODE(path.stat().st_mode), path.read_text()))
        return True


def test_a_browser_is_not_told_the_address_where_others_see_it(monkeypatch):
    browser = Browser()
    monkeypatch.setattr(webbrowser, "get", lambda: browser)
    with opener(wanted=True) as opens:
        opens("http://127.0.0.1:1/secret&<token>/")
        ((url, path, mode, text),) = browser.opened
        assert url.startswith("file://")
        assert "secret" not in url
        assert mode == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert 'content="0;url=http://127.0.0.1:1/secret&amp;&lt;token&gt;/"' in text
    assert not path.exists()


@pytest.mark.parametrize("found", [webbrowser.GenericBrowser("lynx"), None])
def test_no_browser_takes_the_terminal_over(monkeypatch, found):
    def get():
        if found is None:
            raise webbrowser.Error("there is none")
        return found

    monkeypatch.setattr(webbrowser, "get", get)
    monkeypatch.setattr(webbrowser.GenericBrowser, "open", lambda *_: pytest.fail("it was opened"))
    with opener(wanted=True) as opens:
        opens("http://127.0.0.1:1/x/")
