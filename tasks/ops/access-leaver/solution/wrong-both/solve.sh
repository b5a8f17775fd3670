#!/bin/sh
# fails: left, other_documents, other_grants
# Works through everybody of that name.
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
call give_document '{"document": "d01", "owner": "p04"}'
call give_document '{"document": "d02", "owner": "p04"}'
call give_document '{"document": "d09", "owner": "p04"}'
call give_document '{"document": "d06", "owner": "p08"}'
call give_document '{"document": "d07", "owner": "p08"}'
call revoke_role '{"person": "p01", "role": "reader"}'
call revoke_role '{"person": "p01", "role": "billing_viewer"}'
call revoke_role '{"person": "p07", "role": "reader"}'
call revoke_role '{"person": "p07", "role": "report_viewer"}'
call close_account '{"person": "p01"}'
call close_account '{"person": "p07"}'
call post_message '{"channel": "#people-north", "text": "mira.kovac@north.example has left."}'
