package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/testdocker"
	"github.com/cimeter/cimeter/internal/testtools"
)

// fresh is a fresh Debian that is booted: systemd is its first process, Docker is
// the distribution's, and nothing of cimeter is there. It has namespaces of its own
// for processes, mounts, network and cgroups, in which its root is a cgroup of this
// machine's, and it has this machine's kernel.
type fresh struct {
	t    *testing.T
	dir  string // what is bound into it
	init int    // process id of its systemd, of this machine
}

// boot is what becomes the fresh Debian's systemd, in its new namespaces: $1 is
// the root of scripts/debian.sh, $2 a folder of the test, the rest are folders to
// show, FROM:TO.
const boot = `set -e
lower=$1 dir=$2
shift 2
root=$dir/root
mkdir -p $dir/up $dir/work $root $dir/docker $dir/containerd
mount -t overlay -o lowerdir=$lower,upperdir=$dir/up,workdir=$dir/work overlay $root
mount -t proc proc $root/proc
mount -t sysfs sysfs $root/sys
mount -t tmpfs -o mode=755 tmpfs $root/sys/fs/cgroup
while IFS=: read -r _ controllers _; do
	name=${controllers#name=}
	if [ -z "$name" ]; then
		[ -e /sys/fs/cgroup/cgroup.controllers ] && at=$root/sys/fs/cgroup || at=$root/sys/fs/cgroup/unified
		mkdir -p $at
		mount -t cgroup2 cgroup2 $at
	else
		mkdir $root/sys/fs/cgroup/$name
		mount -t cgroup -o $controllers cgroup $root/sys/fs/cgroup/$name
	fi
done </proc/self/cgroup
mount --rbind /dev $root/dev
mount -t tmpfs -o mode=755 tmpfs $root/run
mount -t tmpfs -o mode=1777 tmpfs $root/tmp
mkdir -p $root/var/lib/docker $root/var/lib/containerd
mount --bind $dir/docker $root/var/lib/docker # an overlay cannot lie on one
mount --bind $dir/containerd $root/var/lib/containerd
for b; do
	mkdir -p $root${b#*:}
	mount --bind ${b%%:*} $root${b#*:}
done
ip link set lo up
exec chroot $root env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /sbin/init
`

// newFresh boots a fresh Debian with these folders (FROM:TO) and waits until its
// Docker runs.
func newFresh(t *testing.T, binds ...string) *fresh {
	t.Helper()
	testdocker.Require(t)
	lower, err := exec.Command("../scripts/debian.sh").Output()
	if err != nil {
		t.Fatalf("the root of a Debian: %v", err)
	}
	dir, err := os.MkdirTemp("", "cimeter-fresh-")
	if err != nil {
		t.Fatal(err)
	}
	f := &fresh{t: t, dir: dir}
	group := "/" + filepath.Base(dir)
	t.Cleanup(func() {
		if err := testdocker.RemoveCgroup(group); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := testdocker.MakeCgroup(group); err != nil {
		t.Fatal(err)
	}
	procs, err := testdocker.CgroupProcs(group)
	if err != nil {
		t.Fatal(err)
	}
	// The namespace of cgroups begins where the process is.
	line := append([]string{"-c", "for f in " + strings.Join(procs, " ") + `; do echo $$ >$f; done
exec unshare --mount --pid --uts --ipc --net --cgroup --fork --kill-child --propagation private sh -c "$@"`, "sh", boot, "sh", strings.TrimSpace(string(lower)), dir}, binds...)
	cmd := exec.Command("sh", line...)
	log := &logBuffer{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := testtools.StartTied(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && f.init != 0 {
			out, _ := f.command("journalctl --no-pager --lines 60").CombinedOutput()
			t.Logf("the journal of the fresh Debian:\n%s%s", log, out)
		}
		_ = cmd.Process.Kill() // its systemd is killed with it, and with that all below
		_ = cmd.Wait()
	})
	f.eventually("the fresh Debian runs Docker", func() error {
		if f.init == 0 {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
			if _, err := fmt.Sscan(string(b), &f.init); err != nil {
				return fmt.Errorf("no first process: %s", log)
			}
			if err != nil {
				return err
			}
		}
		if out, err := f.command("docker version").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
		}
		return nil
	})
	return f
}

// command is a script that root types on the fresh machine.
func (f *fresh) command(script string) *exec.Cmd {
	cmd := exec.Command("nsenter", fmt.Sprintf("--target=%d", f.init), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd", "bash", "-euo", "pipefail", "-c", script)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin", "HOME=/root", "LC_ALL=C.UTF-8"}
	return cmd
}

// sh has root type a script, and returns what was said.
func (f *fresh) sh(script string) string {
	f.t.Helper()
	out, err := f.command(script).CombinedOutput()
	if err != nil {
		f.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// write writes a file.
func (f *fresh) write(path, text string) {
	f.t.Helper()
	cmd := f.command("mkdir -p " + filepath.Dir(path) + " && cat >" + path)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		f.t.Fatalf("writing %s: %v: %s", path, err, out)
	}
}

// image gives its Docker an image of busybox.
func (f *fresh) image(name string) {
	f.t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		f.t.Fatal(err)
	}
	b, err := os.ReadFile(busybox)
	if err != nil {
		f.t.Fatal(err)
	}
	f.write("/image/bin/busybox", string(b))
	f.sh("cd /image/bin && chmod 755 busybox && for a in sh sleep cat true; do ln -sf busybox $a; done && tar -C /image -c . | docker import - " + name)
}

// play runs a job of two stages as GitLab Runner does.
func (f *fresh) play(j *gitlabJob, image, script string, more ...string) (log string) {
	f.t.Helper()
	for _, stage := range []struct{ typ, script string }{{"predefined", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done\n"}, {"build", script}} {
		line := "docker run --interactive --rm --name " + j.unique() + "-" + j.Random + "-" + stage.typ
		for k, v := range j.labels(stage.typ) {
			line += fmt.Sprintf(" --label '%s=%s'", k, v)
		}
		for _, v := range j.env() {
			line += fmt.Sprintf(" --env '%s'", v)
		}
		for _, v := range more {
			line += " --volume '" + v + "'"
		}
		cmd := f.command(line + " " + image + " sh")
		cmd.Stdin = strings.NewReader(stage.script)
		out, err := cmd.CombinedOutput()
		if err != nil {
			f.t.Fatalf("stage %s: %v: %s", stage.typ, err, out)
		}
		log = string(out)
	}
	return log
}

// eventually repeats what until it holds.
func (f *fresh) eventually(what string, holds func() error) {
	f.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(patience)
	for {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("waiting until %s: %v", what, err)
		}
		<-tick.C
	}
}
