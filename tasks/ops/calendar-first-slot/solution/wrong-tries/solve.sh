#!/bin/sh
# fails: moved_once
# Moves it until nobody is busy, and tells everybody twice.
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
call move_event '{"event": "e01", "starts": "2026-06-11T12:00:00Z"}' || true
call move_event '{"event": "e01", "starts": "2026-06-11T14:00:00Z"}'
call move_event '{"event": "e01", "starts": "2026-06-12T12:00:00Z"}'
echo 2026-06-12T12:00:00Z > answer.txt
