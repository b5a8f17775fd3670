"""Settings: who wins, where each came from, what is told about mistakes, and that keys stay secret."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.errors import SpecError
from orchestrator.settings import Settings, load_settings

ROOT = Path(__file__).parents[2]


def problems(folder: Path, environ: dict[str, str] | None = None, **overrides: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load_settings(folder, environ or {}, overrides)
    return [str(problem) for problem in caught.value.problems]


def test_defaults_are_beside_the_current_folder(tmp_path: Path) -> None:
    found = load_settings(tmp_path, {})
    assert found.store == f"{tmp_path}/.orchestrate/store"
    assert found.cache == tmp_path / ".orchestrate/cache"
    assert found.logs == tmp_path / ".orchestrate/logs"
    assert (found.backend, found.pool, found.max_launches, found.providers) == ("auto", "inline", 3, {})
    assert set(found.sources.values()) == {"default"}


def test_flags_win_over_variables_over_the_file_over_defaults(tmp_path: Path) -> None:
    (tmp_path / "orchestrate.toml").write_text(
        'store = "s"\nbackend = "container"\nconcurrency = 1\nmax_launches = 2\n'
    )
    environ = {"ORCHESTRATE_BACKEND": "kubernetes", "ORCHESTRATE_CONCURRENCY": "2", "OTHER": "x"}
    found = load_settings(tmp_path, environ, {"concurrency": 3, "pool": None})
    assert (found.store, found.backend, found.concurrency, found.max_launches) == (f"{tmp_path}/s", "kubernetes", 3, 2)
    assert {name: found.sources[name] for name in ("store", "backend", "concurrency", "max_launches", "pool")} == {
        "store": "orchestrate.toml:1",
        "backend": "ORCHESTRATE_BACKEND",
        "concurrency": "flag",
        "max_launches": "orchestrate.toml:4",
        "pool": "default",
    }


def test_paths_belong_to_the_place_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "orchestrate.toml").write_text('store = "s"\ncache = "c"\n')
    below = tmp_path / "a/b"
    below.mkdir(parents=True)
    found = load_settings(below, {"ORCHESTRATE_CACHE": "mine"})
    assert found.store == f"{tmp_path}/s"
    assert found.cache == below / "mine"
    assert found.scratch is None
    assert load_settings(below, {"ORCHESTRATE_SCRATCH": "t"}).scratch == below / "t"
    assert load_settings(below, {}, {"store": "t"}).store == f"{below}/t"
    assert load_settings(below, {}, {"store": "s3://bucket/x"}).store == "s3://bucket/x"


def test_parts_of_a_group_come_from_different_places(tmp_path: Path) -> None:
    (tmp_path / "orchestrate.toml").write_text("[limits]\ntrials = 5\ncost_usd = 1\n")
    found = load_settings(tmp_path, {"ORCHESTRATE_LIMITS_COST_USD": "2.5"}, {"limits.trials": 7})
    assert (found.limits.trials, found.limits.cost_usd) == (7, 2.5)
    assert found.sources["limits.cost_usd"] == "ORCHESTRATE_LIMITS_COST_USD"


def test_a_key_in_plain_sight_is_told_where_keys_belong_and_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "orchestrate.toml").write_text('[providers.local]\nbase_url = "http://x"\nkey = "s3cret"\n')
    [found] = problems(tmp_path, {})
    assert found.endswith(
        'orchestrate.toml:3:1: providers.local.key: must be {env = "NAME"} or {file = "PATH"}, never the key itself'
    )
    assert "s3cret" not in found


def test_all_mistakes_at_once_each_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "orchestrate.toml").write_text(
        "concurrncy = 3\n"
        'backend = "bubblewarp"\n'
        "\n"
        "[providers.local]\n"
        'base_url = "ftp://x"\n'
        'key = {envv = "X"}\n'
        "timeout_seconds = -1\n"
        "\n"
        '[prices."openai/x"]\n'
        "input = 1\n"
    )
    found = problems(tmp_path, {"ORCHESTRATE_POOLL": "x", "ORCHESTRATE_CONCURRENCY": "many"}, max_launches=0)
    shown = [line.replace(str(tmp_path), "DIR") for line in found]
    assert shown == [
        "--max-launches: must be greater than or equal to 1",
        "ORCHESTRATE_CONCURRENCY: concurrency: must be a whole number",
        "ORCHESTRATE_POOLL: no setting has this variable (did you mean 'ORCHESTRATE_POOL'?)",
        "orchestrate.toml:1:1: concurrncy: unknown setting (did you mean 'concurrency'?)",
        "orchestrate.toml:2:1: backend: must be one of auto, bubblewrap, container, kubernetes (did you mean 'bubblewrap'?)",
        "orchestrate.toml:5:1: providers.local.base_url: must be an http:// or https:// address without a user or key in it",
        "orchestrate.toml:6:1: providers.local.key.envv: unknown setting (did you mean 'env'?)",
        "orchestrate.toml:7:1: providers.local.timeout_seconds: must be greater than 0",
        "orchestrate.toml:9:1: prices.openai/x.output: this setting is required",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("store = \n", "orchestrate.toml:1:9: not valid TOML: Invalid value"),
        ("a = 1\na = 2\n", "orchestrate.toml:2:6: not valid TOML: Cannot overwrite a value"),
        ("limits = 3\n", "orchestrate.toml:1:1: limits: "),
        ("confirm_over_usd = inf\n", "orchestrate.toml:1:1: confirm_over_usd: "),
        ('secrets = {a = "b"}\n', "orchestrate.toml:1:1: secrets: unknown setting"),
        ("[providers.a]\n", "orchestrate.toml:1:1: providers.a.base_url: this setting is required"),
        ('[providers.a]\nbase_url="https://u:p@x"\n', "orchestrate.toml:2:1: providers.a.base_url: must be an http"),
        (
            '[providers.a]\nbase_url="https://x"\nkey={env="A", file="b"}\n',
            "orchestrate.toml:3:1: providers.a.key: give one",
        ),
        ('[providers."A B"]\nbase_url="https://x"\n', "orchestrate.toml:1:1: providers.A B: must be a provider's name"),
        (
            '[prices."a/b"]\ninput=1e300\noutput=1\n',
            "orchestrate.toml:2:1: prices.a/b.input: must be less than or equal to 100000",
        ),
        ("[prices.gpt]\ninput=1\noutput=1\n", "orchestrate.toml:1:1: prices.gpt: must be PROVIDER/NAME"),
        (
            '[prices."a/b"]\ninput=1\noutput=1\ntiers=[{above=9, input=1, output=1, outputs=1}]\n',
            "orchestrate.toml:4:1: prices.a/b.tiers.0.outputs: unknown setting (did you mean 'output'?)",
        ),
        (
            '[prices."a/b"]\ninput=1\noutput=1\ntiers=[{above=9, input=1, output=1}, {above=9, input=1, output=1}]\n',
            "orchestrate.toml:1:1: prices.a/b: 'above' of the tiers must rise, and is 9, 9",
        ),
    ],
)
def test_one_mistake(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "orchestrate.toml").write_text(text)
    [found] = problems(tmp_path)
    assert found.startswith(expected)


def test_limits_given_twice_over_a_wrong_file_do_not_crash(tmp_path: Path) -> None:
    (tmp_path / "orchestrate.toml").write_text("limits = 3\n")
    assert problems(tmp_path, {"ORCHESTRATE_LIMITS_TRIALS": "1"})


SECRET = "sk-very-secret-value"


def test_keys_are_read_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{SECRET}-file\n")
    (tmp_path / "orchestrate.toml").write_text(
        '[providers.one]\nbase_url = "https://one/v1"\nkey = {env = "ONE"}\n'
        f'headers = {{X-Key = "{SECRET}-header"}}\n'
        '[providers.two]\nbase_url = "https://two/v1"\nkey = {file = "key"}\n'
    )
    found = load_settings(tmp_path, {"ONE": f"{SECRET}-env", "OPENAI_API_KEY": f"{SECRET}-openai"})
    told = found.provider_secrets()
    assert told["one"]["key"] == f"{SECRET}-env"
    assert told["one"]["headers"] == {"X-Key": f"{SECRET}-header"}
    assert told["two"]["key"] == f"{SECRET}-file"
    assert told["openai"] == {
        "type": "openai",
        "query": {},
        "endpoints": None,
        "region": None,
        "base_url": "https://api.openai.com/v1",
        "key": f"{SECRET}-openai",
        "headers": {},
        "timeout_seconds": 300,
        "concurrency": 64,
    }
    assert found.sources["providers.openai"] == "OPENAI_API_KEY"
    for text in (repr(found), str(found), found.model_dump_json(), repr(found.model_dump()), str(found.sources)):
        assert SECRET not in text


def test_errors_never_show_values(tmp_path: Path) -> None:
    (tmp_path / "orchestrate.toml").write_text(
        f'[providers.one]\nbase_url = "https://{SECRET}@one"\nkey = "{SECRET}"\nheaders = {{a = ["{SECRET}"]}}\n'
    )
    found = problems(tmp_path, {"ORCHESTRATE_BACKEND": SECRET})
    assert len(found) == 4
    assert SECRET not in "\n".join(found)
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate_json(f'{{"providers": {{"a": {{"base_url": "{SECRET}"}}}}}}')
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"", b"two\nlines", b"\xff"])
def test_a_key_that_cannot_be_read_stops_only_who_needs_it(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    (tmp_path / "orchestrate.toml").write_text('[providers.one]\nbase_url = "https://one"\nkey = {file = "key"}\n')
    found = load_settings(tmp_path, {})
    assert found.providers["one"].secret is None
    assert str(tmp_path / "key") in found.key_problems["one"]
    absent = load_settings(tmp_path, {"ONE": " "}, {"providers.one.key": {"env": "ONE"}})
    assert absent.key_problems == {"one": "the variable ONE is not set"}


def test_a_configured_provider_is_not_replaced_by_a_variable(tmp_path: Path) -> None:
    (tmp_path / "orchestrate.toml").write_text('[providers.openai]\nbase_url = "http://127.0.0.1:1/v1"\n')
    found = load_settings(tmp_path, {"OPENAI_API_KEY": SECRET, "ANTHROPIC_API_KEY": ""})
    assert found.providers["openai"].base_url == "http://127.0.0.1:1/v1"
    assert "anthropic" not in found.providers
    assert found.providers["openai"].secret is None


def test_variables_of_other_programs_are_left_alone(tmp_path: Path) -> None:
    load_settings(tmp_path, {"ORCHESTRATE_GRADER_X": "1", "ORCHESTRATE_TOKEN": "1", "ORCHESTRATE_GATEWAY": "1"})


def test_the_process_s_own_environment_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATE_MAX_LAUNCHES", "5")
    assert load_settings(tmp_path).max_launches == 5


def test_importing_loads_nothing_heavy() -> None:
    code = "import sys, orchestrator.settings; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    ours = set(done.stdout.split()) - set(sys.stdlib_module_names)
    known = {"orchestrator", "pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}
    by_the_interpreter = {"sitecustomize", "usercustomize"}
    assert {name for name in ours if not name.startswith("_")} <= known | by_the_interpreter


def test_a_provider_named_like_an_api_speaks_it_unless_it_says_another(tmp_path: Path) -> None:
    lines = [f'[providers.{name}]\nbase_url = "https://x"\n' for name in ("anthropic", "bedrock", "mine")]
    (tmp_path / "orchestrate.toml").write_text(
        "".join([*lines, '[providers.openai]\nbase_url = "https://x"\ntype = "anthropic"\n'])
    )
    found = {name: each.type for name, each in load_settings(tmp_path, {}).providers.items()}
    assert found == {"anthropic": "anthropic", "bedrock": "bedrock", "mine": "openai", "openai": "anthropic"}
