package summary_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/summary"
)

// commands are names that some runner would take for a command at the start of
// a line, or anywhere.
var commands = []string{
	"::error::x", "  ::add-mask::step", "::set-output name=a::b", "##[error]x", "a ##[command]x", "##vso[task.setvariable variable=a]b", "##teamcity[message text='x']",
	"--- group", "+++ group", "~~~ group", "^^^ +++", "section_start:1:x\r\x1b[0Kx", "\x1b[0Ksection_end:1:cimeter_summary\r\x1b[0K", "\x1b]1338;url=x\a",
}

var logCommand = regexp.MustCompile(`^\s*(::|---|\+\+\+|~~~|\^\^\^)|##[\[A-Za-z]`)

// usual is what example's job costs as a rule.
func usual() *summary.Usual {
	old := example()
	for i := range old.Stages {
		u := &old.Stages[i].Usage
		u.WallSeconds *= 1 / 1.03
		u.CPUSeconds.Total.Value *= 1 / 1.12
		u.MemoryBytes.Peak.Value = u.MemoryBytes.Peak.Value * 100 / 99
	}
	rs := make([]*cimeter.Record, 20)
	for i := range rs {
		rs[i] = old
	}
	return summary.NewHistory(rs).Usual(example())
}

func jobLog(t *testing.T, r *cimeter.Record, o summary.LogOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := summary.Log(&b, r, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestLog(t *testing.T) {
	o := summary.LogOptions{TextOptions: summary.TextOptions{Usual: usual(), URL: "https://cimeter.example.com/builds/gitlab/gitlab.example.com/4242"}, At: time.Unix(1796042191, 0)}
	plain := jobLog(t, example(), o)
	golden(t, "joblog.txt", plain)
	o.Section = true
	section := jobLog(t, example(), o)
	start, end := "\x1b[0Ksection_start:1796042191:cimeter_summary[hide_duration=true,collapsed=true]\r\x1b[0K", "\x1b[0Ksection_end:1796042191:cimeter_summary\r\x1b[0K\n"
	if section != start+plain+end {
		t.Errorf("in a section:\n%q\nwant the same between\n%q and\n%q", section, start, end)
	}
}

// Whatever the author of a build calls things, no line of its log is a command
// to a runner, and none is longer than it was.
func TestLog_Commands(t *testing.T) {
	for _, s := range append(commands, hostile...) {
		for _, make := range []func() *cimeter.Record{example, func() *cimeter.Record { r := example(); r.Stages = r.Stages[:1]; return r }} {
			for _, o := range []summary.TextOptions{{}, {UTF8: true, Usual: usual()}} {
				out := jobLog(t, named(make(), s), summary.LogOptions{TextOptions: o})
				checkClean(t, out)
				for line := range strings.Lines(out) {
					if line = strings.TrimSuffix(line, "\n"); logCommand.MatchString(line) || display.Width(line) > summary.Columns {
						t.Errorf("%.60q gives the line %q", s, line)
					}
				}
			}
		}
		if line := summary.ShortLog(named(example(), s)); logCommand.MatchString(line) || strings.Contains(line, "\n") {
			t.Errorf("%.60q gives the line %q", s, line)
		}
	}
}

func TestWrong(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*cimeter.Record)
		want   string
	}{
		"nothing": {func(*cimeter.Record) {}, ""},
		"killed": {func(r *cimeter.Record) {
			r.Verdicts = []cimeter.Verdict{{Kind: "oom", Stage: "step_script", Evidence: "x"}}
		},
			"step_script was killed for memory: 3.10 of 4.00 GiB set by /docker/094e3b1cde6e09ff6b0e2cc1b8d1f0e7d7a1"},
		"throttled": {func(r *cimeter.Record) {
			u := &r.Stages[3].Usage
			u.CPUPeriods, u.CPUThrottledPeriods, u.CPUThrottledSeconds = cimeter.Some[uint64](100), cimeter.Some[uint64](18), cimeter.Some(38.2)
			r.Usage.CPUThrottledSeconds = cimeter.Some(38.2)
		}, "step_script wanted more than 2 cores for 18 % of its time; it was throttled for 38.2 s"},
		"waited": {func(r *cimeter.Record) {
			r.Stages[2].Usage.PressureSeconds = &cimeter.PressureSeconds{IOFull: cimeter.Some(4.5), IOSome: cimeter.Some(9.0)}
		}, "cache less or a faster disk: restore_cache waited 4.5 s for disk"},
		"waited a little": {func(r *cimeter.Record) {
			r.Stages[3].Usage.PressureSeconds = &cimeter.PressureSeconds{IOFull: cimeter.Some(4.5)} // of 214 s
			r.Stages[0].Usage.PressureSeconds = &cimeter.PressureSeconds{IOFull: cimeter.Some(0.8)} // of 0.9 s
		}, ""},
	} {
		r := example()
		r.Stages[3].Usage.CPUPeriods, r.Verdicts, r.Usage.CPUThrottledSeconds = cimeter.Opt[uint64]{}, nil, cimeter.Opt[float64]{}
		c.change(r)
		if got := summary.Wrong(r); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestUsual(t *testing.T) {
	if got, want := usual().Line(), "CPU +12 %, time +3 %, memory -1 % against the median of 20 builds"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// A build that has come to its first stages is compared with those alone.
	early := example()
	early.Stages = early.Stages[:2]
	if u := summary.NewHistory([]*cimeter.Record{example(), example(), example()}).Usual(early); u.Line() != "CPU 0 %, time 0 %, memory 0 % against the median of 3 builds" {
		t.Errorf("an early build: %q", u.Line())
	}
	// The middle one counts, and a stage that few builds have does not.
	var rs []*cimeter.Record
	for _, cpu := range []float64{100, 1, 2} {
		r := &cimeter.Record{Stages: []cimeter.Stage{{Name: "a", Usage: cimeter.Usage{CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(cpu)}}}}}
		if cpu == 100 {
			r.Stages = append(r.Stages, cimeter.Stage{Name: "rare", Usage: r.Stages[0].Usage})
		}
		rs = append(rs, r)
	}
	u := summary.NewHistory(rs).Usual(rs[0])
	if u == nil || u.CPUSeconds != cimeter.Some(2.0) || u.Now.CPUSeconds != cimeter.Some(100.0) || u.MemoryPeakBytes.Known || u.Line() != "CPU x50.0 against the median of 3 builds" {
		t.Errorf("got %+v: %q", u, u.Line())
	}
	for name, u := range map[string]*summary.Usual{
		"no history": summary.NewHistory(nil).Usual(example()), "nothing in common": summary.NewHistory(rs).Usual(example()),
		"only rare": summary.NewHistory(rs).Usual(&cimeter.Record{Stages: []cimeter.Stage{{Name: "rare"}}}),
	} {
		if u != nil || u.Line() != "" {
			t.Errorf("%s: got %+v", name, u)
		}
	}
}

// metric is a line as GitLab takes it apart: comments cut, split at spaces, and
// no quote, which its shell words could read otherwise.
var metric = regexp.MustCompile(`^cimeter_job_[a-z_]+\{job="[A-Za-z0-9_.:/+-]*"\} [0-9.]+$`)

func TestOpenMetrics(t *testing.T) {
	var b bytes.Buffer
	if err := summary.OpenMetrics(&b, example()); err != nil {
		t.Fatal(err)
	}
	golden(t, "metrics.txt", b.String())
	for _, s := range append(commands, hostile...) {
		b.Reset()
		if err := summary.OpenMetrics(&b, named(example(), s)); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(b.String(), "\n")
		if len(lines) < 3 || lines[len(lines)-2] != "# EOF" || lines[len(lines)-1] != "" {
			t.Fatalf("%q: %q", s, b.String())
		}
		for _, line := range lines[:len(lines)-2] {
			if !metric.MatchString(line) {
				t.Errorf("%.60q gives the line %q", s, line)
			}
		}
	}
	b.Reset()
	if err := summary.OpenMetrics(&b, &cimeter.Record{}); err != nil || b.String() != "# EOF\n" {
		t.Errorf("what is not known: %q", b.String())
	}
}

func TestAnnotations(t *testing.T) {
	for url, want := range map[string]string{
		"https://x/builds/1?a=<b>": `{"cimeter":[{"external_link":{"label":"What this job cost","url":"https://x/builds/1?a=\u003cb\u003e"}}]}`,
		"":                         `{}`, "javascript:alert(1)": `{}`,
	} {
		var b bytes.Buffer
		if err := summary.Annotations(&b, url); err != nil || strings.TrimSpace(b.String()) != want {
			t.Errorf("%q: %s, %v", url, b.String(), err)
		}
	}
}

func TestDroneCard(t *testing.T) {
	card, err := summary.DroneCard(example(), usual(), "https://x/builds/1", "https://x/card.json")
	if err != nil {
		t.Fatal(err)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, card, "", "  "); err != nil {
		t.Fatal(err)
	}
	golden(t, "card.json", pretty.String()+"\n")
	log := string(summary.InLog(card))
	body, ok := strings.CutPrefix(log, "\x1b]1338;")
	body, end := strings.CutSuffix(body, "\x1b]0m\n")
	if got, err := base64.StdEncoding.DecodeString(body); !ok || !end || err != nil || !bytes.Equal(got, card) {
		t.Errorf("in the log: %q", log)
	}
	for _, s := range append(commands, hostile...) {
		r := named(example(), s)
		for range 50 {
			r.Stages = append(r.Stages, r.Stages[0])
		}
		card, err := summary.DroneCard(r, nil, "", "")
		var doc struct{ Data summary.Card }
		if err != nil || json.Unmarshal(card, &doc) != nil || len(summary.InLog(card)) > 16<<10 {
			t.Fatalf("%q: %d bytes, %v: %s", s, len(card), err, card)
		}
		for _, text := range []string{doc.Data.Summary, doc.Data.Wrong, doc.Data.Stages[0].Name} {
			if strings.ContainsAny(text, "[]<>`*!#$\\{}|&\n") {
				t.Errorf("%.60q gives %q in a card", s, text)
			}
		}
	}
}
