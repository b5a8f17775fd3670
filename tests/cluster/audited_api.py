"""A second API server of the test cluster with an audit log, on a port of its own. The first one is not touched."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import urllib3
from installed_world import Release, ask, get, until

UNITS = Path("/run/kube-node/units.json")
PORT = 6444
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True)
class Audited:
    """The server, and what it has written."""

    log: Path

    def requests(self, user: str) -> list[dict[str, Any]]:
        """Return what a user has asked, each request once."""
        events = [json.loads(line) for line in self.log.read_text().splitlines() if line]
        found = {event["auditID"]: event for event in events if event["user"]["username"] == user}
        return list(found.values())


@contextlib.contextmanager
def audited(folder: Path) -> Iterator[Audited]:
    """Start it as the first one was started. Skips where that is not known."""
    if not UNITS.exists():
        pytest.skip(f"the test cluster's units are not in {UNITS}")
    command = next(unit["argv"] for unit in json.loads(UNITS.read_text()) if unit["name"] == "kube-apiserver")
    policy, log = folder / "policy.json", folder / "audit.log"
    policy.write_text(json.dumps(POLICY))
    log.touch()
    own = [each for each in command if not each.startswith(("--secure-port=", "--endpoint-reconciler-type="))]
    own += [f"--secure-port={PORT}", "--endpoint-reconciler-type=none", f"--audit-policy-file={policy}"]
    with (folder / "apiserver.log").open("wb") as errors:
        server = subprocess.Popen([*own, f"--audit-log-path={log}"], stdout=errors, stderr=errors)
        try:
            authority = next(each.partition("=")[2] for each in command if each.startswith("--client-ca-file="))
            until(lambda: _ready(authority), "the second API server is ready")
            yield Audited(log)
        finally:
            server.terminate()
            server.wait(60)


def _ready(authority: str) -> bool:
    with contextlib.suppress(urllib3.exceptions.HTTPError), urllib3.PoolManager(ca_certs=authority) as pool:
        return pool.request("GET", f"https://127.0.0.1:{PORT}/readyz", retries=False, timeout=2).status == 200
    return False


def kubeconfig_of_driver(release: Release, folder: Path) -> Path:
    """Write a kubeconfig with which the driver's account speaks to the second server."""
    path = f"/api/v1/namespaces/{release.drivers}/serviceaccounts/driver/token"
    token = ask("POST", path, {"spec": {"expirationSeconds": 3600}}).body["status"]["token"]
    authority = get(f"/api/v1/namespaces/{release.drivers}/configmaps/kube-root-ca.crt")["data"]["ca.crt"]
    encoded = base64.b64encode(authority.encode()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "audited",
        "clusters": [
            {
                "name": "c",
                "cluster": {"server": f"https://127.0.0.1:{PORT}", "certificate-authority-data": encoded},
            }
        ],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "audited", "context": {"cluster": "c", "user": "u"}}],
    }
    file = folder / "kubeconfig.json"
    file.write_text(json.dumps(config))
    return file


def settings_of_driver(release: Release, folder: Path) -> Path:
    """Write the drivers' own settings and tokens for a driver outside of the cluster. Returns the folder to start it in."""
    home = folder / "home"
    home.mkdir()
    text = get(f"/api/v1/namespaces/{release.drivers}/configmaps/orchestrate-driver")["data"]["orchestrate.toml"]
    tokens = get(f"/api/v1/namespaces/{release.drivers}/secrets/orchestrate-driver-tokens")["data"]
    for name, token in tokens.items():
        (home / name).write_bytes(base64.b64decode(token))
    text = text.replace('"/tmp/', f'"{home}/').replace("/etc/orchestrate-tokens", str(home))
    (home / "orchestrate.toml").write_text(text.replace('driver = "job"', 'driver = "here"'))
    return home
