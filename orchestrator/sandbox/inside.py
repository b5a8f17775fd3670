"""How the inside of a sandbox looks, whatever backend made it: the agent's user, home and PATH, and small generated files."""

from __future__ import annotations

HOME = "/home/agent"
AGENT_ID = 1000
"""User and group id of the agent as it sees itself."""
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
AGENT_USER = f"agent:x:{AGENT_ID}:{AGENT_ID}:agent:{HOME}:/bin/sh\n"
AGENT_GROUP = f"agent:x:{AGENT_ID}:\n"
ETC_FILES = {
    "passwd": f"root:x:0:0:root:/nonexistent:/bin/false\n{AGENT_USER}nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    "group": f"root:x:0:\n{AGENT_GROUP}nogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "resolv.conf": "",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
"""Files of ``/etc``: name to content."""


def is_below(path: str, folder: str) -> bool:
    """Return whether a normal path is a folder or below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
