package summary_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/summary"
)

// changed is the example a day later: dearer, on another machine, with a stage
// less and one more.
func changed() *cimeter.Record {
	r := example()
	r.Key, r.Number, r.Machine, r.Ref = "gitlab/gitlab.example.com/4300", "4300", "ci-8", "feature/x"
	r.Usage = row{time: 262.5, cpu: 439.3, avg: 1.67, largest: 2, sd: 0.5, memory: 3200}.usage()
	r.Stages[3].Usage = row{name: "step_script", time: 223.6, cpu: 390.5, avg: 1.75, largest: 2, sd: 0.4, memory: 3200, disk: 1210, nets: 22.4}.usage()
	r.Stages[1].Usage = row{name: "get_sources", time: 4.3, cpu: 2.0, avg: 0.45, largest: 0.9, sd: 0.2, memory: 88, disk: 142, nets: 61}.usage()
	r.Stages[7].Name = "upload_reports"
	return r
}

func TestCompare(t *testing.T) {
	a, b := summary.Side{Record: example()}, summary.Side{Record: changed()}
	before := []*cimeter.Record{example(), example(), example(), example(), example()}
	median := summary.Side{Record: summary.Median(before), Median: len(before)}
	for name, c := range map[string]struct{ a, b summary.Side }{
		"compare": {a, b}, "compare-median": {median, b}, "compare-same": {a, a}, "compare-nothing": {summary.Side{Record: nothing()}, summary.Side{Record: nothing()}},
	} {
		t.Run(name, func(t *testing.T) {
			var text, md strings.Builder
			if err := summary.CompareText(&text, c.a, c.b, before, summary.TextOptions{UTF8: true, Width: summary.Columns}); err != nil {
				t.Fatal(err)
			}
			if err := summary.CompareMarkdown(&md, c.a, c.b, before); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".txt", text.String())
			golden(t, name+".md", md.String())
			for l := range strings.SplitSeq(text.String(), "\n") {
				if display.Width(l) > summary.Columns {
					t.Errorf("%d columns: %q", display.Width(l), l)
				}
			}
		})
	}
}

// A difference within what the job's builds differ by anyway is not marked.
func TestCompare_Spread(t *testing.T) {
	before := make([]*cimeter.Record, 5)
	for i := range before {
		before[i] = example()
		before[i].Usage.CPUSeconds.Total = cimeter.Some(300 + 50*float64(i))
	}
	for cpu, want := range map[float64]string{392.2 + 40: "~+10 %", 392.2 + 100: "~+25 %", 392.2 + 200: " +51 %", 100: " -75 %"} {
		b := example()
		b.Usage.CPUSeconds.Total = cimeter.Some(cpu)
		var s strings.Builder
		if err := summary.CompareText(&s, summary.Side{Record: example()}, summary.Side{Record: b}, before, summary.TextOptions{}); err != nil {
			t.Fatal(err)
		}
		_, total, _ := strings.Cut(s.String(), "\ntotal ")
		if total, _, _ = strings.Cut(total, "\n"); !strings.Contains(total, want) {
			t.Errorf("%g s: %q: want %q", cpu, total, want)
		}
	}
}

// Stages are joined by name and by their place among those of the same name.
func TestPairs(t *testing.T) {
	stages := func(names ...string) *cimeter.Record {
		r := &cimeter.Record{}
		for i, n := range names {
			r.Stages = append(r.Stages, cimeter.Stage{Name: n, Usage: cimeter.Usage{WallSeconds: float64(i)}})
		}
		return r
	}
	var got []string
	for _, p := range summary.Pairs(stages("a", "b", "b", "c"), stages("b", "a", "b", "b", "d")) {
		side := func(u *cimeter.Usage) string {
			if u == nil {
				return "-"
			}
			return string('0' + rune(u.WallSeconds))
		}
		got = append(got, p.Name+side(p.A)+side(p.B))
	}
	if want := "a01 b10 b22 c3- b-3 d-4"; strings.Join(got, " ") != want {
		t.Errorf("got %v: want %s", got, want)
	}
}

