"""What a doctor says of settings, machine and parts; that every check is told, whatever happens to the others."""

from __future__ import annotations

import asyncio
import os
import resource
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.driver.doctor import examine, machine, parts
from orchestrator.driver.doctor.checks import Check, run_checks
from orchestrator.driver.doctor.examine import shown_settings, visit
from orchestrator.errors import InfrastructureError, Problem
from orchestrator.settings import Settings, usable_settings
from orchestrator.storage.health import Fact


def states(facts: Any) -> list[str]:
    return [fact.state for fact in facts]


def settings_of(folder: Path, text: str = "", **environ: str) -> Settings:
    (folder / "orchestrate.toml").write_text(text)
    settings, problems = usable_settings(folder, environ)
    assert problems == ()
    return settings


def test_every_check_is_told_whatever_happens_to_the_others() -> None:
    cleaned: list[str] = []

    async def well() -> list[Fact]:
        return [Fact(state="ok", said="well"), Fact(state="warning", said="so so")]

    async def failing() -> list[Fact]:
        msg = "the disk said no"
        raise InfrastructureError(msg)

    async def broken() -> list[Fact]:
        return [1 / 0]  # type: ignore[list-item]

    async def waiting() -> list[Fact]:
        try:
            await asyncio.sleep(100)
        finally:
            cleaned.append("waiting")
        return []

    async def hanging() -> list[Fact]:
        time.sleep(4)
        return []

    begun = time.monotonic()
    looks = (failing, waiting, hanging, broken, well)
    found = run_checks([Check(name=look.__name__, look=look, limit_s=0.3) for look in looks])
    assert [each.name for each in found] == [look.__name__ for look in looks]
    assert [each.state for each in found] == ["problem", "problem", "problem", "problem", "warning"]
    said = [each.facts[0].said for each in found]
    assert said[:3] == ["the disk said no", "did not end within 0.3 s", "did not end within 0.3 s"]
    assert said[3].startswith("could not look: ZeroDivisionError")
    assert [each.hangs for each in found] == [False, False, True, False, False]
    assert cleaned == ["waiting"]
    assert time.monotonic() > begun


WRONG = """
store = "here"
backend = "cloud"
concurrency = 3
nope = 1
[providers.good]
base_url = "http://127.0.0.1:9/v1?api_key=hidden-in-url"
key = {env = "GOOD_KEY"}
headers = {x-team = "hidden-in-header"}
[providers.bad]
base_url = "ftp://x"
[limits]
trials = -1
cost_usd = 5
"""


def test_what_cannot_be_used_is_told_and_the_rest_is_shown_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "orchestrate.toml").write_text(WRONG)
    environ = {"GOOD_KEY": "hidden-key", "ORCHESTRATE_BACKENDS": "x"}
    settings, problems = usable_settings(tmp_path, environ, {"concurrency": 0})
    told = {(each.file, each.line, each.field) for each in problems}
    assert told == {
        ("ORCHESTRATE_BACKENDS", 0, ""),
        ("orchestrate.toml", 3, "backend"),
        ("--concurrency", 0, ""),
        ("orchestrate.toml", 5, "nope"),
        ("orchestrate.toml", 11, "providers.bad.base_url"),
        ("orchestrate.toml", 13, "limits.trials"),
    }
    shown = {each.name: (each.value, each.source) for each in shown_settings(settings)}
    assert shown["store"] == (str(tmp_path / "here"), "orchestrate.toml:2")
    assert shown["backend"] == ("auto", "default")
    assert shown["concurrency"] == ("(not set)", "default")
    assert shown["limits.cost_usd"] == ("5.0", "orchestrate.toml:14")
    assert shown["limits.trials"] == ("(not set)", "default")
    assert shown["providers.good"] == (
        "http://127.0.0.1:9/v1, 64 calls at one time, headers x-team",
        "orchestrate.toml:6",
    )
    assert "providers.bad" not in shown
    assert "hidden" not in repr(shown) + repr(problems)


TABLE = """
[kubernetes]
driver = "here"
namespaces = ["nc-trials-0", "nc-trials-1"]
cpu_request_share = 0.5
node_selector = {"kubernetes.io/arch" = "amd64", pool = "of \\"trials\\""}
runtime_classes = {gvisor = "runsc"}
tolerations = [{key = "k", operator = "Exists"}]
gateway_token_file = "token"
"""


def test_settings_are_shown_as_a_person_writes_them(tmp_path: Path) -> None:
    shown = {each.name: each.value for each in shown_settings(settings_of(tmp_path, TABLE))}
    assert shown["kubernetes.driver"] == "here"
    assert shown["kubernetes.gateway_token_file"] == str(tmp_path / "token")
    table = {name.removeprefix("kubernetes."): text for name, text in shown.items() if name.startswith("kubernetes.")}
    del table["driver"], table["gateway_token_file"]
    again = tomllib.loads("\n".join(f"{name} = {text}" for name, text in table.items()))
    assert again == {name: value for name, value in tomllib.loads(TABLE)["kubernetes"].items() if name in table}
    assert len(again) == 5


def test_a_file_that_is_no_toml_leaves_all_defaults(tmp_path: Path) -> None:
    (tmp_path / "orchestrate.toml").write_text("store = \n")
    settings, problems = usable_settings(tmp_path, {})
    assert [(each.file, each.line) for each in problems] == [("orchestrate.toml", 1)]
    assert settings.store == str(tmp_path / ".orchestrate/store")


@pytest.mark.parametrize(
    ("problems", "state", "code"),
    [((), "ok", 0), ((), "warning", 0), ((), "problem", 5), ((Problem("f", message="m"),), "problem", 2)],
)
def test_the_exit_code_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problems: tuple[Problem, ...], state: Any, code: int
) -> None:
    async def look() -> list[Fact]:
        return [Fact(state=state, said="x")]

    monkeypatch.setattr(examine, "checks", lambda settings, models: [Check(name="x", look=look)])
    assert visit(settings_of(tmp_path), problems).exit_code == code


