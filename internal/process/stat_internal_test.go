package process

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
)

// rest is what follows the parent in a line of stat.
const rest = " 1465 1465 0 -1 4194624 87 0 0 0 12 34 56 78 20 0 3 0 3315 172462080 896 18446744073709551615 1 1 0 0 0 0 671173123 4096 1260 0 0 0 17 1 0 0 0 0 0\n"

func TestParseStat(t *testing.T) {
	// Names of public bug reports, and some as bad.
	for _, c := range []struct {
		line, comm string
		pid        int
		state      byte
		parent     int
	}{
		{line: "5768 (Plex New Transc) S 1264", comm: "Plex New Transc", pid: 5768, state: 'S', parent: 1264},
		{line: "1467 ((sd-pam)) S 1465", comm: "(sd-pam)", pid: 1467, state: 'S', parent: 1465},
		{line: "7014 (:-) 1 2 3 4 5 6) R 5963", comm: ":-) 1 2 3 4 5 6", pid: 7014, state: 'R', parent: 5963},
		{line: "2021132 (myexec (tb) xyz) R 1491839", comm: "myexec (tb) xyz", pid: 2021132, state: 'R', parent: 1491839},
		{line: "25097 (sle ep) S 6632", comm: "sle ep", pid: 25097, state: 'S', parent: 6632},
		{line: "31 (executable-(nam) Z 30", comm: "executable-(nam", pid: 31, state: 'Z', parent: 30},
		{line: "2 () S 0", comm: "", pid: 2, state: 'S', parent: 0},
		{line: "9 (a\nb) S 1) S 8", comm: "a\nb) S 1", pid: 9, state: 'S', parent: 8},
		{line: "9 (\xff\xfe) D 8", comm: "\xff\xfe", pid: 9, state: 'D', parent: 8},
	} {
		t.Run(c.line, func(t *testing.T) {
			got, err := parseStat([]byte(c.line + rest))
			if err != nil {
				t.Fatal(err)
			}
			want := Stat{Pid: c.pid, Comm: c.comm, State: c.state, Parent: c.parent,
				UserTime: 120 * time.Millisecond, SystemTime: 340 * time.Millisecond,
				ChildrenUserTime: 560 * time.Millisecond, ChildrenSystemTime: 780 * time.Millisecond,
				Threads: 3, StartTime: 3315, ResidentBytes: 896 * uint64(os.Getpagesize())}
			if got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestParseStat_refuses(t *testing.T) {
	for name, line := range map[string]string{
		"nothing":             "",
		"no brackets":         "12 cat S 1" + rest,
		"no closing bracket":  "12 (cat S 1" + rest,
		"brackets reversed":   "12 )cat( S 1" + rest,
		"no pid":              "(cat) S 1" + rest,
		"pid 0":               "0 (cat) S 1" + rest,
		"too few fields":      "12 (cat) S 1 1465 1465 0 -1 4194624 87 0 0 0 12 34",
		"letters in a number": "12 (cat) S 1" + strings.Replace(rest, " 12 ", " 1x ", 1),
		"negative time":       "12 (cat) S 1" + strings.Replace(rest, " 12 ", " -1 ", 1),
		"time over 292 years": "12 (cat) S 1" + strings.Replace(rest, " 12 ", " 922337203686 ", 1),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := parseStat([]byte(line)); !errors.Is(err, cimeter.ErrInvalid) || got != (Stat{}) {
				t.Errorf("got %+v, %v, want nothing and invalid", got, err)
			}
		})
	}
}

func TestParseIO(t *testing.T) {
	const text = "rchar: 323934931\nwchar: 323929600\nsyscr: 632687\nsyscw: 632675\nread_bytes: 4096\nwrite_bytes: 323932160\ncancelled_write_bytes: 0\nnew_line: many\n"
	got, err := parseIO([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if want := (IO{ReadBytes: 4096, WriteBytes: 323932160, ReadCalls: 632687, WriteCalls: 632675}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, bad := range []string{"", "syscr: 1\n", strings.Replace(text, "4096", "-1", 1), strings.Replace(text, "4096", "", 1)} {
		if got, err := parseIO([]byte(bad)); !errors.Is(err, cimeter.ErrInvalid) || got != (IO{}) {
			t.Errorf("%q: got %+v, %v, want nothing and invalid", bad, got, err)
		}
	}
}

func TestParseEnviron(t *testing.T) {
	env := "CI=true\x00CI_JOB_TOKEN=s3cr3t\x00EMPTY=\x00=odd\x00noequals\x00CI=false\x00EQ=a=b\x00CI_JOB=x\x00TAIL=cut"
	got := parseEnviron([]byte(env), []string{"CI", "EMPTY", "EQ", "noequals", "", "ABSENT", "TAIL"})
	want := map[string]string{"CI": "true", "EMPTY": "", "EQ": "a=b", "TAIL": "cut"}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for k, v := range want {
		if g, ok := got[k]; !ok || g != v {
			t.Errorf("%s: got %q (%v), want %q", k, g, ok, v)
		}
	}
	if got := parseEnviron([]byte(env), nil); got != nil {
		t.Errorf("nothing allowed: got %v", got)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("7014 (:-) 1 2 3 4 5 6) R 5963" + rest))
	f.Add([]byte("1467 ((sd-pam)) S 1465"))
	f.Add([]byte(") ("))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseStat(b)
		if err != nil && s != (Stat{}) {
			t.Errorf("error with a result: %+v, %v", s, err)
		}
		if err == nil && (s.Pid <= 0 || s.UserTime < 0 || s.ChildrenSystemTime < 0 || s.Threads < 0) {
			t.Errorf("out of range: %+v", s)
		}
	})
}

func FuzzParseIO(f *testing.F) {
	f.Add([]byte("syscr: 632687\nsyscw: 632675\nread_bytes: 0\nwrite_bytes: 323932160\n"))
	f.Add([]byte("syscr\n:\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if io, err := parseIO(b); err != nil && io != (IO{}) {
			t.Errorf("error with a result: %+v, %v", io, err)
		}
	})
}

func FuzzParseStatm(f *testing.F) {
	f.Add([]byte("4731 1210 903 203 0 873 0\n"))
	f.Add([]byte("4731"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if pages, err := parseStatm(b); err != nil && pages != 0 {
			t.Errorf("error with a result: %d, %v", pages, err)
		}
	})
}

func FuzzParseEnviron(f *testing.F) {
	f.Add([]byte("CI=true\x00SECRET=s3cr3t\x00CI"))
	f.Add([]byte("\x00=\x00\x00CI=\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, value := range parseEnviron(b, []string{"CI"}) {
			if name != "CI" || strings.ContainsRune(value, 0) || !strings.Contains(string(b), "CI="+value) {
				t.Errorf("got %q = %q", name, value)
			}
		}
	})
}
