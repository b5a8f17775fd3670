#!/bin/sh
# fails: ending, nothing_booked
# Chooses the rule that pleases the customer.
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
call refund_order '{"order_id": "O-7722", "cents": 490, "reason": "late"}'
cat > /output/final.json <<'JSON'
{"status": "completed", "message": "O-7722: the shipping was refunded."}
JSON
