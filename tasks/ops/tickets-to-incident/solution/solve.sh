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
again() {
  for try in 1 2 3 4; do
    call "$1" "$2" && return
  done
  return 1
}
again link_ticket '{"ticket": "T-4103", "incident": "INC-88"}'
again link_ticket '{"ticket": "T-4107", "incident": "INC-88"}'
again link_ticket '{"ticket": "T-4108", "incident": "INC-88"}'
again link_ticket '{"ticket": "T-4112", "incident": "INC-88"}'
again link_ticket '{"ticket": "T-4115", "incident": "INC-88"}'
again link_ticket '{"ticket": "T-4119", "incident": "INC-88"}'
again set_state '{"ticket": "T-4103", "state": "waiting"}'
again set_state '{"ticket": "T-4107", "state": "waiting"}'
again set_state '{"ticket": "T-4108", "state": "waiting"}'
again set_state '{"ticket": "T-4112", "state": "waiting"}'
again set_state '{"ticket": "T-4115", "state": "waiting"}'
again set_state '{"ticket": "T-4119", "state": "waiting"}'
call post_message '{"channel": "#incidents", "text": "INC-88: 6 tickets are linked and waiting."}'
cat > /output/final.json <<'JSON'
{"status": "completed", "message": "6 tickets are linked to INC-88."}
JSON
