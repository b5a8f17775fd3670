#!/bin/sh
# fails: asked
# Asks what the calendar says, until nobody answers any more.
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
call ask_user '{"question": "When is it?"}'
call ask_user '{"question": "Which Kim do you mean?"}'
call ask_user '{"question": "Is Friday free?"}'
call move_event '{"event": "e06", "starts": "2026-06-12T08:30:00Z"}'
