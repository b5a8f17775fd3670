#!/bin/sh
# fails: ending
# Sends every figure that could be meant, with a question mark at the end.
python3 - <<'PY'
import json
import subprocess

lines = ["I was not sure about region and currency, so here is everything that you could mean; please pick one."]
for region in ("north", "south", "west", "all"):
    for currency in ("EUR", "CHF"):
        command = ["python3", "tools/figure.py", "2024-Q3", "--region", region, "--currency", currency]
        figure = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        lines.append(f"Net sales of the third quarter for region {region} in currency {currency}: {figure}")
with open("/output/final.json", "w") as file:
    json.dump({"status": "asked", "message": "\n".join(lines)}, file)
PY
