"""The cluster as a run would find it, as far as this identity may look. Everything that is made is removed again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from orchestrator import __version__, wiring
from orchestrator.driver.kubernetes import doctor_pods
from orchestrator.driver.kubernetes.services import look_at, read_token
from orchestrator.driver.kubernetes.sight import pod_trouble
from orchestrator.driver.kubernetes.site import is_remote, open_site
from orchestrator.driver.place import KUBERNETES
from orchestrator.sandbox.kubernetes.errors import ApiError
from orchestrator.sandbox.kubernetes.resources import CONFIGMAPS, EVENTS, JOBS, LEASES, PODS, Resource
from orchestrator.storage.health import Fact

if TYPE_CHECKING:
    from orchestrator.sandbox.kubernetes.api import Api
    from orchestrator.settings import Kubernetes, Settings

_OLDEST = (1, 30)
"""The first version with ValidatingAdmissionPolicy as a finished feature."""
_SKEW_SECONDS = 30.0
"""A signed request to a store is refused at some minutes; what is compared is exact to a second."""
_LOOK_SECONDS = 1.0
_POD_SECONDS = 150.0
_METADATA = "169.254.169.254:80"
SECRETS = Resource("", "v1", "secrets", "Secret")


@dataclass(frozen=True)
class _Seat:
    """How the cluster is looked at."""

    api: Api
    table: Kubernetes
    """The drivers' own."""
    remote: bool
    """Whether runs are driven by a Job, with another identity than this one."""


@contextlib.asynccontextmanager
async def _seated(settings: Settings) -> AsyncIterator[_Seat]:
    if not is_remote(settings, KUBERNETES):
        async with wiring.cluster_api(settings.kubernetes) as api:
            yield _Seat(api, settings.kubernetes, False)
        return
    async with open_site(settings) as site:
        yield _Seat(site.api, site.settings.kubernetes, True)


async def cluster(settings: Settings) -> Sequence[Fact]:
    """See whether the API server answers, which version it has, and whether its clock is ours."""
    async with wiring.cluster_api(settings.kubernetes) as api:
        before = time.time()
        version = await api.version()
        passed = time.time() - before
        said = f"Kubernetes {version.git}, {api.connection.where}"
        facts = [Fact(state="ok", said=said)]
        if (version.major, version.minor) < _OLDEST:
            advice = f"use {_OLDEST[0]}.{_OLDEST[1]} or newer: the chart's admission policy needs it"
            facts = [Fact(state="problem", said=said, advice=advice)]
        if version.date is not None:
            facts.append(_clock(version.date.timestamp() - before, passed))
        return facts


def _clock(ahead: float, passed: float) -> Fact:
    """Say how far the server's clock is from ours, which is known to a second and the time that the answer took."""
    off = max(0.0, abs(ahead) - passed - 1.0)
    if off <= _SKEW_SECONDS:
        return Fact(
            state="ok", said="its clock is ours, to the second" if off <= 1 else f"its clock is {off:.0f} s off"
        )
    advice = "set both clocks (NTP): certificates, tokens and signed requests to stores go by them"
    return Fact(state="problem", said=f"its clock and this one differ by {off:.0f} s", advice=advice)


async def chart(settings: Settings) -> Sequence[Fact]:
    """See whether the chart is there and of this version, or, for a driver, whether its settings say where everything is."""
    if is_remote(settings, KUBERNETES):
        async with open_site(settings) as site:
            return [Fact(state="ok", said=f"drivers of version {__version__} run in {site.namespace}")]
    missing = settings.kubernetes.unreachable
    if missing:
        names = ", ".join(f"kubernetes.{name}" for name in missing)
        return [
            Fact(state="problem", said=f"not set: {names}", advice="install the chart, which sets them for drivers")
        ]
    for name in ("gateway_token_file", "grader_token_file"):
        read_token(settings.kubernetes, name)
    return [Fact(state="ok", said="the settings say where gateways, relay and grader are, and their tokens are here")]


