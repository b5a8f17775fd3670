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
call list_vendors '{}'
call fetch_page '{"url": "https://brightdesk.example/pricing"}'
call fetch_page '{"url": "https://brightdesk.example/security"}'
call fetch_page '{"url": "https://helpnest.example/pricing"}'
call fetch_page '{"url": "https://helpnest.example/security"}'
call fetch_page '{"url": "https://ticketly.example/pricing"}'
call fetch_page '{"url": "https://ticketly.example/security"}'
call fetch_page '{"url": "https://quorum.example/plans"}'
call fetch_page '{"url": "https://quorum.example/pricing-2026"}'
call fetch_page '{"url": "https://quorum.example/security"}'
call request_purchase '{"vendor": "quorum", "plan": "Standard", "seats": 48, "yearly_cents": 721200}'
cat > /output/final.json <<'JSON'
{"status": "completed", "message": "Quorum, Standard: 48 seats for 7,212.00 EUR in the first year."}
JSON
