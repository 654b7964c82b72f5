#!/usr/bin/env bash
# Installs what the tests need and this machine lacks. Says nothing when there is
# nothing to do. Only packages of the distribution; Go's modules come with go.
set -eu

missing=()
need() { # need COMMAND PACKAGE
	command -v "$1" >/dev/null 2>&1 || missing+=("$2")
}
PATH=$PATH:/usr/sbin:/sbin
need dockerd docker.io
need iptables iptables
need ip iproute2
# One that needs no library: it runs in containers made of nothing else.
if ! command -v busybox >/dev/null 2>&1 || ldd "$(command -v busybox)" >/dev/null 2>&1; then
	missing+=(busybox-static)
fi
need mke2fs e2fsprogs
need promtool prometheus
need qemu-system-x86_64 qemu-system-x86
need qemu-aarch64-static qemu-user-static
need cpio cpio
need debootstrap debootstrap
need strace strace
need zsh zsh
need fish fish
need git git
need gcc gcc # Gitea's SQLite
[ -e /usr/include/stdio.h ] || missing+=(libc6-dev)
need systemd-analyze systemd
need containerd containerd
need podman podman
need catatonit catatonit
[ -x /usr/lib/cni/bridge ] || missing+=(containernetworking-plugins)
need rpmbuild rpm
need chromium-headless-shell chromium-headless-shell
need mariadbd-safe mariadb-server
[ -x /usr/lib/postgresql/15/bin/initdb ] || command -v initdb >/dev/null 2>&1 || missing+=(postgresql)

# The guest's kernel is looked up in apt's lists.
if [ ${#missing[@]} -eq 0 ]; then
	lists=(/var/lib/apt/lists/*_Packages*)
	if command -v apt-get >/dev/null 2>&1 && [ ! -e "${lists[0]}" ] && [ "$(id -u)" = 0 ]; then
		apt-get update -qq
	fi
	exit 0
fi
echo "setup: installing ${missing[*]}"
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
	echo "setup: want root and apt-get to install: ${missing[*]}" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# A package must not start its daemon: every test starts its own. The policy is
# ours only while this runs.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod +x $policy
	trap 'rm -f $policy' EXIT
fi
apt-get update -qq
apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
