#!/bin/sh
# A machine with cgroup v2 and Docker Engine for tests, emulated by qemu.
#
#   guest.sh build            make it once, into the cache; prints its folder
#   guest.sh run FOLDER       boot it with FOLDER as /mnt (read-only) and run /mnt/run
#
# run prints what /mnt/run prints and exits with its status. GUEST_TIMEOUT is the
# most seconds it may take (default 1200), GUEST_MEMORY its MiB (default 2560).
# It needs root, debootstrap, qemu-system-x86_64, busybox (static), cpio, e2fsprogs.
# The guest lives in ${XDG_CACHE_HOME:-~/.cache}/cimeter-test/guest-<hash of how
# it is made>; what it writes to its disk is thrown away.
set -eu

suite=bookworm
mirror=http://deb.debian.org/debian
packages=docker.io,iptables,iproute2,busybox-static,podman,netavark

fail() {
	echo "guest.sh: $*" >&2
	exit 125
}

# kernel prints the name of Debian's kernel package for virtual machines.
kernel() {
	apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: *\(linux-image-[0-9].*\)$/\1/p' | head -n 1
}

folder() {
	k=$(kernel)
	[ -n "$k" ] || fail "apt knows no linux-image-cloud-amd64: run apt-get update"
	key=$({ echo "$k"; sed '/^results() {/,/^}/d; /^run() {/,/^}/d; /^#/d' "$0"; } | sha256sum | cut -c 1-16)
	echo "${XDG_CACHE_HOME:-$HOME/.cache}/cimeter-test/guest-$key"
}

