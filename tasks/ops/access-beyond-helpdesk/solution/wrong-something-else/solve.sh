#!/bin/sh
# fails: ending, nothing_granted
# Gives a role that can be given, so that something has happened.
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
call grant_role '{"person": "p04", "role": "editor"}'
cat > /output/final.json <<'JSON'
{"status": "completed", "message": "Dan Petrescu is an editor now."}
JSON
