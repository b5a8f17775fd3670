"""What a trial does is read while it does it: laid into a store as a gateway does it, and read by the command line."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from cli_world import clean_environment
from made import made_run
from rich.console import Console

from orchestrator.cli import following
from orchestrator.cli.following import follow_trial
from orchestrator.driver.process import this_process
from orchestrator.errors import NotFoundError, StoreError
from orchestrator.records import keys
from orchestrator.records.base import BlobRef
from orchestrator.records.ids import TrialId
from orchestrator.records.lease import Claim, Release
from orchestrator.records.outcome import Outcome, Seal, Times
from orchestrator.records.usage import Usage
from orchestrator.storage.file import FileStore

TRIAL = TrialId("t", "a", 1)


def line(seq, kind="finding", **data):
    head = {"v": 1, "seq": seq, "t": 100.0 + seq, "source": "gateway", "type": kind}
    return json.dumps({**head, **data}).encode() + b"\n"


class Laid:
    """A run whose one trial is laid by hand."""

    def __init__(self, folder):
        self.store = FileStore(folder / ".orchestrate/store")
        self.offsets = {}
        self.data = {}

    async def run(self):
        await self.store.create(keys.manifest("r1"), made_run().to_bytes())

    async def segment(self, data, launch=1):
        number, offset = self.offsets.get(launch, (0, 0))
        await self.store.create(keys.segment("r1", TRIAL, launch, 1, number, offset), data)
        self.offsets[launch] = number + 1, offset + len(data)
        self.data[launch] = self.data.get(launch, b"") + data

    async def seal(self, rest, launch=1) -> BlobRef:
        blob = await self.store.put_blob(keys.blob("r1", f"whole{launch}"), self.data.get(launch, b"") + rest)
        seal = Seal(
            run="r1",
            trial=str(TRIAL),
            launch=launch,
            trajectory=blob,
            usage=Usage(),
            steps=0,
            tool_calls=0,
            waiting_s=0,
        )
        await self.store.create(keys.record("r1", TRIAL, launch, 1, "seal.json"), seal.to_bytes())
        return blob

    async def lost(self, launch=1):
        outcome = Outcome(
            run="r1",
            trial=str(TRIAL),
            launch=launch,
            outcome_class="infra",
            termination_reason="infra_lost",
            usage=Usage(),
            times=Times(started=1, ended=2, working_s=1, waiting_s=0),
            cause="gateway_lost",
            writer_id="w",
        )
        await self.store.create(keys.outcome("r1", TRIAL, launch), outcome.to_bytes())

    async def driver(self, *, reason=None):
        claim = Claim(run="r1", epoch=1, writer_id="w", process=this_process(), at=time.time(), term_s=15)
        await self.store.create(keys.claim("r1", 1), claim.to_bytes())
        if reason:
            release = Release(epoch=1, at=time.time(), reason=reason)
            await self.store.create(keys.release("r1", 1), release.to_bytes())


@pytest.fixture
def laid(tmp_path, monkeypatch):
    monkeypatch.setattr(following, "LOOK_SECONDS", 0.02)
    found = Laid(tmp_path)
    asyncio.run(found.run())
    return found


def followed(laid, story, store=None, console=None):
    """Follow the trial while the story is told. Returns what the story's steps saw."""

    async def live():
        async with asyncio.timeout(20):
            task = asyncio.create_task(follow_trial(store or laid.store, "r1", TRIAL, console))
            await asyncio.sleep(0.1)
            await story()
            await task

    asyncio.run(live())


def test_events_come_as_they_are_written_and_end_with_the_seal(laid, capsys):
    first, second = line(0, "launch"), line(1, detail="x" * 5000)

    async def story():
        assert "has left nothing yet" in capsys.readouterr().err
        await laid.segment((first + second)[:200])
        await asyncio.sleep(0.2)
        assert [json.loads(each)["seq"] for each in capsys.readouterr().out.splitlines()] == [0]
        await laid.segment((first + second)[200:])
        await asyncio.sleep(0.2)
        await laid.seal(line(2) + line(3, "seal"))

    followed(laid, story)
    assert [json.loads(each)["seq"] for each in capsys.readouterr().out.splitlines()] == [1, 2, 3]


