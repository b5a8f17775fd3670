"""What the chart makes: valid to the letter, restricted, walled in, and readable by the programs that it starts."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

import pytest
from chart_world import CHART, FULL, KINDS, MERGED, NEEDED, SYSTEM, jobs, namespaces, of, only, pods, render

from orchestrator.sandbox.kubernetes import names
from orchestrator.settings import settings_of
from orchestrator.storage.identities import IDENTITIES, policy

pytestmark = pytest.mark.chart

GUARDED = {"default-deny"}
AGENTS = ["orchestrate-trials-0", "orchestrate-trials-1", "orchestrate-trials-root", "orchestrate-grading"]


@pytest.fixture(params=sorted(KINDS))
def objects(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return render(KINDS[request.param])


def test_every_object_is_valid_to_the_letter(objects):
    import kubernetes_validate

    for each in [*objects, *jobs(objects)]:
        kubernetes_validate.validate(each, "1.37", strict=True)


def test_every_pod_is_restricted(objects):
    found = pods(objects)
    assert len(found) >= 8
    for name, spec in found.items():
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec["securityContext"]["runAsUser"] == names.CONTROL_UID, name
        assert spec["enableServiceLinks"] is False, name
        assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & set(spec), name
        assert not [volume for volume in spec.get("volumes", []) if "hostPath" in volume], name
        for container in spec["containers"] + spec.get("initContainers", []):
            assert {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }.items() <= container["securityContext"].items(), (name, container["name"])
            assert container["resources"]["requests"], (name, container["name"])


def test_only_those_who_ask_the_api_server_have_a_token(objects):
    with_token = {name.split("/")[1] for name, spec in pods(objects).items() if spec["automountServiceAccountToken"]}
    assert with_token == {"reaper", "filled-in", "orchestrate-doctor"}
    projected = [
        (name.split("/")[1], container["name"])
        for name, spec in pods(objects).items()
        for volume in spec.get("volumes", [])
        if any("serviceAccountToken" in source for source in volume.get("projected", {}).get("sources", []))
        for container in spec["containers"]
        if volume["name"] in {mount["name"] for mount in container["volumeMounts"]}
    ]
    assert projected == [("grader", "grader")]


def test_every_namespace_denies_everything_and_no_rule_is_open(objects):
    policies = of(objects, "NetworkPolicy")
    denied = {each["metadata"]["namespace"] for each in policies if each["metadata"]["name"] == "default-deny"}
    assert denied == namespaces(objects) | {SYSTEM}
    for each in policies:
        name, spec = each["metadata"]["name"], each["spec"]
        assert set(spec["policyTypes"]) == {"Ingress", "Egress"}
        if name == "default-deny":
            assert spec == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
        elif name == "canary":
            assert spec["ingress"] == [{}]
            assert "egress" not in spec
        else:
            assert all(rule.get("from") and rule["ports"] for rule in spec.get("ingress", []))
            assert all(rule.get("to") and rule["ports"] for rule in spec.get("egress", []))


def test_agents_reach_one_port_of_gateway_and_relay_and_nothing_else():
    found = {
        (each["metadata"]["namespace"], each["metadata"]["name"]): each["spec"]
        for each in of(render(FULL), "NetworkPolicy")
        if each["metadata"]["namespace"] in AGENTS and each["metadata"]["name"] != "default-deny"
    }
    assert set(found) == {*((each, "class-gateway") for each in AGENTS[:3]), ("orchestrate-grading", "class-none")}
    for (namespace, _), spec in found.items():
        (rule,) = spec["egress"]
        (peer,) = rule["to"]
        where = peer["namespaceSelector"]["matchExpressions"]
        grading = namespace == "orchestrate-grading"
        assert "ingress" not in spec
        assert spec["podSelector"]["matchLabels"][names.NET_CLASS] == ("none" if grading else "gateway")
        assert where == [
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "In",
                "values": ["orchestrate-grader" if grading else SYSTEM],
            }
        ]
        assert rule["ports"] == [{"port": names.GRADING_PORT if grading else names.AGENT_PORT, "protocol": "TCP"}]


def test_nothing_secret_is_where_agents_or_hidden_tests_are():
    objects = render(FULL)
    assert not [each for each in of(objects, "Secret") if each["metadata"]["namespace"] in AGENTS]
    secrets = {value for each in of(objects, "Secret") for value in each["data"].values()}
    plain = json.dumps([each for each in objects if each["kind"] != "Secret"])
    assert secrets
    assert not [value for value in secrets if value in plain]


def test_rights_in_the_store_are_those_of_the_code():
    found = {path.stem: json.loads(path.read_text()) for path in (CHART / "iam").glob("*.json")}
    assert found == {each.name: policy(each, "BUCKET", "PREFIX") for each in IDENTITIES}


def test_the_bundled_store_gives_each_writer_its_rights():
    import base64

    objects = render(FULL)
    document = json.loads(base64.b64decode(only(objects, "Secret", "orchestrate-store")["data"]["s3.json"]))
    policies = {each["name"]: json.loads(each["content"]) for each in document["policies"]}
    assert policies == {each.name: policy(each, "orchestrate", "store", conditional=False) for each in IDENTITIES}
    rights = {each["name"]: each.get("policyNames") for each in document["identities"]}
    assert rights == {
        "admin": None,
        "driver": ["driver", "compactor"],
        **{name: [name] for name in ("submitter", "gateway", "relay", "grader", "reader", "gc")},
    }
    for who in ("driver", "submitter"):
        found = of(objects, "Secret", f"orchestrate-store-{who}")
        assert {each["metadata"]["namespace"] for each in found} == {"orchestrate-drivers-search", "ads-eval"}


def test_the_driver_s_settings_are_read_by_the_program():
    objects = render(FULL)
    text = only(objects, "ConfigMap", "orchestrate-driver", "ads-eval")["data"]["orchestrate.toml"]
    settings = settings_of(text, "orchestrate.toml")
    cluster = settings.kubernetes
    assert settings.store == f"s3://orchestrate/store?endpoint=http://store.{SYSTEM}.svc:8333"
    assert settings.backend == "kubernetes"
    assert settings.pool == "ray"
    assert cluster.drivers_namespace == "ads-eval"
    assert cluster.namespaces == ("orchestrate-trials-0", "orchestrate-trials-1")
    assert cluster.root_namespaces == ("orchestrate-trials-root",)
    assert cluster.gateways == tuple(f"http://gateway-{n}.{SYSTEM}.svc:8081" for n in range(3))
    assert cluster.agent_gateways == tuple(f"gateway-{n}.{SYSTEM}.svc:8080" for n in range(3))
    assert set(cluster.denied) == {"203.0.113.1:443", "198.18.0.1:6443", "198.18.0.2:6443", "169.254.169.254:80"}
    assert cluster.tolerations[0].value == "yes"
    assert cluster.runtime_classes.vm == "kata"
    assert (cluster.grader_data, cluster.grader_scratch) == ("20Gi", "40Gi")
    assert cluster.priority_class == "orchestrate-trial"
    assert settings.prices["openai/x"].input == 1.0
    assert set(settings.providers) >= {"openai", "own_one"}
    assert not cluster.unreachable


def test_the_chart_is_of_the_program_s_version():
    (config,) = of(render(NEEDED), "ConfigMap", "orchestrate-driver")
    assert config["data"]["version"] == version("orchestrate")


def test_the_job_ends_where_the_program_says_so():
    for job in jobs(render(FULL)):
        spec = job["spec"]
        (container,) = spec["template"]["spec"]["containers"]
        assert container["name"] == "driver"
        assert container["command"] == ["orchestrate"]
        ignored, failed = spec["podFailurePolicy"]["rules"]
        assert ignored["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
        assert failed["onExitCodes"]["values"] == [1, 2, 3, 4, 5, 130]
        assert {each["name"] for each in container["env"]} >= {"ORCHESTRATE_KUBERNETES_DRIVER", "AWS_SECRET_ACCESS_KEY"}


def _gateway(values: dict[str, Any]) -> dict[str, Any]:
    return only(render(values), "StatefulSet", "gateway")["spec"]


def test_an_upgrade_does_not_restart_a_gateway_for_what_is_not_its_own():
    before = _gateway(NEEDED)
    changed = {
        **NEEDED,
        "quotas": {"trials": {"pods": "10"}},
        "teams": [{"name": "default"}, {"name": "other"}],
        "driver": {"concurrency": 7},
        "trials": {"createsPerSecond": 3},
        "relay": {"replicas": 5},
    }
    assert before["updateStrategy"] == {"type": "OnDelete"}
    assert _gateway(changed) == before
    provider = {"gateway": {"providers": {"local": {"baseUrl": "http://llm.example/v1"}}}}
    assert _gateway({**NEEDED, **provider})["template"] != before["template"]


def test_each_gateway_has_an_address_of_its_own():
    objects = render(FULL)
    for ordinal in range(3):
        service = only(objects, "Service", f"gateway-{ordinal}")
        assert service["spec"]["selector"] == {"app": "gateway", "apps.kubernetes.io/pod-index": str(ordinal)}
        assert [each["port"] for each in service["spec"]["ports"]] == [names.AGENT_PORT, names.ADMIN_PORT]


def test_uninstalling_leaves_data_and_walls():
    objects = render(FULL)
    kept = {
        (each["kind"], each["metadata"]["name"])
        for each in objects
        if each["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
    }
    for kind in ("Namespace", "PersistentVolume", "Secret"):
        assert {(kind, each["metadata"]["name"]) for each in of(objects, kind)} <= kept, kind
    assert ("NetworkPolicy", "default-deny") in kept
    assert ("NetworkPolicy", "class-gateway") not in kept


def test_namespaces_say_what_they_are_for():
    labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in of(render(FULL), "Namespace")}
    roles = {name: each[names.ROLE] for name, each in labels.items()}
    assert roles == {
        "orchestrate-grader": "grader",
        "orchestrate-drivers-search": "drivers",
        "ads-eval": "drivers",
        "orchestrate-grading": "grading",
        **dict.fromkeys(AGENTS[:3], "trials"),
    }
    level = "pod-security.kubernetes.io/enforce"
    assert {name for name, each in labels.items() if each[level] != "restricted"} == {"orchestrate-trials-root"}


def test_images_of_agents_begin_with_whole_names():
    (namespace,) = of(render(FULL), "Namespace", "orchestrate-trials-0")
    prefixes = namespace["metadata"]["annotations"][names.IMAGE_PREFIXES].split()
    assert "registry.example/tasks/" in prefixes
    assert "registry.example/orchestrate-pod:" in prefixes
    assert "registry.example:5000/python@" in prefixes
    assert all(each.endswith((":", "@", "/")) for each in prefixes)


def test_three_namespaces_of_an_admin_are_enough():
    objects = render(MERGED)
    assert not of(objects, "Namespace")
    assert namespaces(objects) == {SYSTEM, "eval-agents", "eval-drivers"}
    assert not [
        each for each in objects if each["kind"] in ("ValidatingAdmissionPolicy", "PriorityClass", "ClusterRole")
    ]


def test_the_small_values_fit_on_two_processors():
    values = {**NEEDED, "store": {"bundled": {"enabled": True}}}
    objects = render(values, "--values", str(CHART / "values-small.yaml"))
    millis = 0
    for spec in pods(objects).values():
        for container in spec["containers"]:
            cpu = str(container["resources"]["requests"].get("cpu", "0m"))
            millis += int(cpu.removesuffix("m")) if cpu.endswith("m") else int(cpu) * 1000
    assert 0 < millis < 1300


@pytest.mark.parametrize(
    ("said", "version", "mounts"),
    [(None, "1.34.9", False), (None, "1.35.0-eks.1", True), (True, "1.34.9", True), (False, "1.37.0", False)],
)
def test_images_are_mounted_where_the_cluster_can(said: bool | None, version: str, mounts: bool) -> None:
    objects = render({**FULL, "trials": {**FULL["trials"], "imageVolumes": said}}, "--kube-version", version)
    config = only(objects, "ConfigMap", "orchestrate-driver", "ads-eval")["data"]["orchestrate.toml"]
    assert f"image_volumes = {str(mounts).lower()}\n" in config
    policy = only(objects, "ValidatingAdmissionPolicy", "orchestrate-pods")["spec"]["validations"]
    [rule] = [each["expression"] for each in policy if "@sha256:" in each["expression"]]
    assert ("in [] &&" in rule) is not mounts
    assert ("'orchestrate-trials-root'" in rule) is mounts
    assert "orchestrate-grading" not in rule