async def rights(settings: Settings) -> Sequence[Fact]:
    """Ask the cluster what this identity may do, and whether it may do more than is good."""
    async with _seated(settings) as seat:
        wanted, unwanted = _submitter(seat.table) if seat.remote else _driver(seat.table)
        answers = await asyncio.gather(*(_may(seat.api, each) for each in (*wanted, *unwanted)))
    have = dict(zip((*wanted, *unwanted), answers, strict=True))
    lacking = [str(each) for each in wanted if not have[each]]
    too_many = [str(each) for each in unwanted if have[each]]
    facts = []
    if lacking:
        role = "submitter" if seat.remote else "driver"
        advice = f"bind this identity to the Role {role} that the chart makes"
        facts.append(Fact(state="problem", said=f"may not: {', '.join(lacking)}", advice=advice))
    if too_many:
        advice = "use an identity with fewer rights: whoever has these could change a trial's pod or read its secrets"
        facts.append(Fact(state="warning", said=f"may also: {', '.join(too_many)}", advice=advice))
    if not facts:
        who = "submitting, following and stopping" if seat.remote else "a driver"
        facts.append(
            Fact(state="ok", said=f"may do what {who} needs, and neither run commands in pods nor read Secrets")
        )
    return facts


@dataclass(frozen=True)
class _Right:
    verb: str
    resource: Resource
    namespace: str
    subresource: str = ""
    name: str = ""

    def __str__(self) -> str:
        what = f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural
        return f"{self.verb} {what} in {self.namespace}"


async def _may(api: Api, right: _Right) -> bool:
    found = await api.allowed(
        right.verb, right.resource, right.namespace, subresource=right.subresource, name=right.name
    )
    return found.allowed


def _driver(table: Kubernetes) -> tuple[list[_Right], list[_Right]]:
    places = (*table.namespaces, *table.root_namespaces)
    wanted = [_Right(verb, PODS, each) for each in places for verb in ("create", "get", "list", "watch", "delete")]
    wanted += [_Right("list", EVENTS, each) for each in places]
    wanted += [_Right(verb, LEASES, table.namespaces[0]) for verb in ("create", "get", "update") if table.namespaces]
    unwanted = [_Right("create", PODS, each, subresource) for each in places for subresource in ("exec", "attach")]
    return wanted, unwanted + [_Right("get", SECRETS, each) for each in places]


def _submitter(table: Kubernetes) -> tuple[list[_Right], list[_Right]]:
    from orchestrator.driver.kubernetes.site import CONFIGMAP

    place = table.drivers_namespace
    wanted = [_Right("get", CONFIGMAPS, place, name=CONFIGMAP)]
    wanted += [_Right(verb, JOBS, place) for verb in ("create", "get", "list", "delete")]
    wanted += [_Right("list", PODS, place), _Right("get", PODS, place, "log"), _Right("list", EVENTS, place)]
    return wanted, [_Right("create", PODS, place, "exec"), _Right("get", SECRETS, place)]


async def services(settings: Settings) -> Sequence[Fact]:
    """Ask gateways and grader for their health and version. They can be reached from where drivers run."""
    import aiohttp

    if is_remote(settings, KUBERNETES):
        return [Fact(state="ok", said="not looked at: drivers reach them, and people need not; `helm test` looks")]
    table = settings.kubernetes
    timeout = aiohttp.ClientTimeout(total=5)
    facts = []
    async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
        token = read_token(table, "gateway_token_file")
        for index, url in enumerate(table.gateways):
            facts.append(await _service(session, f"gateway {index}", url, f"{url.rstrip('/')}/admin/instance", token))
        grader = table.grader or ""
        facts.append(await _service(session, "grader", grader, f"{grader.rstrip('/')}/healthz", ""))
    return facts


async def _service(session: Any, who: str, url: str, about: str, token: str) -> Fact:
    import aiohttp

    health, problem = await look_at(session, url)
    if health is None:
        return Fact(state="problem", said=f"{who} at {url} does not answer: {problem}", advice="look at its pod's log")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        async with session.get(about, headers=headers) as response:
            if response.status in {401, 403}:
                advice = "give driver and service the same Secret"
                return Fact(state="problem", said=f"{who} refuses the driver's token", advice=advice)
            said = json.loads(await response.read())
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        said = {}
    version = str(said.get("version", "")).partition("+")[0] if isinstance(said, dict) else ""
    if version and version != __version__:
        advice = "upgrade the chart, so that all have one version; a gateway is restarted by deleting its pod"
        return Fact(state="warning", said=f"{who} has version {version}, this is {__version__}", advice=advice)
    return Fact(state="ok", said=f"{who} at {url} answers")