def test_a_store_without_a_meaning_and_settings_that_are_ignored_are_problems_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examine, "checks", lambda settings, models: [])
    found = visit(settings_of(tmp_path, 'store = "s3://key:hidden@bucket"'), ())
    assert found.exit_code == 2
    assert [each.file for each in found.problems] == ["orchestrate.toml:1"]
    assert "hidden" not in repr(found)


def test_capacity_follows_from_memory_and_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_memory", lambda: 6 << 30)
    monkeypatch.setattr(machine, "_cores", lambda: 2)

    def told(number: int) -> Fact:
        (fact,) = asyncio.run(machine.capacity(settings_of(tmp_path, f"concurrency = {number}")))
        return fact

    assert told(4).state == "ok"
    assert "2 processors; 4 trials at one time (set by orchestrate.toml:1); 6.0 GiB" in told(4).said
    assert (told(7).state, told(7).advice) == ("warning", "set -n 6, or give tasks less memory")
    monkeypatch.setattr(machine, "_memory", lambda: None)
    assert (told(9).state, told(200).state) == ("ok", "ok")


@pytest.mark.parametrize(
    ("soft", "hard", "advice"), [(1024, 1024, ""), (512, 4096, "ulimit -n 576"), (512, 512, "hard limit")]
)
def test_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, advice: str) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, hard))
    monkeypatch.setattr(machine, "_FILES_OF_ALL", tmp_path / "none")
    (fact,) = asyncio.run(machine.open_files(settings_of(tmp_path, "concurrency = 10")))
    assert (fact.state == "warning", advice in fact.advice) == (bool(advice), True)


@pytest.mark.parametrize(("most", "states_seen"), [(1 << 63, ["ok"]), (256 * 20_000, ["ok", "warning"])])
def test_open_files_that_one_agent_could_have_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, states_seen: list[str]
) -> None:
    (tmp_path / "file-max").write_text(f"{most}\n")
    monkeypatch.setattr(machine, "_FILES_OF_ALL", tmp_path / "file-max")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (20_000, 20_000))
    facts = asyncio.run(machine.open_files(settings_of(tmp_path, "concurrency = 2")))
    assert states(facts) == states_seen
    assert len(facts) == 1 or "one agent can hold 5,120,000" in facts[1].said


def test_scratch_that_is_too_long_or_runs_nothing_or_is_no_place_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = asyncio.run(machine.scratch(Settings(scratch=Path("/tmp") / ("x" * 60))))
    assert states(facts) == ["warning", "ok"]
    assert "/tmp is used instead" in facts[0].said
    assert states(asyncio.run(machine.folder(Path("/proc/nowhere"), "ORCHESTRATE_LOGS"))) == ["problem"]

    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.X_OK)
    facts = asyncio.run(machine.scratch(Settings(scratch=Path("/tmp"))))
    assert states(facts) == ["ok", "warning"]
    assert "noexec" in facts[1].said


def test_providers_are_told_without_calling_them(tmp_path: Path) -> None:
    text = """
[providers.a]
base_url = "http://127.0.0.1:9/v1"
[providers.b]
base_url = "http://127.0.0.1:9/b?k=hidden"
key = {env = "B"}
"""
    facts = asyncio.run(parts.providers(settings_of(tmp_path, text)))
    assert [(fact.state, fact.said) for fact in facts] == [
        ("ok", "a (openai) at http://127.0.0.1:9/v1, without a key"),
        ("warning", "b (openai) at http://127.0.0.1:9/b: the variable B is not set"),
    ]
    facts = asyncio.run(parts.providers(settings_of(tmp_path, text, B="hidden")))
    assert (facts[1].state, facts[1].said) == ("ok", "b (openai) at http://127.0.0.1:9/b, key from the variable B")
    assert states(asyncio.run(parts.providers(settings_of(tmp_path)))) == ["ok"]


@pytest.mark.parametrize(
    ("look", "text", "elsewhere"),
    [(parts.bubblewrap, 'backend = "bubblewrap"', "warning"), (parts.container, 'backend = "container"', "ok")],
)
def test_a_backend_that_fails_is_a_problem_only_where_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[..., Any], text: str, elsewhere: str
) -> None:
    from orchestrator import wiring
    from orchestrator.errors import RefusedError

    def missing(*_: Any, **__: Any) -> None:
        msg = "none here; install it"
        raise RefusedError(msg)

    monkeypatch.setattr(wiring, "sandbox_backend", missing)
    monkeypatch.setattr(wiring, "container_engine", missing)
    needed = settings_of(tmp_path, text)
    (fact,) = asyncio.run(look(needed))
    assert (fact.state, fact.said) == ("problem", "none here; install it")
    other = needed.model_copy(update={"backend": "kubernetes"})
    assert states(asyncio.run(look(other))) == [elsewhere]


def test_sampled_limits_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestrator import wiring

    class Weak:
        async def preflight(self) -> dict[str, str]:
            return {"limits": "sampled"}

    monkeypatch.setattr(wiring, "sandbox_backend", lambda *_, **__: Weak())
    facts = asyncio.run(parts.bubblewrap(settings_of(tmp_path)))
    assert states(facts) == ["ok", "warning"]
    assert "limits: sampled" in facts[0].said


def test_ray_is_needed_only_by_its_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert states(asyncio.run(parts.ray(settings_of(tmp_path)))) == ["ok"]
    assert states(asyncio.run(parts.ray(settings_of(tmp_path, 'pool = "ray"')))) == ["problem"]
