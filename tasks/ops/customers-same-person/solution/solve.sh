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
call list_customers '{"shop": "shop-de"}'
call merge_customers '{"gone": "c02", "kept": "c01"}'
call merge_customers '{"gone": "c06", "kept": "c05"}'
call merge_customers '{"gone": "c07", "kept": "c05"}'
cat > /output/final.json <<'JSON'
{"status": "completed", "message": "Three duplicates are merged: c02 into c01, c06 and c07 into c05."}
JSON
