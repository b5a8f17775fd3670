"""What is said when models do not answer before a run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.driver.probe import models_to_probe, probe_models
from orchestrator.errors import InfrastructureError, RefusedError
from orchestrator.interfaces import ProbeResult
from orchestrator.records.manifest import ManifestAgent
from orchestrator.settings import Settings, load_settings
from orchestrator.spec.agent import Agent

GOOD = ProbeResult(model="local/small", result="answered")
UNKNOWN = ProbeResult(model="openai/typo", result="refused", status=404, reason="status 404: no such model")
KEYLESS = ProbeResult(model="openai/gpt", result="refused", status=401, reason="status 401")
AWAY = ProbeResult(model="far/big", result="failed", reason="could not be reached")


def settings(folder: Path) -> Settings:
    (folder / "orchestrate.toml").write_text('[providers.local]\nbase_url = "http://127.0.0.1:1"\n')
    return load_settings(folder, environ={"OPENAI_API_KEY": "sk-not-shown-anywhere"})


def ask(folder: Path, *results: ProbeResult) -> None:
    class Told:
        async def probe(self, model: str) -> ProbeResult:
            return next(result for result in results if result.model == model)

    asyncio.run(probe_models(cast("Any", Told()), [result.model for result in results], settings(folder)))


def test_nothing_is_said_when_all_answer(tmp_path: Path) -> None:
    ask(tmp_path, GOOD)


def test_a_refusal_names_the_reason_the_key_and_the_models_that_are_fine(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as caught:
        ask(tmp_path, GOOD, UNKNOWN, KEYLESS, AWAY)
    assert str(caught.value).splitlines() == [
        "model openai/typo was refused: status 404: no such model",
        "model openai/gpt was refused: status 401; check its key (the variable OPENAI_API_KEY), and what the key may use",
        "model far/big could not be asked: could not be reached",
        "fine: local/small",
        "nothing was launched",
    ]
    assert caught.value.exit_code == 2


def test_a_provider_that_is_away_is_named_with_its_address(tmp_path: Path) -> None:
    away = ProbeResult(model="local/small", result="failed", status=0, reason="could not be reached")
    with pytest.raises(InfrastructureError, match=r"could not be reached; its address is http://127\.0\.0\.1:1\n"):
        ask(tmp_path, away)


def test_a_provider_that_is_away_is_no_mistake_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="far/big could not be asked") as caught:
        ask(tmp_path, AWAY)
    assert (caught.value.cause, caught.value.exit_code) == ("model_probe", 5)


def test_each_model_is_asked_once_and_conversations_from_files_are_not() -> None:
    agents = [
        ManifestAgent(name=name, digest="sha256:0", agent=Agent(type="command", command=("x",), models=models))
        for name, models in (("a", {"main": "x/one", "small": "x/two"}), ("b", {"main": "x/one"}), ("c", {}))
    ]
    scripted = Agent(type="scripted", scripts="scripts/", models={"main": "scripted/d"})
    agents.append(ManifestAgent(name="d", digest="sha256:0", agent=scripted))
    assert models_to_probe(agents) == ("x/one", "x/two")
