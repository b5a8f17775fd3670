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
call get_order '{"order_id": "O-7173"}' || true
call find_orders '{"text": "jonas.berg"}'
cat > /output/final.json <<'JSON'
{"status": "declined", "message": "There is no order O-7173, so nothing was refunded. The customer has to check the number.", "escalation": {"order": "O-7173", "reason": "unknown_order"}}
JSON