def test_a_lost_launch_is_said_and_the_next_one_followed(laid, capsys):
    async def story():
        await laid.driver()
        await laid.segment(line(0, "launch"))
        await laid.lost()
        await asyncio.sleep(0.2)
        await laid.segment(line(0, "launch"), launch=2)
        await asyncio.sleep(0.2)
        await laid.seal(line(1, "seal"), launch=2)

    out = io.StringIO()
    followed(laid, story, console=Console(file=out, width=200))
    told = out.getvalue()
    assert told.index("launch 1;") < told.index("launch 2;") < told.index("seal")
    assert "launch 1 was lost (gateway_lost)" in capsys.readouterr().err


@pytest.mark.parametrize("reason", ["stopped", "failed"])
def test_nothing_is_waited_for_where_nobody_will_go_on(laid, capsys, reason):
    async def story():
        await laid.segment(line(0, "launch"))
        await laid.lost()
        await laid.driver(reason=reason)

    followed(laid, story)
    said = capsys.readouterr().err
    assert "nobody drives the run any longer" in said
    assert "this had reached the store" in said


class Hiccups:
    """A store of which one question in so many fails."""

    def __init__(self, store, cause, seldom):
        self._store, self._cause, self._seldom = store, cause, seldom
        self._count = 0

    def __getattr__(self, name):
        async def ask(*words):
            self._count += 1
            if self._count % self._seldom == 0:
                raise StoreError("the store does not answer", cause=self._cause)
            return await getattr(self._store, name)(*words)

        return ask


def test_a_store_that_hiccups_loses_and_doubles_nothing(laid, capsys, monkeypatch):
    monkeypatch.setattr(following, "_LONGEST_PAUSE", 0.02)

    async def story():
        for seq in range(10):
            await laid.segment(line(seq, "launch" if not seq else "finding"))
            await asyncio.sleep(0.03)
        await laid.seal(line(10, "seal"))

    followed(laid, story, store=Hiccups(laid.store, "store_unavailable", 7))
    captured = capsys.readouterr()
    assert [json.loads(each)["seq"] for each in captured.out.splitlines()] == list(range(11))
    assert "does not answer; trying again" in captured.err


def test_a_store_that_forbids_is_not_asked_again(laid):
    with pytest.raises(StoreError, match="does not answer"):
        asyncio.run(follow_trial(Hiccups(laid.store, "store_denied", 1), "r1", TRIAL, None))


def test_logs_of_a_running_trial_say_that_they_are_unfinished(laid, in_process):
    asyncio.run(laid.segment(line(0, "launch", budgets={}) + line(1, detail="half")[:-20]))
    done = in_process("logs", "r1", "t")
    assert done.returncode == 0
    assert "1 event;" in done.stdout
    assert "unfinished: launch 1 has not ended" in done.stdout
    assert "logs r1 t@a:1 --follow" in done.stdout
    done = in_process("logs", "r1", "t", "--json")
    assert len(done.stdout.splitlines()) == 1
    assert "note: unfinished" in done.stderr


def test_logs_of_a_lost_launch_are_what_had_reached_the_store(laid, in_process):
    asyncio.run(laid.segment(line(0, "launch")))
    asyncio.run(laid.lost())
    done = in_process("logs", "r1", "t")
    assert "unfinished: launch 1 was lost (gateway_lost) and this had reached the store" in done.stdout
    assert "--follow" not in done.stdout


def test_a_trial_that_left_nothing_is_an_error(laid, in_process):
    done = in_process("logs", "r1", "t")
    assert done.returncode != 0
    assert str(NotFoundError("the trajectory of t@a:1 in run r1")) in done.stderr


def test_an_interrupt_ends_it_with_130(laid, tmp_path):
    asyncio.run(laid.segment(line(0, "launch")))
    asyncio.run(laid.driver())
    words = [sys.executable, "-m", "orchestrator", "logs", "r1", "t", "--follow", "--json"]
    with subprocess.Popen(
        words, cwd=tmp_path, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["type"] == "launch"
        os.kill(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"Traceback" not in said
