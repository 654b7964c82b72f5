#!/usr/bin/env bash
# Meters a real build in named stages: cimeter vets, compiles and tests a part of
# itself. The build uses caches of its own, so that there is something to meter.
set -eu
cimeter=$(realpath "${1:-bin/cimeter}")
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
export GOCACHE=$work/cache CIMETER=$cimeter

"$cimeter" run --project cimeter --name sample -- sh -eu -c '
	"$CIMETER" run --stage vet     -- go vet ./internal/counter ./internal/attrib
	"$CIMETER" run --stage compile -- go build ./internal/httpapi ./internal/config
	"$CIMETER" run --stage test    -- go test ./internal/counter ./internal/attrib ./internal/config
'
