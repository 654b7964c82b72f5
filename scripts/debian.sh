#!/bin/sh
# The root of a fresh Debian for tests: with systemd, Docker's packages, make and
# curl, and nothing of cimeter.
#
#   debian.sh        make it once, into the cache; prints its folder
#
# It needs root and debootstrap. It lives in
# ${XDG_CACHE_HOME:-~/.cache}/cimeter-test/debian-<hash of how it is made>; whoever uses it
# mounts it as the lower folder of an overlay.
set -eu

suite=bookworm
mirror=http://deb.debian.org/debian
packages=systemd,systemd-sysv,dbus,docker.io,iptables,iproute2,make,curl

fail() {
	echo "debian.sh: $*" >&2
	exit 125
}

cache=${XDG_CACHE_HOME:-$HOME/.cache}/cimeter-test
dir=$cache/debian-$(grep -v '^#' "$0" | sha256sum | cut -c 1-16)
mkdir -p "$cache"
exec 9>"$cache/debian.lock"
flock 9
if [ ! -e "$dir/etc/debian_version" ]; then
	[ "$(id -u)" = 0 ] || fail "making the root needs root"
	command -v debootstrap >/dev/null || fail "debootstrap is not installed: scripts/setup.sh installs it"
	rm -rf "$cache"/debian-????????????????*
	debootstrap --variant=minbase --include="$packages" "$suite" "$dir.new" "$mirror" >"$cache/debian.log" 2>&1 ||
		fail "making the root: $(tail -n 5 "$cache/debian.log")"
	rm -rf "$dir.new"/var/cache/apt/* "$dir.new"/var/lib/apt/lists/*
	mv "$dir.new" "$dir"
fi
echo "$dir"