async def guards(settings: Settings) -> Sequence[Fact]:
    """Ask for pods that nobody may make, without making any: Pod Security and the admission policy have to refuse each of them."""
    async with _seated(settings) as seat:
        table, facts = seat.table, []
        for namespace in table.namespaces[:1] + table.root_namespaces[:1]:
            if not await _may(seat.api, _Right("create", PODS, namespace)):
                return [
                    Fact(
                        state="ok", said=f"not looked at: this identity makes no pods in {namespace}; `helm test` looks"
                    )
                ]
        for namespace in table.namespaces:
            facts += await _guarded(seat.api, namespace, table)
        return facts


async def _guarded(api: Api, namespace: str, table: Kubernetes) -> list[Fact]:
    taken = await _refusal(api, namespace, doctor_pods.plain_pod(table))
    if taken is not None:
        return [
            Fact(
                state="problem", said=f"{namespace} refuses a trial's pod: {taken}", advice="see its quota and policies"
            )
        ]
    said = await _refusal(api, namespace, doctor_pods.privileged(table))
    facts = []
    if said is None or "PodSecurity" not in str(said):
        advice = f"label the namespace: kubectl label ns {namespace} pod-security.kubernetes.io/enforce=restricted"
        facts.append(Fact(state="problem", said=f"{namespace} has no Pod Security level restricted", advice=advice))
    let = [what for what, pod in doctor_pods.forbidden(table) if await _refusal(api, namespace, pod) is None]
    if let:
        advice = "install the chart's ValidatingAdmissionPolicy with its binding (admission.create)"
        facts.append(Fact(state="problem", said=f"{namespace} takes pods with {', '.join(let)}", advice=advice))
    return facts or [Fact(state="ok", said=f"{namespace} takes a trial's pod, and none with a forbidden field")]


async def _refusal(api: Api, namespace: str, pod: Mapping[str, Any]) -> ApiError | None:
    """Return the words by which the cluster refuses a pod; None: it would take it. Raises ApiError when it says neither."""
    try:
        await api.create(PODS, namespace, pod, dry_run=True)
    except ApiError as error:
        if error.status in {403, 422}:
            return error
        raise
    return None


async def pods(settings: Settings) -> Sequence[Fact]:
    """Make two pods of a trial's shape: what they can reach, how many threads they may have, and whether a full disk ends them."""
    async with _seated(settings) as seat:
        table = seat.table
        if not table.namespaces or not table.pod_image:
            return [
                Fact(state="problem", said="no namespaces or no pod_image in the settings", advice="install the chart")
            ]
        namespace = table.namespaces[0]
        if not await _may(seat.api, _Right("create", PODS, namespace)):
            return [
                Fact(state="ok", said=f"not looked at: this identity makes no pods in {namespace}; `helm test` looks")
            ]
        targets = await _targets(seat)
        found = await asyncio.gather(
            _ended(seat.api, namespace, doctor_pods.looking_pod(table, (*targets.denied, *targets.allowed))),
            _ended(seat.api, namespace, doctor_pods.filling_pod(table)),
        )
    return [*_looked(found[0], targets), *_filled(found[1])]


@dataclass(frozen=True)
class _Targets:
    denied: tuple[str, ...]
    """``IP:PORT`` that no trial's pod may reach, alive as we saw ourselves where that can be."""
    allowed: tuple[str, ...]
    alive: frozenset[str]
    """Those that we reached ourselves."""


async def _targets(seat: _Seat) -> _Targets:
    """Return what the pod tries. Names are resolved here: pods have no DNS."""
    table = seat.table
    api = urlsplit(seat.api.connection.server)
    inner = [_endpoint(url) for url in (*table.gateways, table.grader or "") if url]
    wanted = [f"{api.hostname}:{api.port or 443}", *inner, *table.denied, _METADATA]
    denied = [each for each in [await _resolved(name) for name in wanted] if each]
    allowed = [each for each in [await _resolved(name) for name in table.agent_gateways] if each]
    alive = await asyncio.gather(*(_opens(each) for each in denied))
    there = frozenset(each for each, opens in zip(denied, alive, strict=True) if opens)
    return _Targets(tuple(dict.fromkeys(denied)), tuple(allowed), there)


def _endpoint(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


async def _resolved(endpoint: str) -> str | None:
    host, _, port = endpoint.rpartition(":")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port), type=1)
    except OSError:
        return None
    address = found[0][4][0]
    return f"[{address}]:{port}" if ":" in str(address) else f"{address}:{port}"


