#!/usr/bin/env bash
# Makes a Debian and an RPM package of a program that is built.
#
#   package.sh VERSION amd64|arm64 PROGRAM FOLDER [deb] [rpm]
#
# The same program makes the same bytes: times are SOURCE_DATE_EPOCH, by default
# that of the commit. It needs dpkg-deb and rpmbuild.
set -eu

if [ $# -lt 4 ]; then
	sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
version=$1 arch=$2 program=$3
mkdir -p "$4"
out=$(cd "$4" && pwd)
shift 4
kinds=${*:-deb rpm}
top=$(cd "$(dirname "$0")/.." && pwd)
case $arch in
amd64) rpmarch=x86_64 ;;
arm64) rpmarch=aarch64 ;;
*) echo "package.sh: architecture $arch: want amd64 or arm64" >&2 && exit 2 ;;
esac
case $version in
[0-9]*-* | [!0-9]*) echo "package.sh: version $version: want digits first and no hyphen" >&2 && exit 2 ;;
esac
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$top" log -1 --format=%ct)}
umask 022

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
install -D -m 0755 "$program" "$tree/usr/bin/cimeter"
install -D -m 0644 -t "$tree/usr/lib/systemd/system" "$top"/deploy/systemd/*.service
install -D -m 0640 -t "$tree/etc/cimeter" "$top"/deploy/config/*.yaml
install -D -m 0644 -t "$tree/usr/share/doc/cimeter" "$top"/docs/install.md "$top"/docs/config.md "$top"/docs/summary.md "$top"/CHANGELOG.md
install -D -m 0644 -t "$tree/usr/share/doc/cimeter/runners" "$top"/docs/runners/*.md
install -m 0644 "$top/LICENSE" "$tree/usr/share/doc/cimeter/copyright"
find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

deb() {
	cp -a "$tree" "$work/deb"
	local control=$work/deb/DEBIAN
	mkdir "$control"
	sed "s/@VERSION@/$version/; s/@ARCH@/$arch/" "$top/deploy/deb/control" >"$control/control"
	printf '/etc/cimeter/%s.yaml\n' agent server >"$control/conffiles"
	{
		# shellcheck disable=SC2016 # it is the script's own
		printf '#!/bin/sh\nset -e\n[ "$1" = configure ] || exit 0\n'
		cat "$top/deploy/config/users.sh"
	} >"$control/postinst"
	cp "$top/deploy/deb/prerm" "$top/deploy/deb/postrm" "$control"
	chmod 0755 "$control"/p*
	(cd "$work/deb" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$control/md5sums"
	# One thread: more of them cut the stream elsewhere.
	dpkg-deb --root-owner-group --threads-max=1 -Zxz -z2 --build "$work/deb" "$out/cimeter_${version}_$arch.deb" >/dev/null
}

rpm() {
	rpmbuild -bb --quiet --target "$rpmarch-linux" \
		--define "_topdir $work/rpm" --define "_rpmdir $out" --define '_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
		--define "version_ $version" --define "tree $tree" --define "users $top/deploy/config/users.sh" \
		--define '_buildhost reproducible' --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' \
		--define '_build_id_links none' --define 'debug_package %{nil}' --define '__os_install_post %{nil}' \
		--define '_binary_payload w6.gzdio' --define '_docdir_fmt %%{NAME}' \
		"$top/deploy/rpm/cimeter.spec" >"$work/rpmbuild.log" 2>&1 || { cat "$work/rpmbuild.log" >&2; exit 1; }
}

for kind in $kinds; do
	$kind
done
