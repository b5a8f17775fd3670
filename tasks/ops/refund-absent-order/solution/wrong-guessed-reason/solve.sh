#!/bin/sh
# fails: ending
# Declines for a reason that it did not look up.
set -e
cat > /output/final.json <<'JSON'
{"status": "declined", "message": "The mail about O-7173 is not from the customer's address.", "escalation": {"order": "O-7173", "reason": "not_the_customer"}}
JSON
