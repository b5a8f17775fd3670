"""How a launch ended is decided by what was seen from outside first, and by what the agent says last."""

from __future__ import annotations

import pytest

from orchestrator.interfaces import Ending
from orchestrator.records.base import BlobRef
from orchestrator.records.outcome import Exit, Seal
from orchestrator.records.state import FinalAnswer
from orchestrator.records.usage import NOTHING_USED
from orchestrator.trial.ending import decide


def ending(cause: str = "exited", code: int | None = 0, seconds: float = 10) -> Ending:
    return Ending(exit=Exit(code=code), cause=cause, started=100.0, ended=100.0 + seconds)  # type: ignore[arg-type]


def seal(stopped: str | None = None, waiting: float = 0, *, unheard: bool = False) -> Seal:
    blob = BlobRef(key="k", sha256="0" * 64, size=0)
    return Seal(
        run="r",
        trial="t@a:1",
        launch=1,
        trajectory=blob,
        usage=NOTHING_USED,
        steps=0,
        tool_calls=0,
        waiting_s=waiting,
        stopped=stopped,  # type: ignore[arg-type]
        unheard=unheard,
    )


DECLINED = FinalAnswer(status="declined")


@pytest.mark.parametrize(
    ("seen", "sealed", "final", "cancelled", "expected"),
    [
        (ending("stopped", None), seal("step_cap"), DECLINED, True, "cancelled"),
        (ending("exited"), seal(), DECLINED, True, "declined"),  # it had ended before the operator's stop
        (ending("out_of_memory", 0), seal("wall_clock"), DECLINED, False, "out_of_memory"),
        (ending("out_of_disk", 0), seal(), None, False, "out_of_disk"),
        (ending("out_of_processes", 1), seal(), None, False, "out_of_processes"),
        (ending("wall_clock", None), seal("step_cap"), DECLINED, False, "wall_clock"),
        (ending("stopped", None), seal("wall_clock"), DECLINED, False, "wall_clock"),
        (ending("wall_clock", None, 10), seal(waiting=6), DECLINED, False, "infra_lost"),
        (ending("wall_clock", None, 10), seal(waiting=5), DECLINED, False, "wall_clock"),
        (ending("stopped", None), seal("model_api_error"), DECLINED, False, "model_api_error"),
        (ending("exited"), seal("step_cap"), DECLINED, False, "step_cap"),
        (ending("exited", 1), seal(), DECLINED, False, "declined"),
        (ending("exited", 0), seal(), None, False, "completed"),
        (ending("exited", 0), seal("model_request_error"), None, False, "completed"),
        (ending("exited", 1), seal("model_request_error"), None, False, "model_request_error"),
        (ending("exited", 1), seal("context_exhausted"), None, False, "context_exhausted"),
        (ending("exited", 0), seal("context_exhausted"), DECLINED, False, "declined"),
        (ending("exited", 1), seal(), None, False, "unhandled_exception"),
        (ending("exited", None), seal(), None, False, "unhandled_exception"),
        (ending("stopped", None), seal("infra_lost"), DECLINED, False, "infra_lost"),
        (ending("exited", 1), seal(unheard=True), None, False, "infra_lost"),
        (ending("exited", 1), seal("model_request_error", unheard=True), None, False, "infra_lost"),
        (ending("exited", 0), seal(unheard=True), None, False, "completed"),
        (ending("exited", 1), seal(unheard=True), DECLINED, False, "declined"),
        (ending("out_of_memory", 0), seal(unheard=True), None, False, "out_of_memory"),
    ],
)
def test_precedence(seen: Ending, sealed: Seal, final: FinalAnswer | None, cancelled: bool, expected: str) -> None:
    assert decide(seen, sealed, final, cancelled=cancelled).reason == expected


def test_a_reason_of_ours_names_its_cause() -> None:
    lost = decide(ending("wall_clock", None, 10), seal(waiting=9), None, cancelled=False)
    assert lost.cause == "waiting"
    assert "9 s of 10 s" in (lost.error or "")
