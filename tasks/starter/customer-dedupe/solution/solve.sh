#!/bin/sh
set -e
python3 /solution/merge.py
