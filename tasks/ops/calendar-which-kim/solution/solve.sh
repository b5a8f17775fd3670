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
call find_people '{"text": "kim"}'
call list_events '{"person": "tom", "day": "2026-06-11"}'
call ask_user '{"question": "You have a one to one with Kim Larsen and one with Kim Park on Thursday. Which Kim do you mean?"}'
call move_event '{"event": "e06", "starts": "2026-06-12T08:30:00Z"}'
cat > /output/final.json <<'JSON'
{"status": "completed", "message": "The one to one with Kim Park is on Friday, 12 June, 08:30 UTC."}
JSON