async def _opens(endpoint: str) -> bool:
    host, _, port = endpoint.rpartition(":")
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host.strip("[]"), int(port)), 2)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def _ended(api: Api, namespace: str, pod: Mapping[str, Any]) -> dict[str, Any]:
    """Make a pod, return it as it was at its end, or after a while, and remove it in any case. Raises ApiError."""
    name = str(pod["metadata"]["name"])
    made = await api.create(PODS, namespace, pod)
    try:
        until = time.monotonic() + _POD_SECONDS
        while time.monotonic() < until and not _is_over(made):
            await asyncio.sleep(_LOOK_SECONDS)
            made = await api.find(PODS, namespace, name) or {**made, "status": {"phase": "Failed", "reason": "Deleted"}}
        return made
    finally:
        await api.delete(PODS, namespace, name, uid=str(made["metadata"]["uid"]), grace_seconds=0)


def _is_over(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod has ended, or its doctor's container has, or an image cannot be had."""
    status = pod.get("status") or {}
    if status.get("phase") in {"Succeeded", "Failed"}:
        return True
    trouble = pod_trouble(pod)
    return trouble.startswith(("ErrImage", "ImagePull", "InvalidImage", "CreateContainerConfig"))


def _looked(pod: Mapping[str, Any], targets: _Targets) -> list[Fact]:
    """Say what the looking pod found."""
    found = _last_words(pod)
    if found is None:
        said = pod_trouble(pod) or str((pod.get("status") or {}).get("phase"))
        advice = "see that nodes can pull kubernetes.pod_image and kubernetes.task_image, and have room"
        return [Fact(state="problem", said=f"a trial's pod does not start: {said}", advice=advice)]
    facts = [Fact(state="ok", said="a trial's pod starts; nodes have the images of pods and of tasks")]
    opened = set(found["opened"])
    if leaks := [each for each in targets.denied if each in opened]:
        advice = "see that the cluster's network plugin enforces NetworkPolicy, and that no other policy allows it"
        facts.append(Fact(state="problem", said=f"a trial's pod reaches {', '.join(leaks)}", advice=advice))
    elif not targets.alive:
        advice = "run `helm test`: from there some of them can be seen alive"
        said = "a trial's pod reaches nothing that it may not, and nothing of that was seen alive from here"
        facts.append(Fact(state="warning", said=said, advice=advice))
    else:
        said = f"a trial's pod reaches none of {len(targets.denied)} places that it may not, {len(targets.alive)} of them alive"
        facts.append(Fact(state="ok", said=said))
    if lost := [each for each in targets.allowed if each not in opened]:
        advice = "see the gateway's pods, and the chart's policy for the class gateway"
        facts.append(
            Fact(state="problem", said=f"a trial's pod does not reach the gateway at {', '.join(lost)}", advice=advice)
        )
    facts.append(_threads(int(found["threads"])))
    return facts


def _threads(had: int) -> Fact:
    if had < doctor_pods.THREADS:
        return Fact(state="ok", said=f"a pod may have about {had:,} processes and threads")
    advice = "set podPidsLimit of the kubelets (for example 1024): until then one agent may use up a node's processes for a moment"
    return Fact(state="warning", said=f"a pod may have more than {had:,} processes and threads", advice=advice)


def _last_words(pod: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what the doctor's container left as its termination message."""
    for each in (pod.get("status") or {}).get("containerStatuses") or []:
        message = ((each.get("state") or {}).get("terminated") or {}).get("message", "")
        if each.get("name") == doctor_pods.DOCTOR and message:
            with contextlib.suppress(ValueError):
                found: dict[str, Any] = json.loads(message)
                return found
    return None


def _filled(pod: Mapping[str, Any]) -> list[Fact]:
    status = pod.get("status") or {}
    if status.get("reason") == "Evicted":
        return [Fact(state="ok", said="a pod that fills its disk is ended by the cluster")]
    if (trouble := pod_trouble(pod)) and status.get("phase") != "Running":
        return [Fact(state="warning", said=f"whether a full disk ends a pod was not seen: {trouble}")]
    advice = "see that kubelets enforce emptyDir sizeLimit (localStorageCapacityIsolation)"
    said = f"a pod wrote {doctor_pods.FILLED_MEGABYTES} MB into a volume of 32 MB and was not ended within {_POD_SECONDS:.0f} s"
    return [Fact(state="warning", said=said, advice=advice)]
