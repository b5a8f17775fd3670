#!/bin/sh
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
call list_events '{"person": "ann", "day": "2026-06-10"}'
call list_events '{"person": "ann", "day": "2026-06-11"}'
call list_events '{"person": "raj", "day": "2026-06-11"}'
call list_events '{"person": "zoe", "day": "2026-06-11"}'
call list_events '{"person": "ann", "day": "2026-06-12"}'
call list_events '{"person": "raj", "day": "2026-06-12"}'
call list_events '{"person": "zoe", "day": "2026-06-12"}'
call move_event '{"event": "e01", "starts": "2026-06-12T12:00:00Z"}'
echo 2026-06-12T12:00:00Z > answer.txt
cat > /output/final.json <<'JSON'
{"status": "completed", "message": "The pricing review is on 12 June at 12:00 UTC."}
JSON
