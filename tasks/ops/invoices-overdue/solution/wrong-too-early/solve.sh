#!/bin/sh
# fails: done, reminded, not_due
# Reminds on the day on which invoices are due.
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
call send_reminder '{"invoice": "i01"}'
call send_reminder '{"invoice": "i02"}'
call send_reminder '{"invoice": "i04"}'
call send_reminder '{"invoice": "i06"}'
call send_reminder '{"invoice": "i07"}'
call send_reminder '{"invoice": "i09"}'
call send_reminder '{"invoice": "i12"}'
call charge_fee '{"invoice": "i09", "cents": 500}'
