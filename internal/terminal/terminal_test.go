package terminal_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/terminal"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// fleet is what runs at a second: "fast" uses 2 cores, "slow" half a one; of
// "blind" nothing is known.
func fleet(second int) []terminal.Running {
	at := start.Add(time.Duration(second) * time.Second)
	s := float64(second)
	return []terminal.Running{
		{Key: "gitlab/g/1", Project: "group/app", Name: "slow", Stage: "step_script", Machine: "ci-7", Elapsed: time.Minute, ReadAt: at,
			CPUSeconds: cimeter.Some(10 + s/2), MemoryBytes: cimeter.Some(950.0 * (1 << 20)), MemoryLimit: cimeter.Some(1000.0 * (1 << 20)), DiskBytes: cimeter.Some(s * (3 << 20))},
		{Key: "gitlab/g/2", Project: "group/app", Name: "fast", Stage: "get_sources", Machine: "ci-8", Elapsed: 2 * time.Hour, ReadAt: at,
			CPUSeconds: cimeter.Some(100 + 2*s), MemoryBytes: cimeter.Some(100.0 * (1 << 20))},
		{Key: "drone/d/3", Name: "blind", Elapsed: time.Second, ReadAt: at},
	}
}

func newTop() *terminal.Top {
	t := terminal.NewTop(terminal.Options{Source: "http://ci:9808", UTF8: true, Color: true})
	t.Show(fleet(0), "", start)
	t.Show(fleet(5), "", start.Add(5*time.Second))
	return t
}

// screen is a frame as a terminal of that size shows it. It fails the test when
// the frame is not what fits.
func screen(t *testing.T, top *terminal.Top, width, height int) []string {
	t.Helper()
	frame := top.Frame(width, height, start.Add(5*time.Second))
	var lines []string
	for l := range strings.SplitSeq(frame, "\r\n") {
		s := bare(l)
		if w := display.Width(s); w > width {
			t.Errorf("line of %d columns: want at most %d: %q", w, width, s)
		}
		lines = append(lines, s)
	}
	if len(lines) != height {
		t.Errorf("%d lines: want %d", len(lines), height)
	}
	return lines
}

