"""``world/tools.yaml``: mistakes at their place, all at once, and what a bundle holds of a world."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec.load import load_task
from orchestrator.spec.world import World, named_parameters, placeholders

GOOD = """\
tools:
  - name: cancel_order
    description: Cancels an order.
    arguments: {type: object, required: [order_id], properties: {order_id: {type: string}}}
    requires:
      - {sql: "select 1 from t where a = :order_id", error: not_found, message: "there is no order {order_id}"}
    sql: ["delete from t where a = :order_id"]
    irreversible: true
    requires_approval: {when: "select :order_id <> 'x'"}
    message: {to: "orders", text: "{order_id} is cancelled"}
outbox:
  - {name: post_message, rate: {calls: 2, seconds: 1}}
approvals:
  - {tool: cancel_order, when: "select :order_id = 'y'", say: granted}
"""


def problems(suite: Path, text: str) -> list[str]:
    (suite / "one/world/tools.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        load_task(suite / "one")
    return [str(each).removeprefix("small/one/world/") for each in caught.value.problems]


def test_a_world_goes_to_the_gateway_as_json_and_its_seed_to_the_grader(suite: Path) -> None:
    (suite / "one/world/tools.yaml").write_text(GOOD)
    bundles = load_task(suite / "one").bundles
    items = {item.path: item for item in bundles.world.items}
    world = World.model_validate_json(items["world.json"].data)
    assert world.guarded["cancel_order"].irreversible
    assert json.loads(items["task.json"].data)["world"] == "world/"
    assert {"world/seed.sql", "world/tools.yaml"} < set(items)
    assert [item.path for item in bundles.graders.items if item.path.startswith("world")] == ["world/seed.sql"]
    assert not [item.path for item in bundles.sandbox.items if "world" in item.path]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('where a = :order_id", error', 'where a = :order", error', "6:15: tools[0].requires[0].sql: there is no argument 'order'"),
        ("no order {order_id}", "no order {id}", "6:81: tools[0].requires[0].message: there is no argument 'id'"),
        ("cancel_order\n", "finish\n", "2:5: tools[0]: the name 'finish' is taken by a tool of the gateway"),
        ("order_id: {type", "now: {type", "2:5: tools[0]: the argument 'now' has a name that is taken"),
        ("tool: cancel_order", "tool: cancel", "approvals: there is no tool 'cancel'"),
        ("name: post_message", "name: post_mesage", "outbox[0].name: "),
        ("irreversible", "ireversible", "tools[0].ireversible: unknown key (did you mean 'irreversible'?"),
        ('    sql: ["delete from t where a = :order_id"]\n', "", "2:5: tools[0]: the tool does nothing"),
        ("    irreversible: true\n", "    function: cancel\n", "2:5: tools[0]: 'function' replaces sql, result and page"),
        ("    irreversible: true\n", "    faults: [{error: gone}]\n", "tools[0].faults[0]: give exactly one of calls, share"),
    ],
)  # fmt: skip
def test_each_mistake_at_its_place(suite: Path, old: str, new: str, expected: str) -> None:
    assert old in GOOD
    found = problems(suite, GOOD.replace(old, new, 1))
    assert any(expected in line for line in found), found


def test_functions_are_found_without_running_the_file(suite: Path) -> None:
    source = suite / "one/world/tools.py"
    source.write_text("raise SystemExit\ndef score(world, arguments): ...\n")
    text = "tools:\n  - {name: score_it, description: Scores., function: scores}\n"
    assert problems(suite, text) == [
        "tools.yaml:2:54: tools[0].function: there is no function 'scores' in small/one/world/tools.py (did you mean 'score'?)"
    ]
    source.write_text("def score(:\n")
    assert problems(suite, text) == ["tools.py:1: this is no Python: invalid syntax"]
    source.unlink()
    assert problems(suite, text) == ["tools.py: a tool names a 'function', and this file is not there"]


@pytest.mark.parametrize("check", ["{id: g, type: outbox}", "{id: s, type: sql, query: 'select 1'}"])
def test_checks_of_a_database_need_a_world(suite: Path, check: str) -> None:
    file = suite / "one/task.yaml"
    file.write_text(file.read_text().replace("world: world/\n", "").replace("checks:\n", f"checks:\n  - {check}\n"))
    with pytest.raises(SpecError, match="the task has no 'world'"):
        load_task(suite / "one")


def test_parameters_and_placeholders_are_read_as_sqlite_and_people_do() -> None:
    assert named_parameters("select ':no', \":no\", x::y, :yes -- :no\n, /* :no */ :and_1, :yes") == ("yes", "and_1")
    assert placeholders("no {a} in {b_2} {} {3}") == ("a", "b_2")
