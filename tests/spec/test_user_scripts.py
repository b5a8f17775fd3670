"""``user.yaml`` and what a task says of its user: mistakes at their place, replies that checks can name."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.plan.refuse import task_refusals
from orchestrator.spec.load import load_suite, load_task
from orchestrator.spec.user import UserScript
from orchestrator.spec.wording import Pattern
from tests.spec.conftest import FILES


def problems(folder: Path) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load_suite(folder)
    return [str(each).removeprefix("small/one/") for each in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["user.yaml: the file is empty"]),
        ("replies: []\n", ["user.yaml:1:10: replies: needs at least 1 entry"]),
        (
            "replies:\n  - {id: sure, mentions: [[sure]], say: Yes}\n  - {id: sure, regex: x, say: Yes}\n",
            ["user.yaml:1:1: ids of replies must be unique, twice: sure"],
        ),
        (
            "replies:\n  - {id: sure, say: Yes}\n",
            ["user.yaml:2:5: replies[0]: say what it is a reply to: give mentions, regex or both"],
        ),
        (
            "replies:\n  - {id: sure, regex: '(a', say: Yes}\n",
            [
                "user.yaml:2:23: replies[0].regex: not a regular expression that is matched in linear time: unclosed group"
            ],
        ),
        (
            "replies:\n  - {id: sure, regex: 'a(?=b)', say: Yes}\n",
            ["user.yaml:2:23: replies[0].regex: not a regular expression that is matched in linear time: look-around"],
        ),
        (
            "replies:\n  - {id: sure, mentions: [[]], says: Yes}\n",
            [
                "user.yaml:2:27: replies[0].mentions[0]",
                "user.yaml:2:32: replies[0].says: unknown key (did you mean 'say'",
            ],
        ),
    ],
)
def test_mistakes_in_the_replies_are_told_at_their_place(suite: Path, text: str, expected: list[str]) -> None:
    (suite / "one/user.yaml").write_text(text)
    found = problems(suite)
    for words in expected:
        assert any(line.startswith(words) for line in found), found


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("replies: user.yaml}", "model: a/b}", "task.yaml:7:7: user: mode 'scripted' needs 'replies'"),
        ("scripted, replies", "model, replies", "task.yaml:7:7: user: mode 'model' needs 'model'"),
        (
            "replies: user.yaml",
            "replies: user.yaml, max_turns: 101",
            "task.yaml:7:55: user.max_turns: must be at most 100",
        ),
        (
            "checks:\n",
            "checks:\n  - {id: asked, type: asked, replies: [shure]}\n",
            "task.yaml:9:40: checks[0].replies[0]: there is no reply 'shure' in user.yaml (did you mean 'sure'?)",
        ),
        (
            "checks:\n",
            "checks:\n  - {id: asked, type: asked}\n",
            "task.yaml:9:5: checks[0]: give replies, max_questions or both",
        ),
        (
            "id: one",
            "id: one\nexpect: ask_then_complete",
            "task.yaml:2:9: expect: a task that expects 'ask_then_complete' needs",
        ),
    ],
)
def test_mistakes_of_the_task_about_its_user(suite: Path, old: str, new: str, expected: str) -> None:
    file = suite / "one/task.yaml"
    file.write_text(FILES["one/task.yaml"].replace(old, new, 1))
    assert any(line.startswith(expected) for line in problems(suite)), problems(suite)


def test_questions_need_somebody_to_ask(suite: Path) -> None:
    (suite / "one/user.yaml").unlink()
    file = suite / "one/task.yaml"
    text = FILES["one/task.yaml"].replace("user: {mode: scripted, replies: user.yaml}\n", "")
    file.write_text(text.replace("checks:\n", "checks:\n  - {id: asked, type: asked, max_questions: 0}\n"))
    assert problems(suite) == ["task.yaml:8:23: checks[0].type: there is nobody to ask: the task has no 'user'"]


def test_the_replies_are_the_gateways_and_the_opening_is_the_agents(suite: Path) -> None:
    file = suite / "one/task.yaml"
    file.write_text(
        FILES["one/task.yaml"].replace("replies: user.yaml", 'replies: user.yaml, opening: "Hi!\\n\\nPlease help."')
    )
    task = load_task(suite / "one")
    script = UserScript.model_validate_json(task.bundles.world.read("user.json"))
    assert [reply.say for reply in script.replies] == ["Yes."]
    text = task.bundles.sandbox.read("task/instruction.md").decode()
    assert text.startswith("Mend it.\n\nThe user says:\n\n> Hi!\n>\n> Please help.\n\n---\n\n## Whom you can ask\n")
    assert "at most 12 questions" in text.replace("\n", " ")
    assert "Yes." not in text


def test_a_user_that_a_model_plays_has_a_persona_in_the_gateways_bundle(suite: Path) -> None:
    file = suite / "one/task.yaml"
    raw = FILES["one/task.yaml"].replace("scripted", "model")
    file.write_text(raw)
    with pytest.raises(SpecError) as caught:
        load_task(suite / "one")
    for words in ("mode 'model' needs 'model'", "mode 'model' needs 'persona'", "'replies' is not for mode 'model'"):
        assert words in str(caught.value)
    file.write_text(raw.replace("replies: user.yaml", "model: openai/x, persona: user.md"))
    (suite / "one/user.yaml").unlink()
    with pytest.raises(SpecError, match=r"there is no file small/one/user\.md"):
        load_task(suite / "one")
    (suite / "one/user.md").write_text("  \n")
    with pytest.raises(SpecError, match=r"small/one/user.md: must say in 1 to 20,000 characters"):
        load_task(suite / "one")
    (suite / "one/user.md").write_text("You are {Ann}, and want a refund.\n")
    loaded = load_task(suite / "one")
    assert not any("user" in line for line in task_refusals(loaded.task))
    [persona] = [item for item in loaded.bundles.world.items if item.path == "persona.md"]
    assert b"You are {Ann}, and want a refund." in b"".join(persona.chunks())
    assert not [item for item in loaded.bundles.sandbox.items if "persona" in item.path]
    file.write_text(file.read_text().replace("checks:\n", "checks:\n  - {id: asked, type: asked, replies: [all]}\n"))
    with pytest.raises(SpecError, match=r"checks\[0\]\.replies: replies have names only in a user\.yaml"):
        load_task(suite / "one")


def test_a_reply_calls_only_what_the_user_has(suite: Path) -> None:
    reply = "replies:\n  - {id: all, mentions: [[all]], say: Yes., call: {tool: restart}}\n"
    (suite / "one/user.yaml").write_text(reply)
    found = "small/one/user.yaml: replies[0].call.tool: the user has no tool 'restart'; the world has none with caller: user"
    with pytest.raises(SpecError) as caught:
        load_task(suite / "one")
    assert found in str(caught.value)


def test_no_text_makes_a_pattern_slow() -> None:
    began = time.process_time()
    assert not Pattern("^(a+)+$").found_in("a" * 100_000 + "b")
    assert Pattern("(?i)which (customer|account)").found_in("So WHICH Account is it?")
    assert time.process_time() - began < 5
