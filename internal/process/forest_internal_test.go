package process

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
)

func TestTreeNode_children(t *testing.T) {
	// waited is what the account shows; base and after are what the ended had used.
	n := &treeNode{readAt: 100}
	step := func(what string, want uint64) {
		t.Helper()
		if got := n.children(); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	n.ended(30, 90)
	step("an end before the reading that the account may have", 30)
	n.waited = 40
	step("the account has more", 40)
	n.ended(10, 95)
	step("another that it has", 40)
	n.ended(7, 101)
	step("one after the reading", 47)
	n.ended(5, 0)
	step("one at a time not known is taken for one before", 52)
}

func TestFamily_sum(t *testing.T) {
	f := &Family{}
	f.sum(totals{cpu: 100, user: 60, system: 20})
	if f.told.user != 75 || f.told.system != 25 {
		t.Errorf("%+v: want 100 divided as 60 to 20", f.told)
	}
	f.sum(totals{cpu: 50, user: 60, system: 20})
	if f.told.cpu != 100 {
		t.Errorf("%+v: a total fell", f.told)
	}
	f.outside = 30
	f.sum(totals{cpu: 180, user: 60, system: 60})
	if f.told.cpu != 150 || f.told.user != 100 || f.told.system != 50 {
		t.Errorf("%+v: want 150, of the new 50 one half each", f.told)
	}
}

// A process whose end was not told is not the one that has its number now.
func TestForest_sameAs(t *testing.T) {
	f := &Forest{}
	const start = 1000 // ticks
	began := f.startOf(start)
	for what, c := range map[string]struct {
		node treeNode
		want bool
	}{
		"the same start":                        {treeNode{start: start}, true},
		"another start":                         {treeNode{start: start - 1, born: began}, false},
		"told of within the tick":               {treeNode{born: began + tick/2}, true},
		"told of a moment later":                {treeNode{born: began + toldWithin/2}, true},
		"told of long before":                   {treeNode{born: began - tick}, false},
		"told of when the other was there long": {treeNode{born: began + toldWithin + tick}, false},
	} {
		if got := f.sameAs(&c.node, start); got != c.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}

func TestParseAccount(t *testing.T) {
	const line = "1467 ((sd) pam) S 1465 1465 1465 0 -1 4194624 87 0 0 0 11 12 13 14 20 0 3 0 3315 172462080 896 18446744073709551615\n"
	var a account
	if err := parseAccount([]byte(line), &a); err != nil {
		t.Fatal(err)
	}
	if string(a.comm) != "(sd) pam" || a.parent != 1465 || a.user != 11 || a.system != 12 || a.childrenUser != 13 ||
		a.childrenSystem != 14 || a.threads != 3 || a.start != 3315 || a.resident != 896 {
		t.Errorf("%+v", a)
	}
	for _, bad := range []string{"", "1 (a", "1 (a) S 1 2 3"} {
		if parseAccount([]byte(bad), &a) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func FuzzParseAccount(f *testing.F) {
	f.Add([]byte("1467 ((sd-pam)) S 1465 1465 1465 0 -1 4194624 87 0 0 0 0 0 0 0 20 0 1 0 3315 172462080 896 18446744073709551615"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseStat(b)
		if err != nil {
			return // the other reader takes less
		}
		var a account
		if err := parseAccount(b, &a); err != nil {
			t.Fatalf("parseStat takes it, parseAccount: %v", err)
		}
		if time.Duration(a.user)*tick != s.UserTime || a.start != s.StartTime || string(a.comm) != s.Comm {
			t.Errorf("%+v, want %+v", a, s)
		}
	})
}

func TestParseRollup(t *testing.T) {
	const text = "55d9b3e84000-7ffcd96f4000 ---p 00000000 00:00 0                          [rollup]\n" +
		"Rss:                1696 kB\nPss:                 173 kB\nPss_Dirty:           112 kB\nPss_Anon:            112 kB\n"
	if rss, pss, err := parseRollup([]byte(text)); err != nil || rss != 1696<<10 || pss != 173<<10 {
		t.Errorf("%d, %d, %v", rss, pss, err)
	}
	for _, bad := range []string{"", "Rss: 12 kB\n", "Rss: 12 kB\nPss: x kB\n", "Rss: 12 kB\nPss: 12 MB\n", "Rss: 12 kB\nPss: -1 kB\n", "Rss: 12 kB\nPss:\n"} {
		if _, _, err := parseRollup([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func FuzzParseRollup(f *testing.F) {
	f.Add([]byte("Rss: 1696 kB\nPss: 173 kB\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		rss, pss, err := parseRollup(b)
		if err != nil && (rss != 0 || pss != 0) || (rss|pss)&1023 != 0 {
			t.Errorf("%d, %d, %v", rss, pss, err)
		}
	})
}

func TestForest_shareDue(t *testing.T) {
	f := &Forest{rounds: 100}
	const mib = 1 << 20
	for what, c := range map[string]struct {
		node treeNode
		want bool
	}{
		"never asked":         {treeNode{resident: mib}, true},
		"asked just now":      {treeNode{resident: 9 * mib, shareOf: 9 * mib, shareRound: 99}, false},
		"asked long ago":      {treeNode{resident: 9 * mib, shareOf: 9 * mib, shareRound: 100 - shareRounds}, true},
		"grown by a little":   {treeNode{resident: 12 * mib, shareOf: 9 * mib, shareRound: 99}, false},
		"grown by a lot":      {treeNode{resident: 13 * mib, shareOf: 9 * mib, shareRound: 99}, true},
		"shrunk":              {treeNode{resident: 2 * mib, shareOf: 9 * mib, shareRound: 99}, true},
		"small and has grown": {treeNode{resident: mib, shareOf: mib / 4, shareRound: 99}, false},
	} {
		if got := f.shareDue(&c.node); got != c.want {
			t.Errorf("%s: %t", what, got)
		}
	}
	n := treeNode{resident: 3 * mib, shared: 4 * mib}
	if n.memory() != 0 {
		t.Errorf("%d bytes of one that has shrunk, want none", n.memory())
	}
}

func FuzzEntries(f *testing.F) {
	f.Add([]byte("\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x18\x00\x0412\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		forest := &Forest{seen: make(map[int]sight), foreign: make(map[int]struct{})}
		forest.entries(b)
		for pid := range forest.seen {
			if pid <= 0 {
				t.Errorf("process %d", pid)
			}
		}
	})
}

// The account of a process is not read of another one that has its number since.
func TestForest_read_reusedNumber(t *testing.T) {
	f, err := Open("").NewForest(ForestOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := f.node(os.Getpid())
	if err := f.read(n); err != nil || n.start == 0 {
		t.Fatalf("start %d, %v", n.start, err)
	}
	waited, at := n.waited, n.readAt
	f.shut(n)
	n.start--
	if err := f.read(n); !errors.Is(err, cimeter.ErrGone) || n.waited != waited || n.readAt != at {
		t.Errorf("read of a process that another one's number has: %v, want gone and nothing taken", err)
	}
}
