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
call find_people '{"text": "kovac"}'
call list_documents '{"owner": "p01"}'
call give_document '{"document": "d01", "owner": "p04"}'
call give_document '{"document": "d02", "owner": "p04"}'
call give_document '{"document": "d09", "owner": "p04"}'
call revoke_role '{"person": "p01", "role": "reader"}'
call revoke_role '{"person": "p01", "role": "billing_viewer"}'
call close_account '{"person": "p01"}'
call post_message '{"channel": "#people-north", "text": "mira.kovac@north.example has left: documents are with Dan Petrescu, roles and account are gone."}'
cat > /output/final.json <<'JSON'
{"status": "completed", "message": "Mira Kovac (north) is off-boarded."}
JSON
