"""The table ``[kubernetes]``: where the parts of an installed chart are, and what trials' pods look like."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from orchestrator.settings.part import ADDRESS, Part

NAMESPACE = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
ENDPOINT = r"^([0-9A-Za-z.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$"

Name = Annotated[str, StringConstraints(pattern=NAMESPACE)]
Address = Annotated[str, StringConstraints(pattern=ADDRESS)]
Endpoint = Annotated[str, StringConstraints(pattern=ENDPOINT)]
Size = Annotated[str, StringConstraints(pattern=r"^[0-9]+(Ki|Mi|Gi|Ti|k|M|G|T)?$")]
Text = Annotated[str, StringConstraints(min_length=1)]


class Toleration(Part):
    """A taint that trials' pods bear, in the words of the pod specification."""

    key: str | None = None
    """Key of the taint; every one when absent, with the operator ``Exists``."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Whether the value counts."""
    value: str | None = None
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; every one when absent."""
    tolerationSeconds: int | None = Field(default=None, ge=0)  # noqa: N815 - the name that the cluster gives it
    """How long the effect ``NoExecute`` is borne; for ever when absent."""


class RuntimeClasses(Part):
    """RuntimeClasses of the cluster by what tasks ask for with ``isolation``."""

    gvisor: Name | None = None
    """For ``isolation: gvisor``."""
    vm: Name | None = None
    """For ``isolation: vm``."""


class Kubernetes(Part):
    """Trials as pods of a cluster. The chart writes this table for the driver; outside of the cluster hardly any of it is needed."""

    context: str | None = Field(default=None, min_length=1)
    """Context of the kubeconfig; its current one when absent."""
    driver: Literal["job", "here"] = "job"
    """Where runs are driven: by a Job in ``drivers_namespace``, or by this process, which then has to reach gateways and grader."""
    drivers_namespace: Name = "orchestrate-drivers-default"
    """Namespace of the drivers' Jobs, with the ConfigMap ``orchestrate-driver``."""
    namespaces: tuple[Name, ...] = ()
    """Namespaces of trials' pods. A run's Lease is in the first."""
    root_namespaces: tuple[Name, ...] = ()
    """Namespaces for tasks with ``user: root``; without one they are refused."""
    namespace_pods: int = Field(default=3000, ge=1)
    """Most pods of ours in one namespace."""
    pod_image: str | None = Field(default=None, min_length=1)
    """Image with our own programs of a pod."""
    task_image: str | None = Field(default=None, min_length=1)
    """Image for tasks that name none."""
    gateways: tuple[Address, ...] = ()
    """Addresses of the gateways as the driver reaches them: their admin ports."""
    agent_gateways: tuple[Endpoint, ...] = ()
    """``HOST:PORT`` of the gateways as pods reach them, in the same order."""
    relay: Address | None = None
    """Address of the relay, as pods reach it."""
    grader: Address | None = None
    """Address of the grader, as the driver reaches it."""
    grader_data: Size | None = None
    """Room that the grader has for what agents leave; a task that may leave more is refused. Absent: any."""
    grader_scratch: Size | None = None
    """Room of the grader's checker; as above."""
    gateway_token_file: Path | None = None
    """File with the driver's token for the gateways; relative to ``orchestrate.toml``."""
    grader_token_file: Path | None = None
    """File with the driver's token for the grader; relative to ``orchestrate.toml``."""
    image_volumes: bool = False
    """Whether the cluster mounts images as volumes, for agents with ``placement: mounted``; refused where not."""
    task_egress: bool = False
    """Whether the gateways may reach other hosts for tasks that list them (``environment.network``); refused where not."""
    denied: tuple[Endpoint, ...] = ()
    """More ``HOST:PORT`` that no pod may reach: no trial starts where one answers."""
    runtime_classes: RuntimeClasses = RuntimeClasses()
    """RuntimeClasses by ``isolation``; without one such tasks are refused."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels of the nodes that trials may run on."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints that trials' pods bear."""
    topology_spread: str | None = Field(default=None, min_length=1)
    """Node label over whose values pods are spread, as far as there is room, for example ``kubernetes.io/hostname``."""
    pull_secrets: tuple[Text, ...] = ()
    """Secrets for pulling images, in the namespaces of the pods."""
    queue: str | None = Field(default=None, min_length=1)
    """Queue of Kueue."""
    scheduler_name: str | None = Field(default=None, min_length=1)
    """Scheduler for trials' pods; the cluster's own when absent."""
    priority_class: str | None = Field(default=None, min_length=1)
    """PriorityClass of trials' pods."""
    cpu_request_share: float = Field(default=0.1, gt=0, le=1)
    """CPU request as a share of a task's ``cpu``, which is the limit."""
    memory_request_share: float = Field(default=1.0, gt=0, le=1)
    """Memory request as a share of a task's ``memory``, which is the limit."""
    creates_per_second: float = Field(default=10, gt=0, le=1000)
    """Most pods that are created in a second."""
    freeze_seconds: int = Field(default=60, ge=5, le=3600)
    """How long a pod may take to hand over its state."""
    pull_seconds: int = Field(default=600, ge=1, le=86400)
    """How long a pod may wait for a node and for its images."""
    absence_seconds: int = Field(default=3600, ge=60, le=7 * 86400)
    """How long a pod waits for a driver that is gone before the cluster ends it."""

    @model_validator(mode="after")
    def _paired(self) -> Kubernetes:
        if len(self.gateways) != len(self.agent_gateways):
            msg = (
                f"gateways has {len(self.gateways)} entries and agent_gateways has {len(self.agent_gateways)}: "
                "give both addresses of each gateway, in the same order"
            )
            raise ValueError(msg)
        return self

    @property
    def unreachable(self) -> list[str]:
        """Names of the settings that a driver needs and that are absent."""
        needed = (
            "namespaces",
            "pod_image",
            "gateways",
            "agent_gateways",
            "relay",
            "grader",
            "gateway_token_file",
            "grader_token_file",
        )
        return [name for name in needed if not getattr(self, name)]
