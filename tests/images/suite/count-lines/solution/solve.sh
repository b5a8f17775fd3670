#!/bin/sh
set -e
sed -n "$=" poem.txt > count.txt
