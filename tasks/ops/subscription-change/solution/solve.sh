#!/bin/sh
set -e
say() {
  python3 -c 'import json, os, sys, urllib.request as u
where, token = os.environ["ORCHESTRATE_GATEWAY"] + "/v1/conversation/next", os.environ["ORCHESTRATE_TOKEN"]
turn = json.dumps({"message": sys.argv[1]}).encode()
print(u.urlopen(u.Request(where, turn, {"Authorization": "Bearer " + token})).read().decode())' "$1"
}
call() {
  python3 -c 'import os, sys, urllib.error as e, urllib.request as u
where, token = os.environ["ORCHESTRATE_GATEWAY"] + "/tools/" + sys.argv[1], os.environ["ORCHESTRATE_TOKEN"]
try:
    print(u.urlopen(u.Request(where, sys.argv[2].encode(), {"Authorization": "Bearer " + token})).read().decode())
except e.HTTPError as error:
    print(error.read().decode())
    sys.exit(1)' "$1" "$2"
}
call find_subscriptions '{"text": "arbor"}'
call list_plans '{}'
say 'Gladly. How many seats do you need?'
say '18 seats need the plan Plus for 99.00 euros a month from 1 July on. Do you agree?'
call change_subscription '{"subscription": "s-302", "plan": "plus", "seats": 18, "on_day": "2026-07-01"}'
cat > /output/final.json <<'JSON'
{"status": "completed", "message": "Arbor Studios Ltd has the plan Plus with 18 seats from 1 July 2026 on, for 99.00 EUR a month."}
JSON