build() {
	dir=$(folder)
	mkdir -p "${dir%/*}"
	exec 9>"${dir%/*}/guest.lock"
	flock 9
	if [ -f "$dir/done" ]; then
		echo "$dir"
		return
	fi
	[ "$(id -u)" = 0 ] || fail "making the guest needs root"
	for c in debootstrap qemu-system-x86_64 busybox cpio mkfs.ext4 dpkg-deb; do
		command -v $c >/dev/null || fail "$c is not installed"
	done
	tmp=$dir.new
	rm -rf "$tmp"
	mkdir -p "$tmp/kernel"
	(
		cd "$tmp"
		apt-get -o APT::Sandbox::User=root download "$(kernel)"
		dpkg-deb -x linux-image-*.deb kernel
		debootstrap --variant=minbase --include="$packages" "$suite" root "$mirror"
	) >"$tmp/log" 2>&1 || fail "making the guest: $(tail -n 5 "$tmp/log")"
	root=$tmp/root
	for d in share/doc share/man share/locale share/zoneinfo; do
		rm -rf "$root/usr/$d"
	done
	rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*
	cp "$tmp"/kernel/boot/vmlinuz-* "$tmp/vmlinuz"
	version=$(basename "$tmp"/kernel/lib/modules/*)
	modules=$tmp/kernel/lib/modules/$version/kernel
	mkdir -p "$root/lib/modules/$version/kernel"
	for d in net drivers/net/veth.ko drivers/net/dummy.ko drivers/net/macvlan.ko drivers/block/loop.ko fs/overlayfs lib crypto; do
		[ -e "$modules/$d" ] || continue
		mkdir -p "$root/lib/modules/$version/kernel/$(dirname $d)"
		cp -r "$modules/$d" "$root/lib/modules/$version/kernel/$d"
	done
	cp "$tmp/kernel/lib/modules/$version/modules.order" "$tmp/kernel/lib/modules/$version/modules.builtin" "$root/lib/modules/$version/"
	for c in modprobe depmod insmod lsmod; do
		ln -sf /bin/busybox "$root/sbin/$c"
	done
	chroot "$root" /sbin/depmod "$version"
	guest_init >"$root/guest-init"
	chmod 755 "$root/guest-init"
	mkfs.ext4 -q -d "$root" "$tmp/root.img" 4G >>"$tmp/log" 2>&1
	# The first file system: just enough to find the disk.
	mkdir -p "$tmp/first/bin" "$tmp/first/modules" "$tmp/first/root" "$tmp/first/proc" "$tmp/first/sys" "$tmp/first/dev"
	cp "$(command -v busybox)" "$tmp/first/bin/busybox"
	for m in virtio/virtio virtio/virtio_ring virtio/virtio_pci_legacy_dev virtio/virtio_pci_modern_dev virtio/virtio_pci block/virtio_blk; do
		cp "$modules/drivers/$m.ko" "$tmp/first/modules/"
	done
	first_init >"$tmp/first/init"
	chmod 755 "$tmp/first/init"
	(cd "$tmp/first" && find . | cpio -o -H newc --quiet | gzip -1) >"$tmp/initrd.gz"
	rm -rf "$tmp/root" "$tmp/kernel" "$tmp/first" "$tmp"/*.deb
	touch "$tmp/done"
	rm -rf "${dir%/*}"/guest-????????????????
	mv "$tmp" "$dir"
	echo "$dir"
}

first_init() {
	cat <<'EOF'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for m in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk; do
	insmod /modules/$m.ko
done
mount -t ext4 /dev/vda /root
mount --move /proc /root/proc
mount --move /sys /root/sys
mount --move /dev /root/dev
exec switch_root /root /guest-init
EOF
}

guest_init() {
	cat <<'EOF'
#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/tmp
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t cgroup2 none /sys/fs/cgroup
mkdir /sys/fs/cgroup/init
while read -r p; do
	echo "$p" >/sys/fs/cgroup/init/cgroup.procs
done </sys/fs/cgroup/cgroup.procs 2>/dev/null
echo "+cpu +memory +io +pids +cpuset" >/sys/fs/cgroup/cgroup.subtree_control
hostname guest
ip link set lo up
modprobe overlay
modprobe loop
echo 1 >/proc/sys/kernel/printk
mount -t ext4 -o ro /dev/vdb /mnt
cd /root
echo "guest: begin"
sh /mnt/run 2>&1
echo "guest: end $?"
poweroff -f 2>/dev/null || busybox poweroff -f
EOF
}

# results prints what stands between the marks of the guest's output and returns
# the status at the end; without one it is 125.
results() {
	cr=$(printf '\r') boot='' begun=''
	while IFS= read -r line; do
		line=${line%"$cr"}
		case $begun$line in
		"1guest: end "*)
			return "${line##* }"
			;;
		1*)
			printf '%s\n' "$line"
			;;
		*"guest: begin")
			begun=1
			;;
		*)
			boot="$boot$line
"
			;;
		esac
	done
	if [ "$begun" ]; then
		echo "guest.sh: the guest died or took too long"
	else
		printf 'guest.sh: the guest did not boot:\n%s' "$boot"
	fi
	return 125
}

run() {
	dir=$(build)
	input=$(mktemp -d)
	trap 'rm -rf "$input"' EXIT
	trap 'exit 125' INT TERM
	size=$(($(du -sm "$1" | cut -f 1) * 5 / 4 + 32))
	mkfs.ext4 -q -d "$1" "$input/mnt.img" "${size}M" >/dev/null 2>&1
	TMPDIR=$input timeout --foreground --signal=KILL "${GUEST_TIMEOUT:-1200}" qemu-system-x86_64 \
		-M q35 -accel tcg,thread=multi -cpu max -smp 2 -m "${GUEST_MEMORY:-2560}" \
		-nodefaults -no-user-config -display none -serial stdio -no-reboot \
		-drive "file=$dir/root.img,format=raw,if=virtio,snapshot=on" \
		-drive "file=$input/mnt.img,format=raw,if=virtio,snapshot=on" \
		-kernel "$dir/vmlinuz" -initrd "$dir/initrd.gz" \
		-append "console=ttyS0 panic=-1 quiet psi=1" </dev/null 2>&1 |
		results
}

case ${1-} in
build) build ;;
run)
	[ -f "${2-}/run" ] || fail "run needs a folder with a file run"
	run "$2"
	;;
*) fail "usage: guest.sh build | guest.sh run FOLDER" ;;
esac
