#!/bin/sh
# fails: ending
# Chooses the other one.
set -e
cat > /output/final.json <<'JSON'
{"status": "declined", "message": "O-7722: shipping below 50.00 is never refunded.", "escalation": {"rules": "S2"}}
JSON
