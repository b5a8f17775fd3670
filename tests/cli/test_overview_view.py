"""How runs are shown, and with which exit code watching one ends."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import pytest
from overview_cases import shown, sight, snapshots, standing

from orchestrator.cli import watching
from orchestrator.cli.overview_view import age, driver_words, live_line, next_step, print_status, status_json
from orchestrator.cli.steer import what_stops, who_drove
from orchestrator.driver.lookout import Lookout, Sight
from orchestrator.driver.process import this_process
from orchestrator.driver.standing import Standing
from orchestrator.records import keys
from orchestrator.records.lease import Beat, Claim, Release, ReleaseReason, Wish
from orchestrator.records.manifest import RunManifest
from orchestrator.settings import load_settings
from orchestrator.storage.file import FileStore


@pytest.mark.parametrize("name", list(snapshots()))
def test_what_is_shown_stays_the_same(name: str) -> None:
    assert snapshots()[name] == (Path(__file__).parent / "snapshots" / name).read_text()


@pytest.mark.parametrize(
    ("passed", "shown"), [(-5, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (86_399, "23h"), (200_000, "2d")]
)
def test_ages(passed: float, shown: str) -> None:
    assert age(passed) == shown


def test_one_line_while_it_runs() -> None:
    assert live_line(standing()) == (
        "4/10  3 passed  1 failed  1 grading  2 running  1 lost launch (sandbox)  $0.60, about 2 min left"
    )


STOP = Wish(number=1, wants="stop", at=1772442000.0, by="anna@box\x1b[2J")


@pytest.mark.parametrize("seen", [sight(), sight(silent_s=500.0), sight(reason="paused")])
def test_a_stop_that_nobody_has_carried_out_yet_is_shown(seen: Sight) -> None:
    asked = replace(standing(seen), wish=STOP)
    text = shown(print_status, asked)
    assert "stop      anna@box\\x1b[2J has asked for it on 2026-03-02 09:00" in text
    assert "stop it with" not in text
    assert status_json(asked)["stop"] == {"by": STOP.by, "at": "2026-03-02T09:00:00+00:00"}


@pytest.mark.parametrize(
    ("wants", "seen", "ended"),
    [("go_on", sight(), 4), ("stop", sight(reason="stopped"), 4), ("stop", sight(reason="ended"), 10)],
)
def test_a_stop_that_is_over_is_not_shown(wants: Literal["stop", "go_on"], seen: Sight, ended: int) -> None:
    over = replace(standing(seen, ended=ended), wish=STOP.model_copy(update={"wants": wants}))
    assert "has asked for it" not in shown(print_status, over)
    assert status_json(over)["stop"] is None


def waiting_sight(grading: int, waiting: int) -> Sight:
    """Return the sight of a driver of so many trials that are graded, some of which wait."""
    seen = sight()
    assert seen.holder is not None
    assert seen.holder.beat is not None
    waits = {"exceeded quota pods: pods=0 in grading": waiting, "container agent: ErrImagePull:\x1b[2J": 1}
    beat = seen.holder.beat.model_copy(update={"phases": {"grading": grading}, "waits": waits})
    return replace(seen, holder=replace(seen.holder, beat=beat))


def test_what_trials_wait_for_is_said_and_no_time_is_promised_when_all_do() -> None:
    said = (
        "2 trials wait: exceeded quota pods: pods=0 in grading; 1 trial waits: container agent: ErrImagePull:\\x1b[2J"
    )
    stuck = standing(waiting_sight(3, 2))
    assert live_line(stuck) == f"4/10  3 passed  1 failed  3 grading  1 lost launch (sandbox)  $0.60  {said}"
    assert status_json(stuck)["eta_s"] is None
    assert status_json(stuck)["waits"]["exceeded quota pods: pods=0 in grading"] == 2
    assert f"waiting   {said}\n" in shown(print_status, stuck)
    moving = live_line(standing(waiting_sight(4, 2)))
    assert "about 2 min left" in moving
    assert moving.endswith(said)


def test_a_stop_says_what_it_waits_for() -> None:
    assert what_stops(waiting_sight(3, 2)) == (
        "waiting for 3 trials of process 4711 on box: 3 grading; 2 trials wait: exceeded quota pods: pods=0 in grading; "
        "1 trial waits: container agent: ErrImagePull:\\x1b[2J; its last sign of life was 3 s ago"
    )
    assert what_stops(sight(reason="yielded")).endswith("its Job makes the next one")


def test_a_run_that_met_its_limit_says_so_once_and_goes_on_with_a_higher_one() -> None:
    met = sight(reason="limit", detail="spending limit: $2.40 of $2.50 is spent")
    assert driver_words(met).endswith(", came to the spending limit: $2.40 of $2.50 is spent")
    assert next_step(standing(met, ended=4)).endswith("resume r1 --max-cost USD")


@pytest.mark.parametrize(
    ("seen", "ended", "code", "words"),
    [
        (sight(reason="ended"), 10, 0, ""),
        (sight(reason="stopped", detail="by anna@box"), 4, 130, "stopped by anna@box with 6 trials left"),
        (sight(reason="stopped", detail="at once"), 4, 130, "stopped by an interrupt, at once, with 6 trials left"),
        (sight(reason="paused", detail="no room, 10 times"), 4, 5, "no room, 10 times\n6 trials are left"),
        (sight(reason="limit", detail="$2.40 of $2.50 is spent"), 4, 3, "resume r1 --max-cost USD"),
        (
            sight(reason="failed", detail="the disk is full"),
            4,
            5,
            "failed: the disk is full; 6 trials left; go on with",
        ),
        (sight(silent_s=500), 4, 5, "last sign of life 8m 20s ago; 6 trials left; go on with"),
    ],
)
def test_watching_ends_as_submit_did(
    seen: Sight, ended: int, code: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = load_settings(tmp_path, environ={}, overrides={})
    assert watching._ending(standing(seen, ended=ended), settings, None) == code
    said = capsys.readouterr().err
    assert words in said if words else said == ""


class Story:
    """A run whose driver does one thing more with each look."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = FileStore(folder)
        self.now = 0.0
        self.left = [self.claim, self.fall_silent, self.wake, self.let_go]
        monkeypatch.setattr(watching, "Lookout", lambda store, run: Lookout(store, run, lambda: self.now))
        monkeypatch.setattr(watching.asyncio, "sleep", self.sleep)

    async def sleep(self, seconds: float) -> None:
        await self.left.pop(0)()

    async def claim(self) -> None:
        process = this_process().model_copy(update={"host": "elsewhere", "boot": "another"})
        claim = Claim(run="r1", epoch=1, writer_id="w", process=process, at=0, term_s=15)
        await self.store.create(keys.claim("r1", 1), claim.to_bytes())

    async def fall_silent(self) -> None:
        self.now += 15

    async def wake(self) -> None:
        await self.store.create(keys.beat("r1", 1, 1), Beat(epoch=1, number=1, at=1).to_bytes())

    async def let_go(self, reason: ReleaseReason = "failed") -> None:
        await self.store.create(keys.release("r1", 1), Release(epoch=1, at=2, reason=reason).to_bytes())

    async def stay_silent(self) -> None:
        self.now += 150

    async def follow(self, made: RunManifest) -> Standing:
        await self.store.create(keys.manifest("r1"), made.to_bytes())
        return (await watching._follow(self.store, "r1", 1, None))[0]


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    return Story(tmp_path, monkeypatch)


