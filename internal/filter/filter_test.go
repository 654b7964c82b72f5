package filter_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]filter.Filter{
		"":                    nil,
		"  lint\t":            {filter.Is(filter.Text, "lint")},
		"project:group/app":   {filter.Is(filter.Project, "group/app")},
		"name:lint":           {filter.Is(filter.Job, "lint")},
		"-result:success":     {{Not: true, Field: filter.Result, Op: filter.Eq, Text: "success"}},
		`job:"build and \"t"`: {filter.Is(filter.Job, `build and "t`)},
		"project:group/*":     {{Field: filter.Project, Op: filter.Eq, Text: "group/", Prefix: true}},
		"cpu>600s":            {{Field: filter.CPU, Op: filter.Gt, Number: 600e6, Unit: filter.Microseconds}},
		"cpu:>600s":           {{Field: filter.CPU, Op: filter.Gt, Number: 600e6, Unit: filter.Microseconds}},
		"wall:<=1.5h":         {{Field: filter.Wall, Op: filter.Le, Number: 5400e6, Unit: filter.Microseconds}},
		"mem>90%":             {{Field: filter.Memory, Op: filter.Gt, Number: 900, Unit: filter.Thousandths}},
		"mem:4GiB":            {{Field: filter.Memory, Op: filter.Ge, Number: 4 << 30, Unit: filter.Bytes}},
		"io<1k net>=2":        {{Field: filter.IO, Op: filter.Lt, Number: 1024, Unit: filter.Bytes}, {Field: filter.Net, Op: filter.Ge, Number: 2, Unit: filter.Bytes}},
		"since:7d":            {{Field: filter.Since, Op: filter.Eq, Ago: 7 * 24 * time.Hour}},
		"before:2026-11-30":   {{Field: filter.Before, Op: filter.Eq, At: time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)}},
		`"a:b" "-c"`:          {filter.Is(filter.Text, "a:b"), filter.Is(filter.Text, "-c")},
		"group/app":           {filter.Is(filter.Text, "group/app")},
	} {
		got, err := filter.Parse(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Parse(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestParse_refuses(t *testing.T) {
	for text, want := range map[string]string{
		"colour:red":                 "cpu, event, io, job, key, machine, mem, metered, net, pipeline, project, queue, ref",
		"project:":                   "a value",
		"project>x":                  "project:value",
		"cpu>lots":                   "90s",
		"mem>-1":                     "512MiB",
		"net>90%":                    "512MiB",
		"since:yesterday":            "24h",
		"stage:lin*":                 "a whole value of stage",
		"runner:docker-*":            "a whole value of runner",
		"verdict:*":                  "a whole value of verdict",
		"tag:doc*":                   "a whole value of tag",
		"metered:y*":                 "a whole value of metered",
		"wall>1*":                    "a value without *",
		`job:"open`:                  "closing quote",
		`job:"a"b`:                   "a space",
		"a*b":                        "quotes",
		"-":                          "a word",
		"ab12:x":                     "a field before",
		"a\x00":                      "UTF-8",
		"\xff":                       "UTF-8",
		strings.Repeat("x ", 33):     "32 terms",
		strings.Repeat("x", 1025):    "1024 bytes",
		"cpu>99999999999999999999h":  "90s",
		"mem>99999999999999999999GB": "512MiB",
	} {
		f, err := filter.Parse(text)
		var e *filter.Error
		if !errors.As(err, &e) || !errors.Is(err, cimeter.ErrInvalid) || f != nil {
			t.Errorf("Parse(%q) = %v, %v; want an invalid filter", text, f, err)
			continue
		}
		if !strings.Contains(e.Want, want) {
			t.Errorf("Parse(%q): wants %q; want it to name %q", text, e.Want, want)
		}
		if e.Start < 0 || e.End > len(text) || e.Start >= e.End {
			t.Errorf("Parse(%q): bad term at %d to %d", text, e.Start, e.End)
		}
	}
}

func TestError_tellsWhere(t *testing.T) {
	_, err := filter.Parse("lint colour:red x")
	var e *filter.Error
	if !errors.As(err, &e) || e.Start != 5 || e.End != 15 || e.Term != "colour:red" {
		t.Errorf("got %+v", e)
	}
}

func TestFilter_Resolve(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f, err := filter.Parse("since:24h before:2026-11-30")
	if err != nil {
		t.Fatal(err)
	}
	got := f.Resolve(now)
	if !got[0].At.Equal(now.AddDate(0, 0, -1)) || got[0].Ago != 0 || !got[1].At.Equal(now.Add(-12*time.Hour)) {
		t.Errorf("got %+v", got)
	}
	if !f[0].At.IsZero() {
		t.Error("Resolve wrote to its receiver")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "lint", `-job:"a \"b\\"* x`, "cpu>=1.5h mem<90.5% io>1.5GiB", "since:7d before:2026-11-30T12:00:00.5Z",
		"project:*", `"a:b" -"c d"`, "result:", "mem>4g", "queue>0s", "\u2003x\u00a0y", `ref:"<x"`, "wall>0.0000001s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		parsed, err := filter.Parse(s)
		if err != nil {
			if parsed != nil || !errors.Is(err, cimeter.ErrInvalid) {
				t.Fatalf("Parse(%q) = %v, %v", s, parsed, err)
			}
			return
		}
		printed := parsed.String()
		again, err := filter.Parse(printed)
		if len(printed) > filter.MaxBytes {
			return // one form can be longer than what was typed
		}
		if err != nil || !reflect.DeepEqual(parsed, again) {
			t.Fatalf("Parse(%q) prints %q, which reads as %+v, %v; want %+v", s, printed, again, err, parsed)
		}
	})
}
