#!/bin/sh
set -e
test "$(cat /etc/marker)" = in-the-image
sed -i "s/a - b/a + b/" adder.py
