#!/bin/sh
set -e
python3 /solution/investigate.py
