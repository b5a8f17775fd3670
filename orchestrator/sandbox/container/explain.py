"""What to change when the engine cannot make containers here."""

from __future__ import annotations

from orchestrator.sandbox.container.engine import Engine

_REASONS = (
    (
        ("setrlimit", "rlimit"),
        (
            "the engine's runtime may not raise resource limits, as this root has no CAP_SYS_RESOURCE: take default_ulimits out of "
            "containers.conf or daemon.json, or grant the capability"
        ),
    ),
    (
        ("cannot connect to the docker daemon", "is the docker daemon running", "cannot connect to podman"),
        "the engine's daemon does not answer: start it (systemctl start docker), or install podman, which needs none",
    ),
    (
        ("sd-bus", "systemd cgroup", "dbus", "interactive authentication"),
        'there is no systemd to ask for control groups: set container_engine = "podman --cgroup-manager=cgroupfs" in orchestrate.toml',
    ),
    (
        ("cgroups in hybrid mode", "unknown version specified", "cgroup v1", "mode not supported"),
        (
            "the runtime refuses this machine's control groups: install runc and set "
            'container_engine = "podman --runtime runc" in orchestrate.toml'
        ),
    ),
    (
        ("did not limit the container", "no such file or directory: /sys/fs/cgroup", "cgroup"),
        "limits need control groups that the engine can make: mount /sys/fs/cgroup writable, and delegate memory, pids and cpu to it",
    ),
    (
        ("operation not permitted", "permission denied"),
        (
            "this root lacks rights that containers need (CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_SETPCAP), as in most containers: grant them, "
            "or use --backend bubblewrap"
        ),
    ),
    (
        ("unknown flag", "unknown shorthand"),
        "this version of the engine lacks options that are needed; Podman 4.3 and Docker 20.10 are known to have them",
    ),
    (
        ("no space left",),
        "the disk of the engine's storage is full: remove images or containers (podman system prune)",
    ),
)


def explain(engine: Engine, message: str) -> str:
    """Return a failure of the engine with what to change, where the reason is known."""
    low = message.lower()
    reason = next((reason for words, reason in _REASONS if any(word in low for word in words)), None)
    said = f"{reason}. What failed: {message}" if reason else message
    return f"containers do not work on this machine with {engine}: {said}"
