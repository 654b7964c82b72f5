# Users of the units, and what is theirs, as "cimeter install" makes them. Only a user that is made
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
# A configuration may name secrets' files: it is for its unit's group alone. One that
# somebody has given another owner or mode stays so.
for of in agent:cimeter server:cimeter-server; do
	file=/etc/cimeter/${of%%:*}.yaml
	if [ "$(stat -c %g:%a "$file" 2>/dev/null)" = 0:640 ]; then
		chgrp "${of#*:}" "$file"
	fi
done
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart cimeter-agent cimeter-server
fi
