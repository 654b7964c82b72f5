package filesd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cimeter/cimeter/internal/discover/filesd"
	"github.com/cimeter/cimeter/internal/discover/targets"
)

func group(address string) []targets.Group {
	return []targets.Group{{Targets: []string{address}, Labels: map[string]string{"__meta_cimeter_machine": address}}}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cimeter.json")
	f := filesd.New(path)
	for want, groups := range map[string][]targets.Group{"[]\n": nil, "ci-7:1": group("ci-7:1")} {
		if err := f.Write(groups); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%q, %v: want %q", b, err, want)
		}
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v: want it readable by Prometheus' user", st, err)
	}
	same := group("ci-8:1")
	if err := f.Write(same); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Write(same); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("written again though nothing changed: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := f.Write(same); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("%v: want it back when somebody removed it", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left %v behind", left)
	}
	for range 2 {
		if err := f.Remove(); err != nil {
			t.Error(err)
		}
	}
	if err := filesd.New(filepath.Join(dir, "none", "x.json")).Write(nil); err == nil || !strings.HasPrefix(err.Error(), "write targets: ") {
		t.Errorf("%v: want a folder that is not there told", err)
	}
}

// A reader never sees half a list.
func TestFile_wholeForReaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cimeter.json")
	f := filesd.New(path)
	lists := [][]targets.Group{nil, group("a:1"), make([]targets.Group, 0, 2000)}
	for range 2000 {
		lists[2] = append(lists[2], group("ci-1234.example.com:9808")...)
	}
	if err := f.Write(nil); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			b, err := os.ReadFile(path)
			var got []targets.Group
			if err == nil {
				err = json.Unmarshal(b, &got)
			}
			if n := len(got); err != nil || n != 0 && n != 1 && n != 2000 {
				t.Errorf("%d groups, %v", n, err)
				return
			}
		}
	})
	for i := range 60 {
		if err := f.Write(lists[i%3]); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	wg.Wait()
}
