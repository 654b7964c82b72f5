package wrap

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/quick"
	"time"

	"github.com/cimeter/cimeter"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func stageAt(name string, from, to time.Duration, cpu float64) cimeter.Stage {
	return cimeter.Stage{
		Name: name, StartedAt: epoch.Add(from), EndedAt: epoch.Add(to),
		Usage: cimeter.Usage{WallSeconds: (to - from).Seconds(), CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(cpu)}},
	}
}

func testMailbox(t *testing.T) mailbox {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	m, err := newMailbox(nestName(os.Getpid(), 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := outerMailbox(m.dir); !ok {
		t.Fatalf("%s is not taken for the folder of a run", m.dir)
	}
	return m
}

func TestMailbox(t *testing.T) {
	m := testMailbox(t)
	if err := m.put([]cimeter.Stage{stageAt("test", 2*time.Second, 3*time.Second, 1)}); err != nil {
		t.Fatal(err)
	}
	if err := m.put([]cimeter.Stage{stageAt("test", 0, time.Second, 2), stageAt("b", time.Second, 2*time.Second, 3)}); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "stage")
	b, _ := json.Marshal(stageAt("linked", 0, 1, 1))
	for name, content := range map[string]string{
		outside: string(b), filepath.Join(m.dir, "bad.json"): "{", filepath.Join(m.dir, "half.tmp"): string(b),
		filepath.Join(m.dir, "large.json"): `{"name":"` + strings.Repeat("x", maxStageFile) + `"}`,
	} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(m.dir, "link.json")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(m.dir, "pipe.json"), 0o600); err != nil { // nobody ever writes to it
		t.Fatal(err)
	}
	stages, dropped := m.take()
	var got []string
	for _, s := range stages {
		got = append(got, s.Name+string(rune('0'+s.Attempt)))
	}
	if want := []string{"test1", "b1", "test2"}; !slices.Equal(got, want) || dropped != 4 {
		t.Errorf("got %v and %d dropped, want %v and 4", got, dropped, want)
	}
	m.remove()
	if _, err := os.Stat(m.dir); !os.IsNotExist(err) {
		t.Errorf("folder remains: %v", err)
	}
}

