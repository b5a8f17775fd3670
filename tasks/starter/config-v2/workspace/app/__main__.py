"""Show what was read."""

import sys

from .settings import load


def main(path):
    service, upstreams, limits = load(path)
    print(f"{service['name']} on {service['host']}:{service['port']}")
    for upstream in upstreams:
        state = "on" if upstream.enabled else "off"
        print(f"  {upstream.name} {upstream.scheme}://{upstream.host}:{upstream.port} weight {upstream.weight} {state}")
    print(f"  at most {limits['message_bytes']} bytes a message")


main(sys.argv[1])
