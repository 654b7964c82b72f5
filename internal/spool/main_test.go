package spool_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/spool"
)

// TestMain is a process that tests kill when the environment says so.
func TestMain(m *testing.M) {
	dir := os.Getenv("SPOOL_CHILD_DIR")
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := child(dir); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

// child adds and acknowledges records for ever, from the number that the
// environment gives, and says what is done. At the step and the time that the
// environment names it kills itself.
func child(dir string) error {
	at, _ := strconv.Atoi(os.Getenv("SPOOL_CHILD_KILL_AT"))
	n, _ := strconv.Atoi(os.Getenv("SPOOL_CHILD_FIRST"))
	s, err := spool.Open(spool.Options{Dir: dir, Fault: func(step string) error {
		if step == os.Getenv("SPOOL_CHILD_KILL_STEP") {
			if at--; at <= 0 {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
		return nil
	}})
	if err != nil {
		return err
	}
	for ; ; n++ {
		fmt.Println("adding", n)
		if err := s.Add(key(n), line(n)); err != nil {
			return err
		}
		fmt.Println("added", n)
		if n%3 != 2 {
			continue
		}
		es, err := s.Next(0, 1, 1<<20)
		if err != nil {
			return err
		}
		var oldest int
		fmt.Sscanf(string(es[0].Line), `{"key":"gitlab/x/%d"`, &oldest)
		fmt.Println("sent", oldest)
		if n%2 == 0 {
			err = s.Ack(es[0].Seq)
		} else {
			err = s.Refuse(es[0].Seq, "because")
		}
		if err != nil {
			return err
		}
		fmt.Println("removed", oldest)
	}
}

// tried is what children said over several lives.
type tried struct {
	added, sent, removed map[int]bool
	last                 int
}

func (w *tried) read(t *testing.T, out string) {
	t.Helper()
	for l := range strings.Lines(out) {
		var what string
		var n int
		if _, err := fmt.Sscanf(l, "%s %d", &what, &n); err != nil || what == "error" {
			if strings.HasSuffix(l, "\n") {
				t.Fatalf("child: %s", l)
			}
			continue // cut off by the kill
		}
		switch what {
		case "added":
			w.added[n] = true
		case "sent":
			w.sent[n] = true
		case "removed":
			w.removed[n] = true
		}
		w.last = max(w.last, n)
	}
}

// verify holds the directory against what was said: what was added and not sent
// is there; what was removed is not; nothing is there twice or damaged.
func (w *tried) verify(t *testing.T, dir string) {
	t.Helper()
	s, err := spool.Open(spool.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	there := map[int]int{}
	for _, n := range waiting(t, s) {
		there[n]++
	}
	for n := range w.added {
		if !w.sent[n] && there[n] != 1 {
			t.Errorf("record %d was added and is there %d times", n, there[n])
		}
		if w.removed[n] && there[n] > 0 {
			t.Errorf("record %d was removed and is there", n)
		}
	}
	for n, times := range there {
		if times > 1 {
			t.Errorf("record %d is there %d times", n, times)
		}
	}
	if st := s.Stats(); st.Corrupt > 0 {
		t.Errorf("%d damaged: want none", st.Corrupt)
	}
}

func newTried() *tried {
	return &tried{added: map[int]bool{}, sent: map[int]bool{}, removed: map[int]bool{}, last: -1}
}

// Killed at any moment, again and again, the spool loses nothing that was added
// and not sent.
func TestSpool_Kill(t *testing.T) {
	rounds := 20 // SPOOL_ROUNDS=200 is what a release is held to
	if v := os.Getenv("SPOOL_ROUNDS"); v != "" {
		var err error
		if rounds, err = strconv.Atoi(v); err != nil {
			t.Fatalf("SPOOL_ROUNDS=%s: want a number", v)
		}
	}
	random := seeded(t)
	dir := t.TempDir()
	w := newTried()
	for range rounds {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		var out bytes.Buffer
		cmd.Env = append(os.Environ(), "SPOOL_CHILD_DIR="+dir, fmt.Sprintf("SPOOL_CHILD_FIRST=%d", w.last+1))
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Duration(random.Int64N(int64(50 * time.Millisecond))))
		cmd.Process.Kill()
		cmd.Wait()
		w.read(t, out.String())
		w.verify(t, dir)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d kills, %d records added, lost 0, twice 0", rounds, len(w.added))
}

// Killed just before each step of a write and of a removal.
func TestSpool_KillAtStep(t *testing.T) {
	for _, step := range []string{spool.StepCreate, spool.StepWrite, spool.StepSync, spool.StepRename, spool.StepSyncDir, spool.StepRemove} {
		for at := 1; at <= 6; at++ {
			t.Run(fmt.Sprintf("%s %d", step, at), func(t *testing.T) {
				dir := t.TempDir()
				w := newTried()
				for range 2 { // and the next life goes on where this one ended
					cmd := exec.CommandContext(t.Context(), os.Args[0])
					var out bytes.Buffer
					cmd.Env = append(os.Environ(), "SPOOL_CHILD_DIR="+dir, "SPOOL_CHILD_KILL_STEP="+step, fmt.Sprintf("SPOOL_CHILD_KILL_AT=%d", at),
						fmt.Sprintf("SPOOL_CHILD_FIRST=%d", w.last+1))
					cmd.Stdout = &out
					if err := cmd.Run(); err == nil {
						t.Fatal("the child was not killed")
					}
					w.read(t, out.String())
					w.verify(t, dir)
				}
			})
		}
	}
}
