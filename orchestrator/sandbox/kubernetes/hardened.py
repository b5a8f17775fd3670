"""What all pods that we make have in common, whoever runs in them: no identity, no name service, no privileges. One home for it."""

from __future__ import annotations

from typing import Any

POD: dict[str, Any] = {
    "restartPolicy": "Never",
    "serviceAccountName": "default",
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "shareProcessNamespace": False,
    "dnsPolicy": "None",
    "dnsConfig": {"nameservers": ["127.0.0.1"]},
}
"""Fields of a pod."""


def container_security(user: int, *, writable_root: bool = False, capabilities: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the security context of a container that runs as this user and group; root keeps only these capabilities."""
    allowed: dict[str, list[str]] = {"drop": ["ALL"]}
    if capabilities:
        allowed["add"] = list(capabilities)
    return {
        **user_security(user),
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": not writable_root,
        "capabilities": allowed,
    }


def pod_security(user: int) -> dict[str, Any]:
    """Return the security context of a pod whose volumes belong to this user's group."""
    return {**user_security(user), "fsGroup": user}


def user_security(user: int) -> dict[str, Any]:
    """Return what pods and containers both say."""
    return {
        "runAsUser": user,
        "runAsGroup": user,
        "runAsNonRoot": user != 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def from_annotation(name: str, annotation: str) -> dict[str, Any]:
    """Return a variable whose value is an annotation of the pod itself."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}}
