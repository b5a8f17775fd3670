#!/bin/sh
# fails: moved, answer, other_events
# Moves the draft.
set -e
call() {
  python3 -c 'import os, sys, urllib.error as e, urllib.request as u
where, token = os.environ["ORCHESTRATE_GATEWAY"] + "/tools/" + sys.argv[1], os.environ["ORCHESTRATE_TOKEN"]
try:
    print(u.urlopen(u.Request(where, sys.argv[2].encode(), {"Authorization": "Bearer " + token})).read().decode())
except e.HTTPError as error:
    print(error.read().decode())
    sys.exit(1)' "$1" "$2"
}
call move_event '{"event": "e12", "starts": "2026-06-12T08:00:00Z"}'
echo 2026-06-12T08:00:00Z > answer.txt
