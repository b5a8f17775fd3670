#!/bin/sh
# fails: ending
# Asks for the currency and takes the region of last time.
cat > /output/final.json <<'JSON'
{"status": "asked", "message": "Shall the Q3 figure be in EUR or CHF? I would take the south again. Please name the currency."}
JSON
