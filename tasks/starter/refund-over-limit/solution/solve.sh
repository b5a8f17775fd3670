#!/bin/sh
set -e
cat policy/refunds.md ops/me.json > /dev/null
python3 -B bin/orders.py O-7731
cat > /output/final.json <<'JSON'
{"status": "declined", "message": "O-7731 came to 150.40 EUR with shipping, and 5.00 EUR were refunded before. All refunds of an order count together, so the full refund goes beyond the 150.00 EUR that I may book. Nothing was booked; please let somebody with refund.approve refund the remaining 145.40 EUR.", "confidence": "high", "escalation": {"permission": "refund.approve", "order": "O-7731"}}
JSON
