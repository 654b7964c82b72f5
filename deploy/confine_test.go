package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cimeter/cimeter/internal/testdocker"
)

// unit is a unit's settings: the values of each key, in order.
type unit map[string][]string

func parseUnit(t *testing.T, text string) unit {
	t.Helper()
	u := unit{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.ContainsAny(line[:1], "#[") {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			t.Fatalf("unit: %q: want KEY=VALUE", line)
		}
		u[key] = append(u[key], value)
	}
	return u
}

// last is the value that holds, "" where nothing is said.
func (u unit) last(key string) string {
	if v := u[key]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

// cell is where a unit's program runs as systemd would have it run, as far as
// that can be had without systemd: user, capabilities, limits, priority, what is
// read-only, hidden or private of the file system, and the cgroup's limits.
type cell struct {
	dir    string // holds all below; reachable by everybody
	state  string // the only folder that can be written
	trace  string // strace's file
	cgroup string
	uid    int
	groups string // further ones, with commas between
	agent  string // more of the section agent of its configuration
}

func newCell(t *testing.T, uid int, groups string) *cell {
	t.Helper()
	require(t, "setpriv", "prlimit", "renice", "unshare", "strace")
	if os.Geteuid() != 0 {
		t.Fatal("another user's rights can be tried by root only")
	}
	// Not in /tmp, which the unit has for itself.
	dir, err := os.MkdirTemp("/run", "cimeter-unit-")
	if err != nil {
		t.Fatal(err)
	}
	c := &cell{
		dir: dir, state: filepath.Join(dir, "state"), trace: filepath.Join(dir, "trace", "strace"), uid: uid, groups: groups,
		cgroup: "/" + filepath.Base(dir),
	}
	t.Cleanup(func() {
		if err := testdocker.RemoveCgroup(c.cgroup); err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := testdocker.MakeCgroup(c.cgroup); err != nil {
		t.Fatal(err)
	}
	return c
}

// confine returns the command line that becomes line under the unit's rights,
// with every system call noted. A right of the unit that is not known here
// fails the test: it would be untried.
func (c *cell) confine(t *testing.T, u unit, line ...string) []string {
	t.Helper()
	mode := u.last("StateDirectoryMode")
	if err := os.Mkdir(c.state, 0o755); err != nil {
		t.Fatal(err)
	}
	output(t, exec.Command("chmod", mode, c.state))
	if err := os.Chown(c.state, c.uid, c.uid); err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&script, format+"\n", args...) }
	say("set -e\nexport PATH=%s", os.Getenv("PATH"))
	procs, err := testdocker.CgroupProcs(c.cgroup)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		say("echo $$ >%s", p)
	}
	limit(t, c.cgroup, u.last("MemoryMax"), "memory.max", "memory.limit_in_bytes")
	limit(t, c.cgroup, u.last("TasksMax"), "pids.max")
	say("mount --make-rprivate /\nmount --bind %s %[1]s", c.state)
	say("mkdir %s\nmount --bind %[1]s %[1]s", filepath.Dir(c.trace)) // strace's, root's own
	c.files(t, u, say)
	as := []string{"setpriv", fmt.Sprintf("--reuid=%d", c.uid), fmt.Sprintf("--regid=%d", c.uid)}
	if c.groups == "" {
		as = append(as, "--clear-groups")
	} else {
		as = append(as, "--groups="+c.groups)
	}
	for option, key := range map[string]string{"bounding-set": "CapabilityBoundingSet", "inh-caps": "AmbientCapabilities", "ambient-caps": "AmbientCapabilities"} {
		list := "-all"
		for name := range strings.FieldsSeq(strings.ToLower(u.last(key))) {
			list += ",+" + strings.TrimPrefix(name, "cap_")
		}
		as = append(as, "--"+option+"="+list)
	}
	if u.last("NoNewPrivileges") == "yes" {
		as = append(as, "--no-new-privs")
	}
	if n := u.last("Nice"); n != "" {
		say("renice -n %s -p $$ >/dev/null", n) // nice would add it to the test's own
	}
	say("umask %s", u.last("UMask"))
	say("cd /")
	// strace stands beside the program, which keeps the process id and knows
	// nothing of it.
	say(`exec prlimit --nofile=%s:%[1]s strace -D -f -qq -s 64 -o %s -- %s -- env -i PATH=/usr/bin:/bin "$@"`, u.last("LimitNOFILE"), c.trace, strings.Join(as, " "))
	path := filepath.Join(c.dir, "confine")
	write(t, path, script.String(), 0o755)
	return append([]string{"unshare", "--mount", "--propagation", "private", "sh", path}, line...)
}

// files makes the file system what the unit says.
func (c *cell) files(t *testing.T, u unit, say func(format string, args ...any)) {
	t.Helper()
	yes := func(key string) bool { return u.last(key) == "yes" }
	if yes("PrivateDevices") {
		dev := filepath.Join(c.dir, "dev")
		say("mkdir %s", dev)
		for _, node := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
			say("touch %s/%s; mount --bind /dev/%[2]s %[1]s/%[2]s", dev, node)
		}
		say("mount --rbind %s /dev", dev)
	}
	if u.last("ProtectProc") == "invisible" || u.last("ProcSubset") == "pid" {
		say("mount -t proc -o hidepid=invisible,subset=pid proc /proc")
	}
	if yes("PrivateTmp") {
		say("mount -t tmpfs -o mode=1777 tmpfs /tmp\nmount -t tmpfs -o mode=1777 tmpfs /var/tmp")
	}
	if yes("ProtectHome") {
		say("mount -t tmpfs -o mode=000 tmpfs /root\nmount -t tmpfs -o mode=000 tmpfs /home")
	}
	if u.last("ProtectSystem") != "strict" || !yes("ProtectControlGroups") || !yes("ProtectKernelTunables") {
		t.Fatal("the unit may write more than this test knows of")
	}
	if yes("ProtectKernelTunables") {
		say("test ! -d /proc/sys || mount --bind /proc/sys /proc/sys")
	}
	// Everything is read-only but the state and what is the unit's own.
	say(`awk '{print $5}' /proc/self/mountinfo | while read -r m; do
	case $m in
	%s|%s|/tmp|/var/tmp|/proc|/dev|/dev/*) ;;
	*) mount -o remount,bind,ro "$m" 2>/dev/null || test ! -e "$m" ;;
	esac
done`, c.state, filepath.Dir(c.trace))
}

func limit(t *testing.T, cgroup, value string, files ...string) {
	t.Helper()
	if value == "" {
		t.Fatalf("the unit has no limit for %s", files[0])
	}
	if err := testdocker.SetCgroup(cgroup, strings.NewReplacer("M", "m", "G", "g").Replace(value), files...); err != nil {
		t.Fatal(err)
	}
}
