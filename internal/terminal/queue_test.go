package terminal_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/terminal"
)

func queueState(n int) queue.State {
	st := queue.State{Servers: []queue.Server{
		{Name: "gitlab.example.com", Waiting: cimeter.Some(n), Running: cimeter.Some(1), Blocked: cimeter.Some(0), Workers: cimeter.Some(queue.WorkerCount{Idle: 2, Busy: 1}), Slots: cimeter.Some(3)},
		{Name: "drone.example.com", Stale: true, AgeSeconds: cimeter.Some(90.0), Failure: "GET /api/queue: answered 401"},
	}}
	for i := range n {
		st.Builds = append(st.Builds, queue.Build{
			Job: cimeter.Job{Build: cimeter.Build{Key: fmt.Sprint("gitlab/x/", i), Name: fmt.Sprint("job-", i), Project: "group/app"}, Status: cimeter.JobWaiting, Tags: []string{"arm"}},
			On:  "gitlab.example.com", Waited: cimeter.Some(float64(1000 - i)), Why: queue.WhyNoSlot,
			Start: cimeter.Some(queue.Estimate{Seconds: 60, Low: 30, High: 120, Samples: 20}),
		})
	}
	return st
}

func lines(frame string) []string {
	var out []string
	for _, l := range strings.Split(frame, "\x1b[K") {
		text, inside := "", false
		for _, r := range l {
			switch {
			case r == 0x1b:
				inside = true
			case inside:
				inside = r != 'm' && r != 'H' && r != 'J'
			case r != '\r' && r != '\n':
				text += string(r)
			}
		}
		out = append(out, text)
	}
	return out
}

func TestQueue_frame(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	q := terminal.NewQueue(terminal.Options{Source: "http://x", UTF8: true})
	if got := lines(q.Frame(80, 24, now))[0]; got != "cimeter queue  http://x  reading" {
		t.Errorf("%q", got)
	}
	q.Show(queueState(40), now)
	got := lines(q.Frame(100, 24, now))
	for i, want := range []string{
		"cimeter queue  http://x",
		"gitlab.example.com  40 waiting, 0 blocked, 1 running; 3 workers (2 idle, 1 busy, 0 offline, 0 drain…",
		"drone.example.com  away 1 m 30 s, showing the last state; - waiting, - blocked, - running: GET /api…",
		"STATE    TIME       JOB              PROJECT            WAITS FOR, OR IS ON",
		"waiting  16 m 40 s  job-0            group/app          a free slot, some 1 m 0…",
	} {
		if l := strings.TrimRight(got[i], " "); !strings.HasPrefix(l, want) {
			t.Errorf("line %d: %q: want %q", i, l, want)
		}
	}
	q.Press(terminal.End)
	if got := strings.Join(lines(q.Frame(100, 24, now)), "\n"); !strings.Contains(got, "job-39") || strings.Contains(got, "job-0 ") {
		t.Errorf("End shows\n%s", got)
	}
	q.Press('T') // by time, which is the order already; again reverses
	q.Press('T')
	q.Press(terminal.Home)
	if got := lines(q.Frame(100, 24, now)); !strings.Contains(got[4], "job-39") || !strings.Contains(got[3], "TIME▲") {
		t.Errorf("reversed: %q %q", got[3], got[4])
	}
	for _, k := range "/job-17" {
		q.Press(terminal.Key(k))
	}
	q.Press(terminal.Enter)
	if got := strings.Join(lines(q.Frame(100, 24, now)), "\n"); !strings.Contains(got, "job-17") || strings.Contains(got, "job-18") {
		t.Errorf("filtered:\n%s", got)
	}
	q.Press(terminal.Escape)
	q.Fail("connection refused", now.Add(time.Minute))
	if got := lines(q.Frame(100, 24, now.Add(time.Minute)))[0]; got != "cimeter queue  server away 1 m 00 s, showing last state  http://x: connection refused" {
		t.Errorf("%q", got)
	}
	q.Show(queue.State{Servers: []queue.Server{{Name: "github.com"}}}, now)
	if got := lines(q.Frame(100, 24, now))[1]; got != "github.com  - waiting, - blocked, - running; nothing heard of it yet" {
		t.Errorf("%q", got)
	}
	empty := queue.State{Servers: []queue.Server{{Name: "x", LongestDay: queue.Longest{Key: "k", Name: "test", Seconds: 41, At: now}}}}
	q.Show(empty, now)
	if got := strings.Join(lines(q.Frame(100, 24, now)), "\n"); !strings.Contains(got, "Nothing waits. Longest wait in 24 h: 41 s (test, 12:00).") {
		t.Errorf("%s", got)
	}
}

