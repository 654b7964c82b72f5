#!/usr/bin/env bash
# Meters a real build in named stages: cimeter vets, compiles and tests a part of
# itself. The build uses caches of its own, so that there is something to meter.
set -eu
cimeter=$(realpath "${1:-bin/cimeter}")
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
export GOCACHE=$work/cache CIMETER=$cimeter

echo "metering a build of three stages with an empty cache: about a minute" >&2
"$cimeter" run --project cimeter --name sample -- sh -eu -c '
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
printf '\nnow with a command of yours:  %s run -- COMMAND\n' "${1:-bin/cimeter}" >&2
