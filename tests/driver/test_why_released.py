"""Which of several reasons a driver gives for letting go: the one that its exit code tells."""

from __future__ import annotations

import pytest

from orchestrator.driver.execute import Execution
from orchestrator.errors import InfrastructureError, SpendingLimitError

PAUSED, LIMITED = InfrastructureError("no gateway"), SpendingLimitError("no money")


@pytest.mark.parametrize(
    ("execution", "stopped_by", "reason"),
    [
        (Execution(3, 0, (), PAUSED, LIMITED), "kim", "ended"),
        (Execution(3, 1, (), PAUSED, LIMITED), "kim", "stopped"),
        (Execution(3, 1, (), PAUSED, LIMITED), None, "limit"),
        (Execution(3, 1, (), PAUSED), None, "paused"),
        (Execution(3, 1, (), None), None, "failed"),
        (Execution(3, 1, (), None, refused="t@a:1: denied"), None, "failed"),
    ],
)
def test_a_stop_comes_first_then_the_limit_then_our_failure(
    execution: Execution, stopped_by: str | None, reason: str
) -> None:
    assert execution.why_released(stopped_by)[0] == reason
