#!/usr/bin/env bash
# Meters a real build in named stages: cimeter vets, compiles and tests a part of
# itself. The build uses caches of its own, so that there is something to meter.
# Its record goes to a server on a free loopback port, which shows its page until
# Ctrl-C on a terminal or with KEEP=1; else everything ends with the build.
set -eu
cimeter=$(realpath "${1:-bin/cimeter}")
shown=${1:-bin/cimeter}
work=$(mktemp -d)
server=
finish() {
	if [ -n "$server" ]; then
		kill "$server" 2>/dev/null || true
		wait "$server" || true
	fi
	chmod -R u+w "$work" && rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
export GOCACHE=$work/cache CIMETER=$cimeter

# The server takes records of who has the token. It does not meter Docker: the
# sample is no container.
CIMETER_TOKEN=$("$cimeter" token --role push --name sample --tokens "$work/tokens")
printf 'agent: {docker: {enabled: false}}\n' >"$work/cimeter.yaml"
set -m # a group of its own: Ctrl-C is for this script, which ends the server
"$cimeter" up --config "$work/cimeter.yaml" --listen 127.0.0.1:0 --data "$work/data" --tokens "$work/tokens" 2>"$work/log" &
server=$!
set +m
address=
while [ -z "$address" ]; do
	if ! kill -0 "$server" 2>/dev/null; then
		cat "$work/log" >&2
		exit 1
	fi
	sleep 0.05
	address=$(sed -n 's/.*msg=listening address=\([^ ]*\).*/\1/p' "$work/log")
done
echo "cimeter up serves pages at http://$address/" >&2

echo "metering a build of three stages with an empty cache: about a minute" >&2
"$cimeter" run --project cimeter --name sample --json "$work/build.json" -- sh -eu -c '
	stage() {
		name=$1
		shift
		echo "$name: $*" >&2
		"$CIMETER" run --stage "$name" -- "$@"
	}
	stage vet go vet ./internal/counter ./internal/attrib
	stage compile go build ./internal/httpapi ./internal/config
	stage test go test ./internal/counter ./internal/attrib ./internal/config
'
page=$(CIMETER_TOKEN=$CIMETER_TOKEN "$cimeter" push --server "http://$address" "$work/build.json")
printf '\nits page: %s\n' "$page" >&2
printf 'now with a command of yours:  %s run -- COMMAND\n' "$shown" >&2
if [ -t 1 ] && [ -t 2 ] || [ "${KEEP:-}" = 1 ]; then
	echo "the page is served until Ctrl-C" >&2
	wait "$server"
else
	echo "the page was served until now; make run KEEP=1 goes on serving it" >&2
fi