// Each key does what the help says, also where another table has it for a column.
func TestQueue_keys(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	type c struct{ keys, want string }
	for _, c := range []c{
		{"j\r", "gitlab/x/0"}, {"jj\r", "gitlab/x/1"}, {"jjk\r", "gitlab/x/0"}, {"G\r", "gitlab/x/19"}, {"Gg\r", "gitlab/x/0"},
		{"\r", "in some 1 m 00 s; half of 20 builds before: in 30 s to 2 m 00 s"},
		{"j\r\x1b", "? keys   / filter"}, {"j\r\r", "? keys   / filter"}, {"?", "o job, p project"}, {"?", "a tags, e server, b build"},
		{"<", "WAITS FOR, OR IS ON▲"}, {">", "STATE▲"}, {">>", "TIME▼"}, {"o", "JOB▲"}, {"oo", "JOB▼"}, {"oo\x1b", "JOB  "},
		{"b", "STATE    TIME       JOB  "}, // a column that 80 do not show
		{"/q", "filter: q_"}, {"/job-7\r", "Esc clears it"}, {" ", "paused 0 s ago"},
	} {
		q := terminal.NewQueue(terminal.Options{Source: "http://x", UTF8: true})
		q.Show(queueState(20), now)
		q.Frame(80, 24, now)
		for _, k := range terminal.Keys([]byte(c.keys)) {
			if q.Press(k) {
				t.Errorf("%q ends it", c.keys)
			}
		}
		all := lines(q.Frame(80, 24, now))
		if got := strings.Join(all, "\n"); !strings.Contains(got, c.want) {
			t.Errorf("%q: want %q in\n%s", c.keys, c.want, got)
		}
		if c.keys == "?" {
			for _, l := range all {
				if strings.Contains(l, "…") {
					t.Errorf("80 columns cut the help: %q", l)
				}
			}
		}
	}
	q := terminal.NewQueue(terminal.Options{Source: "http://x"})
	q.Show(queueState(2), now)
	q.Press('j')
	q.Press(terminal.Enter)
	q.Show(queue.State{}, now)
	if got := strings.Join(lines(q.Frame(80, 24, now)), "\n"); !strings.Contains(got, "cimeter summary gitlab/x/0") {
		t.Errorf("of a build that is over:\n%s", got)
	}
}

// Whatever is pressed and whatever the names are, a frame has the size of the screen
// and nothing of a name moves the cursor.
func TestQueue_anyKeys(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	now := time.Unix(1e9, 0)
	keys := []terminal.Key{terminal.Up, terminal.Down, terminal.PageUp, terminal.PageDown, terminal.Home, terminal.End, terminal.Enter, terminal.Escape, terminal.Left, terminal.Right, terminal.Backspace, '/', '?', ' ', 'T', 'S', 'x', 'é'}
	q := terminal.NewQueue(terminal.Options{Source: "x"})
	for i := range 2000 {
		if i%50 == 0 {
			st := queueState(r.IntN(30))
			for j := range st.Builds {
				st.Builds[j].Name = "\x1b[2J\u202e字\x00\xff"
			}
			q.Show(st, now)
		}
		if q.Press(keys[r.IntN(len(keys))]) {
			t.Fatal("it ended")
		}
		width, height := 20+r.IntN(150), 4+r.IntN(40)
		frame := q.Frame(width, height, now)
		all := lines(frame)
		if len(all) != height+1 || strings.Contains(frame, "\x1b[2J") {
			t.Fatalf("%d lines: want %d", len(all)-1, height)
		}
		for _, l := range all {
			if display.Width(l) > width {
				t.Fatalf("%q is wider than %d", l, width)
			}
		}
	}
}
