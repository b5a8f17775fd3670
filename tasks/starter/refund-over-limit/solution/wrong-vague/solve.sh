#!/bin/sh
# fails: ending
# Declines, but leaves it to the reader to find out what is missing.
cat > /output/final.json <<'JSON'
{"status": "declined", "message": "I am not allowed to refund O-7731. Please ask my supervisor.", "escalation": {"reason": "over the limit"}}
JSON
