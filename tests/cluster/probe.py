"""Runs in a pod, from its first moment on: tries each target again and again, and prints what came of it. Standard library only.

``python3 -I -S -c TEXT JSON``, with ``{"rounds": N, "seconds": s, "tcp": {NAME: [HOST, PORT]}, "udp": {NAME: [HOST, PORT]}}``.
Prints ``{NAME: [tries, successes, refusals]}``. For UDP, an answer is a success: what is sent is a question to a name server.
"""

import errno
import json
import selectors
import socket
import sys
import time

QUESTION = (
    bytes.fromhex("1234 0100 0001 0000 0000 0000 0a")
    + b"kubernetes"
    + bytes.fromhex("07 64656661756c74 03 737663 07 636c7573746572 05 6c6f63616c 00 0001 0001")
)


def start(kind, where):
    """Send the first packet. Returns the socket, or the error it met at once."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    made.setblocking(False)
    met = made.connect_ex(tuple(where))
    if met not in (0, errno.EINPROGRESS):
        made.close()
        return met
    if kind == "udp":
        try:
            made.send(QUESTION)
        except OSError as error:
            made.close()
            return error.errno
    return made


def came(kind, tried):
    """What a socket that became ready met: 0 is success."""
    if kind == "tcp":
        return tried.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    try:
        return 0 if tried.recv(512) else errno.ECONNREFUSED
    except OSError as error:
        return error.errno


def one_round(targets, seconds, counts):
    """Try all of them at the same time."""
    with selectors.DefaultSelector() as waiting:
        for name, (kind, where) in targets.items():
            counts[name][0] += 1
            made = start(kind, where)
            if isinstance(made, int):
                counts[name][2] += made == errno.ECONNREFUSED
            else:
                waiting.register(made, selectors.EVENT_WRITE if kind == "tcp" else selectors.EVENT_READ, (name, kind))
        end = time.monotonic() + seconds
        while waiting.get_map() and time.monotonic() < end:
            for key, _ in waiting.select(max(0, end - time.monotonic())):
                name, kind = key.data
                met = came(kind, key.fileobj)
                counts[name][1] += met == 0
                counts[name][2] += met == errno.ECONNREFUSED
                waiting.unregister(key.fileobj)
                key.fileobj.close()
        for key in list(waiting.get_map().values()):
            key.fileobj.close()


def main(order):
    """Do all rounds."""
    targets = {name: (kind, where) for kind in ("tcp", "udp") for name, where in order.get(kind, {}).items()}
    counts = {name: [0, 0, 0] for name in targets}
    for _ in range(order["rounds"]):
        one_round(targets, order["seconds"], counts)
    print(json.dumps(counts))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
