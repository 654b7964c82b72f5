# Users of the units, as "cimeter install" makes them. Only a user that is made
# here joins the group docker: who took one out of it had a reason.
for name in cimeter cimeter-server; do
	if ! grep -q "^$name:" /etc/passwd; then
		groups=
		if [ "$name" = cimeter ] && grep -q '^docker:' /etc/group; then
			groups='--groups docker'
		fi
		useradd --system --user-group $groups --home-dir "/var/lib/$name" --no-create-home --shell /usr/sbin/nologin "$name"
	fi
done
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart cimeter-agent cimeter-server
fi