func TestMailbox_Sweep(t *testing.T) {
	m := testMailbox(t)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	var kept []string
	for name, keep := range map[string]bool{
		nestName(gone.ProcessState.Pid(), 1): false, nestName(gone.ProcessState.Pid(), 2): true, nestName(os.Getpid(), 1): true, "other": true,
	} {
		dir := filepath.Join(filepath.Dir(m.dir), name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if keep {
			kept = append(kept, dir)
		}
	}
	m.sweep(1)
	got, _ := filepath.Glob(filepath.Join(filepath.Dir(m.dir), "*"))
	if want := append(kept, m.dir); len(got) != len(want) {
		t.Errorf("left %v, want %v", got, want)
	}
}

func TestOuterMailbox(t *testing.T) {
	m := testMailbox(t)
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(m.dir, link); err != nil {
		t.Fatal(err)
	}
	dirs := map[string]string{"not set": "", "gone": m.dir + "x", "relative": ".", "others may look in": open, "a link": link}
	if os.Geteuid() == 0 {
		another := testMailbox(t)
		if err := os.Chown(another.dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		dirs["another user's"] = another.dir
	}
	for name, dir := range dirs {
		t.Run(name, func(t *testing.T) {
			if _, ok := outerMailbox(dir); ok {
				t.Errorf("%q is taken for the folder of a run", dir)
			}
		})
	}
}

func FuzzDecodeStage(f *testing.F) {
	b, _ := json.Marshal(stageAt("unit", 0, time.Second, 1))
	f.Add(b)
	f.Add([]byte(`{"name":"\u0000","started_at":"2026-01-02T03:04:05Z"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeStage(b)
		if (err != nil) != (s.Name == "") {
			t.Errorf("stage %+v with error %v", s, err)
		}
		if err == nil && (s.Name != clean(s.Name) || s.EndedAt.Before(s.StartedAt) || s.Usage.CPUSeconds.Total.Value < 0) {
			t.Errorf("stage %+v", s)
		}
	})
}

// TestRest_SumsUp holds that what stages and the rest spent is the total.
func TestRest_SumsUp(t *testing.T) {
	sumsUp := func(cpu, read []uint16, restCPU, restRead uint16) bool {
		n := min(len(cpu), len(read))
		total := cimeter.Usage{WallSeconds: 100, IOBytes: &cimeter.ReadWrite[uint64]{Read: uint64(restRead)}}
		total.CPUSeconds.Total = cimeter.Some(float64(restCPU))
		var stages []cimeter.Stage
		for i := range n {
			s := stageAt("s", time.Duration(i)*time.Second, time.Duration(i+1)*time.Second, float64(cpu[i]))
			s.Usage.IOBytes = &cimeter.ReadWrite[uint64]{Read: uint64(read[i])}
			total.CPUSeconds.Total.Value += float64(cpu[i])
			total.IOBytes.Read += uint64(read[i])
			stages = append(stages, s)
		}
		u, _ := rest(&total, stages, epoch, epoch.Add(100*time.Second))
		return believable(&total, stages) && u.CPUSeconds.Total.Value == float64(restCPU) && u.IOBytes.Read == uint64(restRead)
	}
	if err := quick.Check(sumsUp, nil); err != nil {
		t.Error(err)
	}
}

func TestRest(t *testing.T) {
	total := stageAt("", 0, 10*time.Second, 5).Usage
	end := epoch.Add(10 * time.Second)
	t.Run("time that stages share is taken once", func(t *testing.T) {
		u, some := rest(&total, []cimeter.Stage{stageAt("a", time.Second, 5*time.Second, 1), stageAt("b", 4*time.Second, 6*time.Second, 1)}, epoch, end)
		if !some || math.Abs(u.WallSeconds-5) > 1e-9 || u.CPUSeconds.Total.Value != 3 || u.MemoryBytes != nil {
			t.Errorf("got %+v", u)
		}
	})
	t.Run("nothing is no stage", func(t *testing.T) {
		if u, some := rest(&total, []cimeter.Stage{stageAt("a", 0, 10*time.Second, 5)}, epoch, end); some {
			t.Errorf("got %+v", u)
		}
	})
	t.Run("more than the whole is not believed", func(t *testing.T) {
		if believable(&total, []cimeter.Stage{stageAt("a", 0, time.Second, 4), stageAt("b", 0, time.Second, 2)}) {
			t.Error("6 s of 5 s are believed")
		}
	})
}

func TestIdentify(t *testing.T) {
	env := map[string]string{"CI_REPO": "owner/repo", "CI_COMMIT_SHA": "abc", "CI_JOB_TOKEN": "secret"}
	o := Options{Command: []string{"/usr/bin/make", "x"}, Getenv: func(n string) string { return env[n] }, Dir: "/src/app", Machine: "ci-7", Pid: 42}
	b := identify(&o, epoch)
	want := cimeter.Build{Key: "run/ci-7/1767323045000000000-42", CI: "run", Project: "owner/repo", Name: "make", Attempt: 1, SHA: "abc", Machine: "ci-7"}
	if b != want {
		t.Errorf("got %+v, want %+v", b, want)
	}
	o.Project = "given/\x1b[31mred"
	if got := identify(&o, epoch).Project; got != "given/[31mred" {
		t.Errorf("project %q", got)
	}
	env, o.Project = nil, ""
	if got := identify(&o, epoch).Project; got != "app" {
		t.Errorf("project %q, want the folder's name", got)
	}
	if got := clean(strings.Repeat("é", 300)); len(got) > maxName || !strings.HasPrefix(got, "éé") {
		t.Errorf("%d bytes", len(got))
	}
}

func TestIntervalAt(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		0: 250 * time.Millisecond, 9 * time.Second: 250 * time.Millisecond, time.Minute: time.Second,
		time.Hour: 2 * time.Second, 5 * time.Hour: 8 * time.Second, 1000 * time.Hour: 10 * time.Second,
	} {
		if got := intervalAt(d); got != want {
			t.Errorf("after %v: %v, want %v", d, got, want)
		}
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tool"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string][]string{
		"tool": {dir + "/tool"}, "folder": nil, "": nil, "./x": {"./x"}, "nothing": nil,
	} {
		if got := find(command, "/none:"+dir, true); !slices.Equal(got, want) {
			t.Errorf("find(%q) = %v, want %v", command, got, want)
		}
	}
	if got := find("sh", "", false); !slices.Contains(got, "/bin/sh") {
		t.Errorf("without PATH: %v", got)
	}
}

// What several cgroups count is taken of the first.
func TestMerge(t *testing.T) {
	var s, o cimeter.Sample
	s.SetCounter(cimeter.CPUTotal, 5)
	o.SetCounter(cimeter.CPUTotal, 7)
	o.SetCounter(cimeter.CPUUser, 3)
	o.SetCounter(cimeter.IOReadBytes, 9)
	merge(&s, &o, false)
	total, _ := s.Counter(cimeter.CPUTotal)
	user, _ := s.Counter(cimeter.CPUUser)
	if _, ok := s.Counter(cimeter.IOReadBytes); total != 5 || user != 3 || ok {
		t.Errorf("CPU %d, of users %d, block IO %v: want 5, 3 and none", total, user, ok)
	}
}
