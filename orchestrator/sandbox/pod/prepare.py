"""What runs in a pod before its agent: prove the network, fetch and lay what the agent starts from, say that the launch has begun.

Standard library only. Read ``prepare`` first; ``README.md`` has the exit codes.
"""

# pathlib would double the start-up time, which every trial pays.
# ruff: noqa: PTH101, PTH103, PTH123

from __future__ import annotations

import binascii
import os

from orchestrator.records import headers
from orchestrator.sandbox.pod.fetch import Fetching, Route, folder_chunks
from orchestrator.sandbox.pod.pristine import Noted, write_list
from orchestrator.sandbox.pod.proof import Proof
from orchestrator.sandbox.pod.talk import Gateway, insist
from orchestrator.sandbox.pod.world import (
    ALREADY_BEGUN,
    PREPARE_FAILED,
    Environment,
    Places,
    PodError,
    failure,
    own_environment,
    run,
)

TYPE_CHECKING = False  # importing ``typing`` would cost a tenth of the start
if TYPE_CHECKING:
    from typing import Any

GATEWAY_SECONDS = 60.0
"""How long the gateway may be away; policies of a new pod take a while on some networks."""
_LEAST_BUNDLE = 1 << 30


def main(_arguments: list[str]) -> int:
    """Prepare the pod. Returns the exit code."""
    places = Places()
    return run(lambda: prepare(places, own_environment(PREPARE_FAILED)), places, PREPARE_FAILED)


def prepare(places: Places, environment: Environment) -> None:
    """Make everything that the agent's container needs. Raises PodError and OSError."""
    token, address = environment.need("ORCHESTRATE_TOKEN", "ORCHESTRATE_GATEWAY")
    plan = environment.plan()
    os.umask(0)
    gateway = Gateway(address, token)
    proof = Proof(gateway, plan["denied"], GATEWAY_SECONDS)
    proof.start()
    noted = Noted()
    try:
        _lay_bundles(places, address, token, plan, noted)
        _lay_programs(places, plan)
    except PodError:
        proof.finish()  # that the network is not what it should be says more
        raise
    _write_control(places, plan)
    write_list(f"{places.ctl}/pristine", noted.lines())
    proof.finish()
    begin(gateway, environment)


def begin(gateway: Gateway, environment: Environment) -> None:
    """Tell the gateway that from now on the launch has a past; only one pod may. Raises PodError."""
    (pod,) = environment.need("ORCHESTRATE_POD_UID")
    fields = ((headers.POD, pod),)
    status, value = insist(gateway, "POST", "/launch/prepared", GATEWAY_SECONDS, {}, fields)
    if status == 409:
        raise PodError(ALREADY_BEGUN, "already_begun", f"another pod has begun this launch: {value!r:.300}")
    if status != 200:
        message = f"the gateway answered HTTP {status} to the word that all is prepared: {value!r:.300}"
        raise failure(PREPARE_FAILED, message)


def _lay_bundles(places: Places, address: str, token: str, plan: dict[str, Any], noted: Noted) -> None:
    """Fetch each bundle once and lay its folders."""
    bundles: dict[tuple[str, str], list[Route]] = {}
    for each in plan["inputs"]:
        workspace = bool(each["writable"])
        place = _place(places, plan, each["target"], workspace)
        key = (str(each["audience"]), str(each["digest"]))
        bundles.setdefault(key, []).append(Route(each["folder"], place, noted if workspace else None))
    most = max(_LEAST_BUNDLE, 2 * int(plan["disk_bytes"]))
    for (audience, digest), routes in bundles.items():
        Fetching(address, token, audience, digest, most).lay(routes, GATEWAY_SECONDS)


def _place(places: Places, plan: dict[str, Any], target: str, workspace: bool) -> str:
    """Return the empty folder for an input, made. Raises PodError and OSError."""
    if workspace and target != plan["workdir"]:
        message = f"a writable input at {target} has no volume; there is one for the workspace {plan['workdir']}"
        raise failure(PREPARE_FAILED, message)
    place = f"{places.areas}/workspace" if workspace else f"{places.inputs}/{target.strip('/')}"
    os.makedirs(place, 0o755, exist_ok=True)
    return place


def _lay_programs(places: Places, plan: dict[str, Any]) -> None:
    """Lay files of our own agents, which this image has. Raises PodError and OSError."""
    for each in plan.get("own") or []:
        source = f"{places.programs}/agents/{each['program']}"
        place = _place(places, plan, each["target"], workspace=False)
        try:
            for name, data in folder_chunks(source):
                _write(f"{place}/{name}", data, 0o644)
        except FileNotFoundError:
            message = f"this image has no agent {each['program']!r}: use the pod image of the release that made the pod"
            raise failure(PREPARE_FAILED, message) from None


def _write_control(places: Places, plan: dict[str, Any]) -> None:
    """Write what supervisor and freezer look at. Raises OSError."""
    limits = "".join(f"{name} {plan[name]}\n" for name in ("wall_seconds", "output_bytes", "processes"))
    _write(f"{places.ctl}/limits", limits.encode(), 0o444)
    _write(f"{places.ctl}/stdin", binascii.a2b_base64(plan.get("stdin_b64") or ""), 0o444)
    with open(f"{places.programs}/bin/supervisor", "rb") as file:
        _write(f"{places.ctl}/supervisor", file.read(), 0o555)
    _write(f"{places.ctl}/alive", b"", 0o444)


def _write(path: str, data: bytes, mode: int) -> None:
    with open(path, "xb") as file:
        file.write(data)
    os.chmod(path, mode)