func TestCompareJSON(t *testing.T) {
	var s strings.Builder
	if err := summary.CompareJSON(&s, summary.Side{Record: example(), Median: 20}, summary.Side{Record: changed()}); err != nil {
		t.Fatal(err)
	}
	var c summary.Comparison
	if err := json.Unmarshal([]byte(s.String()), &c); err != nil {
		t.Fatal(err)
	}
	if c.MedianA != 20 || len(c.Stages) != 9 || c.Figures[1].Name != "cpu_seconds.total" || c.Figures[1].Delta.Value < 47 || c.Figures[1].Delta.Value > 47.2 {
		t.Errorf("got %+v", c)
	}
	for _, st := range c.Stages {
		if st.Name == "upload_reports" && (st.InA || !st.InB || st.Figures[0].A.Known || st.Figures[0].Delta.Known) {
			t.Errorf("only B has it: %+v", st)
		}
	}
}

// A row of CSV is a figure of the builds or of a stage; what one side lacks is empty.
func TestCompareCSV(t *testing.T) {
	var s strings.Builder
	b := changed()
	b.Stages[0].Name = "=1+1"
	if err := summary.CompareCSV(&s, example(), b); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(s.String())).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	c := summary.Compare(example(), b)
	want := 1 + len(c.Figures)
	for _, st := range c.Stages {
		want += len(st.Figures)
	}
	if len(rows) != want {
		t.Errorf("%d rows, want %d", len(rows), want)
	}
	found := map[string][]string{}
	for _, r := range rows {
		found[strings.Join(r[:3], "|")] = r[3:]
	}
	if got := found["stage|nth|figure"]; !slices.Equal(got, []string{"a", "b", "delta"}) {
		t.Errorf("head %q", got)
	}
	total, only := found["||cpu_seconds.total"], found["'=1+1|1|cpu_seconds.total"]
	if len(total) != 3 || total[0] != fmt.Sprint(c.Figures[1].A.Value) || total[1] != fmt.Sprint(c.Figures[1].B.Value) || total[2] == "" {
		t.Errorf("CPU of the builds: %q", total)
	}
	if len(only) != 3 || only[0] != "" || only[1] == "" || only[2] != "" {
		t.Errorf("CPU of a stage that only B has: %q", only)
	}
}

// No name of a build gets out of its cell or moves a cursor.
func FuzzCompare(f *testing.F) {
	f.Add("evil\x1b[2J`|\n/close", 1.0)
	f.Add("日本\u202e", -1e300)
	f.Fuzz(func(t *testing.T, s string, v float64) {
		b := changed()
		b.Name, b.Ref, b.Machine, b.Stages[2].Name, b.SHA = s, s, s, s, s
		b.Usage.CPUSeconds.Total = cimeter.Some(v)
		b.Stages[2].Usage.WallSeconds = v
		var text, md strings.Builder
		if err := summary.CompareText(&text, summary.Side{Record: example()}, summary.Side{Record: b}, nil, summary.TextOptions{UTF8: true}); err != nil {
			t.Fatal(err)
		}
		if err := summary.CompareMarkdown(&md, summary.Side{Record: example()}, summary.Side{Record: b}, nil); err != nil {
			t.Fatal(err)
		}
		for l := range strings.SplitSeq(text.String()+md.String(), "\n") {
			if display.Clean(l) != l {
				t.Errorf("%q", l)
			}
		}
		for l := range strings.SplitSeq(md.String(), "\n") {
			if l != "" && !strings.HasPrefix(l, "|") && !strings.HasPrefix(l, "**cimeter**") {
				t.Errorf("a line of a note starts %q", l)
			}
		}
	})
}

// A median has waited as long as its builds did in the middle.
func TestMedian_queue(t *testing.T) {
	var rs []*cimeter.Record
	for _, waited := range []time.Duration{time.Second, 3 * time.Second, 90 * time.Second} {
		r := example()
		r.QueuedAt = r.StartedAt.Add(-waited)
		rs = append(rs, r)
	}
	unknown := example()
	unknown.QueuedAt = time.Time{}
	b := example()
	b.QueuedAt = b.StartedAt.Add(-23 * time.Second)
	got := summary.Sentence(summary.Side{Record: summary.Median(append(rs, unknown)), Median: 4}, summary.Side{Record: b})
	if !strings.HasSuffix(got, "; 20.0 s more queue.") {
		t.Errorf("%s want 20.0 s more queue", got)
	}
	if got := summary.Sentence(summary.Side{Record: summary.Median([]*cimeter.Record{unknown}), Median: 1}, summary.Side{Record: b}); strings.Contains(got, "queue") {
		t.Errorf("%s want no word of a queue that is not known", got)
	}
}
