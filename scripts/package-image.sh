#!/usr/bin/env bash
# Makes the container image of a static program, from nothing else: no daemon, no
# network.
#
#   package-image.sh VERSION amd64|arm64 PROGRAM FILE.tar
#
# FILE is an OCI image layout that "docker load" (of any age), "podman load", "ctr
# images import" and skopeo take. The same program makes the same bytes.
# deploy/container/Dockerfile says the same for docker build.
set -eu

if [ $# -ne 4 ]; then
	sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
version=$1 arch=$2 program=$3 file=$4
case $arch in amd64 | arm64) ;; *) echo "package-image.sh: architecture $arch: want amd64 or arm64" >&2 && exit 2 ;; esac
tag=${version//[^A-Za-z0-9_.-]/_} # + is none of a tag's characters
top=$(cd "$(dirname "$0")/.." && pwd)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$top" log -1 --format=%ct)}
created=$(TZ=UTC date -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
umask 022

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree layout=$work/layout blobs=$work/layout/blobs/sha256
install -D -m 0755 "$program" "$tree/usr/bin/cimeter"
install -D -m 0644 -t "$tree/etc" "$top/deploy/container/passwd" "$top/deploy/container/group"
install -D -m 0644 -t "$tree/etc/cimeter" "$top/deploy/container/image.yaml"
install -d -m 0700 "$tree/var/lib/cimeter"
install -d -m 1777 "$tree/tmp"

pack() { # pack OPTION... : like tar, with nothing of this machine in it
	tar --format=gnu --sort=name --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" "$@"
}
blob() { # blob FILE: moves it among the blobs, prints its SHA-256
	local sum
	sum=$(sha256sum "$1" | cut -d' ' -f1)
	mv "$1" "$blobs/$sum"
	echo "$sum"
}
mkdir -p "$blobs"
pack --create --file "$work/layer" --directory "$tree" --owner=0 --group=0 --exclude=var/lib/cimeter etc tmp usr var
pack --append --file "$work/layer" --directory "$tree" --owner=65532 --group=65532 var/lib/cimeter
layer=$(blob "$work/layer")
cat >"$work/config" <<JSON
{"architecture":"$arch","os":"linux","created":"$created","config":{"User":"65532:65532","ExposedPorts":{"9808/tcp":{}},"Env":["PATH=/usr/bin","CIMETER_CONFIG=/etc/cimeter/image.yaml"],"Entrypoint":["/usr/bin/cimeter"],"Cmd":["agent"],"Labels":{"org.opencontainers.image.title":"cimeter","org.opencontainers.image.version":"$version","org.opencontainers.image.licenses":"Apache-2.0"}},"rootfs":{"type":"layers","diff_ids":["sha256:$layer"]},"history":[{"created":"$created","created_by":"scripts/package-image.sh"}]}
JSON
config=$(blob "$work/config")
size() { stat -c %s "$blobs/$1"; }
cat >"$work/manifest" <<JSON
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:$config","size":$(size "$config")},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"sha256:$layer","size":$(size "$layer")}]}
JSON
manifest=$(blob "$work/manifest")
echo '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
cat >"$layout/index.json" <<JSON
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:$manifest","size":$(size "$manifest"),"annotations":{"io.containerd.image.name":"docker.io/library/cimeter:$tag","org.opencontainers.image.ref.name":"$tag"},"platform":{"architecture":"$arch","os":"linux"}}]}
JSON
# The form of older Docker, which looks for this file alone.
cat >"$layout/manifest.json" <<JSON
[{"Config":"blobs/sha256/$config","RepoTags":["cimeter:$tag"],"Layers":["blobs/sha256/$layer"]}]
JSON
mkdir -p "$(dirname "$file")"
pack --create --file "$work/image.tar" --owner=0 --group=0 --directory "$layout" blobs index.json manifest.json oci-layout
mv "$work/image.tar" "$file"
