#!/usr/bin/env bash
# Builds a release: static programs for amd64 and arm64, archives, packages, a
# list of all modules in each program (CycloneDX), checksums.
#
#   release.sh FOLDER [amd64] [arm64]
#
# The same commit makes the same bytes with the same Go, whoever builds it where
# and when. VERSION names the release; by default it is git's tag, or 0.0.0 with
# time and name of the commit. CYCLONEDX is a cyclonedx-gomod that is there already.
# PACKAGES are the kinds of packages, by default "deb rpm".
set -eu

if [ $# -lt 1 ]; then
	sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
archs=${*:-amd64 arm64}
cd "$(dirname "$0")/.."
umask 022
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
if [ -z "${VERSION:-}" ]; then
	VERSION=$(git describe --tags --exact-match 2>/dev/null || echo "v0.0.0+$(TZ=UTC git log -1 --date=format-local:%Y%m%d%H%M%S --format=%cd.%h --abbrev=12)")
fi
version=${VERSION#v}
[ -z "$(git status --porcelain)" ] || echo "release.sh: the checkout has changes: the programs say so" >&2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cyclonedx=${CYCLONEDX:-}
if [ -z "$cyclonedx" ]; then
	cyclonedx=$work/cyclonedx-gomod
	GOBIN=$work CGO_ENABLED=0 GOFLAGS= go install -trimpath github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
fi

for arch in $archs; do
	name=cimeter-$version-linux-$arch
	dir=$work/$name
	mkdir "$dir"
	# No symbol table (pprof and panics do without), no build id: it depends on
	# the folder. The commit is in it, and the modules with their checksums.
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT='' GOWORK=off GOFLAGS=-mod=readonly \
		go build -trimpath -buildvcs=true -ldflags '-s -w -buildid=' -o "$dir/cimeter" ./cmd/cimeter
	cp LICENSE README.md CHANGELOG.md docs/install.md "$dir"
	chmod 0644 "$dir"/*.md "$dir/LICENSE"
	"$cyclonedx" bin -json -noserial -output "$work/sbom" "$dir/cimeter" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
	# Its time is that of the commit.
	sed "s/^\(  *\"timestamp\": \)\"[^\"]*\"/\1\"$(TZ=UTC date -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)\"/" "$work/sbom" >"$out/$name.cdx.json"
	tar --create --directory "$work" --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" "$name" |
		gzip -9 -n >"$out/$name.tar.gz"
	for kind in ${PACKAGES-deb rpm}; do
		scripts/package.sh "${version//-/\~}" "$arch" "$dir/cimeter" "$out" "$kind"
	done
done
cd "$out"
rm -f SHA256SUMS
find . -maxdepth 1 -type f -printf '%P\n' | LC_ALL=C sort | xargs sha256sum -- >"$work/sums"
mv "$work/sums" SHA256SUMS
