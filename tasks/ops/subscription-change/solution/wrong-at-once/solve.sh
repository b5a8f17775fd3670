#!/bin/sh
# fails: changed
# Changes it tomorrow.
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
call ask_user '{"question": "How many seats do you need?"}'
call ask_user '{"question": "Plus costs 99.00 euros a month. Agreed?"}'
call change_subscription '{"subscription": "s-302", "plan": "plus", "seats": 18, "on_day": "2026-06-18"}'
