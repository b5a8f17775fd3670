"""How the inside of a sandbox looks, whatever backend made it: the agent's user, home and PATH, and small generated files."""

from __future__ import annotations

HOME = "/home/agent"
AGENT_ID = 1000
"""User and group id of the agent as it sees itself; in containers only where root has no users to spare."""
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


def etc_files(user: int) -> dict[str, str]:
    """Return files of ``/etc``, name to content, where the agent has this user and group id."""
    agent = f"agent:x:{user}:{user}:agent:{HOME}:/bin/sh\n"
    return {
        "passwd": f"root:x:0:0:root:/nonexistent:/bin/false\n{agent}nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
        "group": f"root:x:0:\nagent:x:{user}:\nnogroup:x:65534:\n",
        "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
        "resolv.conf": "",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }


def is_below(path: str, folder: str) -> bool:
    """Return whether a normal path is a folder or below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
