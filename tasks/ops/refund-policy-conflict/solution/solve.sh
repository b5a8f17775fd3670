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
call get_order '{"order_id": "O-7722"}'
cat > /output/final.json <<'JSON'
{"status": "declined", "message": "O-7722: R3 refunds late shipping of any item, S2 never refunds it below 50.00, and S4 lets neither side decide. Nothing was booked.", "escalation": {"rules": "R3 S2"}}
JSON
