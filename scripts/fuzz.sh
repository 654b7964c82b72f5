#!/usr/bin/env bash
# Runs every fuzz target for a while: scripts/fuzz.sh 30s
set -eu
time=${1:-30s}
for pkg in $(go list ./...); do
	for target in $(go test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
		echo "== $pkg $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1s "$pkg"
	done
done