def test_watching_waits_for_a_driver_and_says_when_it_falls_silent(
    story: Story, capsys: pytest.CaptureFixture[str]
) -> None:
    end = asyncio.run(story.follow(standing().data.manifest))
    assert (end.state, story.left) == ("interrupted", [])
    told = [line.split(";")[0] for line in capsys.readouterr().err.splitlines() if "/10" not in line]
    driver = f"process {this_process().pid} on elsewhere"
    assert told == [
        "run r1 waits for a driver",
        f"{driver} drives run r1",
        f"{driver} gives no sign of life for 15 s",
        f"{driver} drives run r1",
    ]


def test_watching_ends_when_a_driver_stays_silent(story: Story) -> None:
    story.left = [story.claim, story.fall_silent, story.stay_silent]
    assert asyncio.run(story.follow(standing().data.manifest)).state == "silent"
    assert story.left == []


@pytest.mark.parametrize("reason", get_args(ReleaseReason))
def test_every_reason_to_let_go_has_words(reason: ReleaseReason) -> None:
    for words in (who_drove(sight(reason=reason)), driver_words(sight(reason=reason))):
        assert "process 4711 on box" in words
        assert not words.endswith(":")


def test_a_removal_that_was_begun_is_told_by_stop(in_process: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    store = FileStore(Path(".orchestrate/store"))
    asyncio.run(store.create(keys.manifest("r1"), standing().data.manifest.to_bytes()))
    claim = Claim(run="r1", epoch=1, writer_id="w", process=this_process(), at=1, term_s=15)
    asyncio.run(store.create(keys.claim("r1", 1), claim.to_bytes()))
    let_go = Release(epoch=1, at=2, reason="removed")
    asyncio.run(store.create(keys.release("r1", 1), let_go.to_bytes()))
    done = in_process("stop", "r1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "let it go, because it is being removed" in done.stdout