// bare takes the escapes out.
func bare(s string) string {
	var b strings.Builder
	for inside := false; s != ""; s = s[len(string([]rune(s)[:1])):] {
		r := []rune(s)[0]
		switch {
		case r == 0x1b:
			inside = true
		case inside:
			inside = r == '[' || r < 0x40 || r > 0x7e
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func jobs(lines []string) string {
	var names []string
	for _, l := range lines {
		if f := strings.Fields(l); len(f) > 0 && (f[0] == "fast" || f[0] == "slow" || f[0] == "blind") {
			names = append(names, f[0])
		}
	}
	return strings.Join(names, " ")
}

func press(top *terminal.Top, keys string) (quit bool) {
	for _, k := range terminal.Keys([]byte(keys)) {
		quit = top.Press(k)
	}
	return quit
}

func TestTop_Frame(t *testing.T) {
	lines := screen(t, newTop(), 80, 24)
	want := []string{
		"cimeter top  http://ci:9808  3 running, 2.50 cores, 1.03 GiB",
		"JOB            PROJECT        STAGE          MACHINE       TIME CORES▼  MEM MIB",
		"fast           group/app      get_sources    ci-8      2 h 00 m   2.00      100",
		"slow           group/app      step_script    ci-7      1 m 00 s   0.50     !950",
		"blind          -              -              -              1 s      -        -",
		"",
	}
	for i, w := range want {
		if got := strings.TrimRight(lines[i], " "); got != w {
			t.Errorf("line %d: got\n%q: want\n%q", i, got, w)
		}
	}
	if foot := lines[23]; !strings.HasPrefix(foot, "? keys") {
		t.Errorf("footer %q", foot)
	}
	wide := screen(t, newTop(), 200, 24)
	for _, title := range []string{"CPU S", "DISK MIB/S", "NET MIB/S", "OF CORES", "OF MIB", "RUNNER"} {
		if !strings.Contains(wide[1], title) {
			t.Errorf("%q leaves out %s", wide[1], title)
		}
	}
	if !strings.Contains(wide[3], " 3.0 ") {
		t.Errorf("%q: want 3.0 MiB/s of disk", wide[3])
	}
}

func TestTop_Colour(t *testing.T) {
	for color, want := range map[bool]bool{true: true, false: false} {
		top := terminal.NewTop(terminal.Options{Color: color})
		top.Show(fleet(0), "", start)
		frame := top.Frame(80, 24, start)
		if got := strings.Contains(frame, "\x1b[31m"); got != want {
			t.Errorf("color %t: red %t", color, got)
		}
		if !strings.Contains(frame, "!950") {
			t.Error("near the limit only by colour")
		}
		for _, r := range frame {
			if r > unicode.MaxASCII {
				t.Fatalf("%q in a terminal that is not UTF-8", r)
			}
		}
	}
}

func TestTop_Keys(t *testing.T) {
	for _, c := range []struct{ keys, want string }{
		{"", "fast slow blind"},
		{"c", "slow fast blind"}, // reversed; what is not known stays last
		{"m", "slow fast blind"},
		{"mm", "fast slow blind"},
		{"b", "blind fast slow"},
		{"bb", "slow fast blind"},
		{">", "slow fast blind"},
		{"<", "fast slow blind"},            // time
		{"\x1b[D\x1b[D", "slow fast blind"}, // machine
		{"/fa", "fast"},
		{"/group/app", "fast slow"},
		{"/fast\r", "fast"},
		{"/fast\x1b", "fast slow blind"},
		{"/faq\x7f", "fast"},
		{"/fast\r\x1b", "fast slow blind"},
		{"/q", ""},
		{"u", "fast slow blind"}, // a column that 80 do not show
	} {
		top := newTop()
		screen(t, top, 80, 24)
		if press(top, c.keys) {
			t.Errorf("%q quits", c.keys)
		}
		if got := jobs(screen(t, top, 80, 24)); got != c.want {
			t.Errorf("%q: %s: want %s", c.keys, got, c.want)
		}
	}
	for keys, want := range map[string]bool{"q": true, "\x03": true, "/\x03": true, "?q": true, "/q": false, "?x": false, "\r": false} {
		if got := press(newTop(), keys); got != want {
			t.Errorf("%q: quit %t: want %t", keys, got, want)
		}
	}
}

func TestTop_HelpNamesEveryKey(t *testing.T) {
	top := newTop()
	press(top, "?")
	all := strings.Join(screen(t, top, 80, 24), "\n")
	if strings.Contains(all, "…") {
		t.Errorf("80 columns cut it:\n%s", all)
	}
	for _, k := range []string{"< >", "↑ ↓", "PageUp", "Home", "Enter", "/", "Space", "?", "q, Ctrl-C", "c cores", "b job", "l build", "d disk mib/s"} {
		if !strings.Contains(all, k) {
			t.Errorf("help leaves out %s:\n%s", k, all)
		}
	}
}

func TestTop_Detail(t *testing.T) {
	top := newTop()
	press(top, "jj\r") // marks the first, then the second
	all := strings.Join(screen(t, top, 80, 24), "\n")
	for _, want := range []string{"gitlab/g/1", "950 MiB of 1000 MiB, near its limit", "12.5 s so far, now 0.50 cores, no limit known", "15.0 MiB so far, now 3.0 MiB/s"} {
		if !strings.Contains(all, want) {
			t.Errorf("want %q in\n%s", want, all)
		}
	}
	top.Show(nil, "", start.Add(6*time.Second))
	if all := strings.Join(screen(t, top, 80, 24), "\n"); !strings.Contains(all, "cimeter summary gitlab/g/1") {
		t.Errorf("of a build that has ended:\n%s", all)
	}
	press(top, "\x1b")
	if all := strings.Join(screen(t, top, 80, 24), "\n"); !strings.Contains(all, "Nothing runs now.") {
		t.Errorf("empty:\n%s", all)
	}
}

// The mark stays on its build when the order changes, and is always on the screen.
func TestTop_Scroll(t *testing.T) {
	top := terminal.NewTop(terminal.Options{})
	var rows []terminal.Running
	for i := range 100 {
		rows = append(rows, terminal.Running{Key: fmt.Sprintf("k/%02d", i), Name: fmt.Sprintf("job%02d", i), Elapsed: time.Duration(i) * time.Second})
	}
	top.Show(rows, "", start)
	for _, c := range []struct{ keys, see string }{{"", "job00"}, {"\x1b[6~", "job06"}, {"G", "job99"}, {"t", "job99"}, {"\x1b[1~", "job99"}, {"\x1b[4~", "job00"}} {
		press(top, c.keys)
		if all := strings.Join(screen(t, top, 80, 10), "\n"); !strings.Contains(all, c.see) {
			t.Errorf("after %q: want %s in\n%s", c.keys, c.see, all)
		}
	}
}

// Each key that the help names for the mark moves it where it says.
func TestTop_Mark(t *testing.T) {
	for keys, want := range map[string]string{
		"j": "k/99", "jj": "k/98", "j\x1b[B": "k/98", "jjjk": "k/98", "jjj\x1b[A": "k/98", "k": "k/99",
		"jG": "k/00", "jGg": "k/99", "j\x1b[F": "k/00", "j\x1bOF\x1b[H": "k/99", "j\x1b[8~\x1b[7~": "k/99",
		"j\x1b[6~": "k/92", "j\x1b[6~\x1b[6~\x1b[5~": "k/92", "jG\x1b[5~": "k/07", "j\x1b[5~": "k/99", "jGj": "k/00",
	} {
		top := terminal.NewTop(terminal.Options{})
		var rows []terminal.Running
		for i := range 100 {
			rows = append(rows, terminal.Running{Key: fmt.Sprintf("k/%02d", i), Elapsed: time.Duration(i) * time.Second})
		}
		top.Show(rows, "", start)
		press(top, "t") // the longest first
		screen(t, top, 80, 10)
		press(top, keys+"\r")
		if all := strings.Join(screen(t, top, 80, 24), "\n"); !strings.Contains(all, want) {
			t.Errorf("%q: want the detail of %s in\n%s", keys, want, all)
		}
	}
}

func TestTop_Stale(t *testing.T) {
	top := newTop()
	top.Fail("connection refused", start.Add(7*time.Second))
	head := strings.SplitN(bare(top.Frame(120, 24, start.Add(17*time.Second))), "\r\n", 2)[0]
	if want := "cimeter top  server away 12 s, showing last state  http://ci:9808: connection refused"; head != want {
		t.Errorf("header %q: want %s", head, want)
	}
	if l := screen(t, top, 80, 24)[0]; !strings.Contains(l, "showing last state") {
		t.Errorf("header of 80 columns: %q", l)
	}
	press(top, " ")
	top.Show(nil, "", start.Add(18*time.Second))
	if got := jobs(screen(t, top, 80, 24)); got != "fast slow blind" {
		t.Errorf("paused: %s", got)
	}
	press(top, " ")
	top.Show(nil, "1 of 2 machines away", start.Add(19*time.Second))
	if lines := screen(t, top, 80, 24); jobs(lines) != "" || !strings.Contains(lines[0], "1 of 2 machines away") {
		t.Errorf("gone on: %q", lines)
	}
	fresh := terminal.NewTop(terminal.Options{Source: "http://x"})
	fresh.Fail("no such host", start)
	if head := bare(fresh.Frame(80, 24, start)); !strings.Contains(head, "no such host") {
		t.Errorf("header %q", head)
	}
	fresh.Fail("kein Anschluß", start)
	for _, r := range fresh.Frame(80, 24, start) {
		if r > unicode.MaxASCII {
			t.Fatalf("%q in a terminal that is not UTF-8", r)
		}
	}
}

// A terminal that becomes narrower is sorted by a column that it shows.
func TestTop_Narrower(t *testing.T) {
	top := newTop()
	screen(t, top, 200, 24)
	press(top, "u")
	if head := screen(t, top, 200, 24)[1]; strings.Contains(head, "CORES▼") {
		t.Fatalf("%q: want it sorted by another column", head)
	}
	if head := screen(t, top, 80, 24)[1]; !strings.Contains(head, "CORES▼") {
		t.Errorf("%q: want it sorted by cores", head)
	}
}

func TestRates(t *testing.T) {
	var r terminal.Rates
	read := func(second int, cpu float64) terminal.Running {
		rows := []terminal.Running{{Key: "k", ReadAt: start.Add(time.Duration(second) * time.Second), CPUSeconds: cimeter.Some(cpu)}}
		r.Fill(rows)
		return rows[0]
	}
	for _, c := range []struct {
		second    int
		cpu       float64
		want      float64
		wantKnown bool
	}{
		{0, 10, 0, false}, {5, 15, 1, true}, {5, 15, 1, true} /* the same heartbeat again */, {10, 25, 1.5, true}, {15, 45, 3, true}, {60, 45, 0, true},
		{65, 5, 0, false}, // a counter fell: another build of the same key
	} {
		got := read(c.second, c.cpu).Cores
		if got.Known != c.wantKnown || got.Value != c.want {
			t.Errorf("at %d s: %v: want %v, %t", c.second, got, c.want, c.wantKnown)
		}
	}
	for second := 200; second < 210; second += 5 {
		rows := []terminal.Running{{Key: "away", ReadAt: start.Add(time.Duration(second) * time.Second), CPUSeconds: cimeter.Some(float64(second)), Away: true}}
		if r.Fill(rows); rows[0].Cores.Known {
			t.Errorf("%v cores of a build whose machine is away", rows[0].Cores.Value)
		}
	}
}

func TestTable(t *testing.T) {
	rows := fleet(0)
	rows[0].Name = "evil\x1b[2J\u202e"
	got := terminal.Table(rows, 80, true)
	if strings.ContainsAny(got, "\x1b\u202e") || !strings.Contains(got, `evil\x1b[2J`) {
		t.Errorf("got %q", got)
	}
	if n := strings.Count(got, "\n"); n != 4 {
		t.Errorf("%d lines: want 4", n)
	}
}

// Whatever is pressed and however builds are named, a frame fits its terminal
// and no name gets at it.
func FuzzTop(f *testing.F) {
	f.Add([]byte("jjc<>?/x\r\x1b[5~"), "evil\x1b[2J", uint8(80), uint8(24))
	f.Add([]byte("\x1b[\x1bO\xff /日本\r\r"), "日本\u202e", uint8(3), uint8(0))
	f.Fuzz(func(t *testing.T, input []byte, name string, width, height uint8) {
		top := newTop()
		rows := fleet(6)
		rows[0].Name, rows[1].Project, rows[2].Key, rows[2].Stage = name, name, name, name
		top.Show(rows, "", start)
		for _, k := range terminal.Keys(input) {
			top.Press(k)
			frame := top.Frame(int(width), int(height), start)
			lines := strings.Split(frame, "\r\n")
			if len(lines) != max(4, int(height)) {
				t.Fatalf("%d lines: want %d", len(lines), height)
			}
			for _, l := range lines {
				s := bare(l)
				if display.Width(s) > max(20, int(width)) || display.Clean(s) != s {
					t.Fatalf("%q in %d columns", s, width)
				}
			}
		}
	})
}
