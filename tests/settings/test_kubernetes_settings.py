"""The table ``[kubernetes]``: variables, lists, what is told about mistakes, and settings that come from a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.settings import Kubernetes, Toleration, load_settings, settings_of


def problems(text: str, name: str = "configmap") -> list[str]:
    with pytest.raises(SpecError) as caught:
        settings_of(text, name)
    return [str(problem) for problem in caught.value.problems]


def test_variables_give_words_numbers_and_lists(tmp_path: Path) -> None:
    environ = {
        "ORCHESTRATE_KUBERNETES_DRIVER": "here",
        "ORCHESTRATE_KUBERNETES_NAMESPACES": "trials-0, trials-1,",
        "ORCHESTRATE_KUBERNETES_GATEWAYS": "http://gateway-0:8081",
        "ORCHESTRATE_KUBERNETES_AGENT_GATEWAYS": "gateway-0:8080",
        "ORCHESTRATE_KUBERNETES_CREATES_PER_SECOND": "2.5",
        "ORCHESTRATE_KUBERNETES_GATEWAY_TOKEN_FILE": "token",
    }
    settings = load_settings(tmp_path, environ)
    found = settings.kubernetes
    assert (found.driver, found.namespaces, found.creates_per_second) == ("here", ("trials-0", "trials-1"), 2.5)
    assert (found.gateways, found.agent_gateways) == (("http://gateway-0:8081",), ("gateway-0:8080",))
    assert found.gateway_token_file == tmp_path / "token"
    assert settings.sources["kubernetes.driver"] == "ORCHESTRATE_KUBERNETES_DRIVER"


def test_every_setting_of_the_table_has_a_variable_or_is_a_table_itself(tmp_path: Path) -> None:
    tables = {"runtime_classes", "node_selector", "tolerations"}
    for name in set(Kubernetes.model_fields) - tables:
        with pytest.raises(SpecError) as caught:
            load_settings(tmp_path, {f"ORCHESTRATE_KUBERNETES_{name.upper()}": "1", "ORCHESTRATE_KUBERNETES_X": "1"})
        assert "no setting has this variable" not in str(caught.value).replace(
            "ORCHESTRATE_KUBERNETES_X: no setting", ""
        )


def test_the_file_has_tables_in_it_and_paths_beside_it(tmp_path: Path) -> None:
    (tmp_path / "orchestrate.toml").write_text(
        '[kubernetes]\ngrader_token_file = "tokens/grader"\nnode_selector = {pool = "trials"}\n'
        '[kubernetes.runtime_classes]\ngvisor = "runsc"\n'
        '[[kubernetes.tolerations]]\nkey = "trials"\noperator = "Exists"\neffect = "NoSchedule"\n'
    )
    found = load_settings(tmp_path, {}).kubernetes
    assert found.grader_token_file == tmp_path / "tokens/grader"
    assert found.node_selector == {"pool": "trials"}
    assert found.runtime_classes.gvisor == "runsc"
    assert found.tolerations == (Toleration(key="trials", operator="Exists", effect="NoSchedule"),)


def test_all_mistakes_of_the_table_each_in_its_line() -> None:
    text = (
        '[kubernetes]\nnamespaces = ["A"]\npod_imge = "x"\ndriver = "jobs"\ndenied = ["10.0.0.1"]\n'
        '[kubernetes.runtime_classes]\ngviser = "x"\n[[kubernetes.tolerations]]\nkeys = "x"\n'
    )
    assert problems(text) == [
        "configmap:2:1: kubernetes.namespaces.0: must be a name of the cluster's: lower case letters, digits, dashes, at most 63",
        "configmap:3:1: kubernetes.pod_imge: unknown setting (did you mean 'pod_image'?)",
        "configmap:4:1: kubernetes.driver: must be one of job, here (did you mean 'job'?)",
        "configmap:5:1: kubernetes.denied.0: must be HOST:PORT",
        "configmap:7:1: kubernetes.runtime_classes.gviser: unknown setting (did you mean 'gvisor'?)",
        "configmap:8:1: kubernetes.tolerations.0.keys: unknown setting (did you mean 'key'?)",
    ]


def test_each_gateway_has_both_of_its_addresses() -> None:
    [found] = problems('[kubernetes]\ngateways = ["http://a:1", "http://b:1"]\nagent_gateways = ["a:2"]\n')
    assert "gateways has 2 entries and agent_gateways has 1" in found


def test_settings_from_elsewhere_need_no_key_that_is_not_here() -> None:
    found = settings_of(
        'store = "s3://bucket/x"\n[providers.acme]\nbase_url = "http://acme/v1"\nkey = {env = "ACME_KEY"}\n',
        "configmap",
    )
    assert (found.store, found.key_problems) == ("s3://bucket/x", {})
    assert set(found.providers) == {"acme"}


def test_what_a_driver_needs_is_named() -> None:
    assert Kubernetes().unreachable == [
        *("namespaces", "pod_image", "gateways", "agent_gateways", "relay", "grader"),
        *("gateway_token_file", "grader_token_file"),
    ]
