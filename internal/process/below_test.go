package process_test

import (
	"os"
	"slices"
	"testing"

	"github.com/cimeter/cimeter/internal/process"
)

func TestFS_AppendBelow(t *testing.T) {
	fs := process.Open("")
	c, other := run(t), run(t)
	do(t, c, "start")
	got := fs.AppendBelow(nil, os.Getpid(), 1000)
	for _, pid := range []int{os.Getpid(), c.pid(), other.pid()} {
		if !slices.Contains(got, pid) {
			t.Errorf("%v without %d", got, pid)
		}
	}
	below := fs.AppendBelow([]int{7}, c.pid(), 1000)
	if len(below) != 3 || below[0] != 7 || below[1] != c.pid() || slices.Contains(below, other.pid()) {
		t.Errorf("below one child: %v", below)
	}
	if got := fs.AppendBelow(nil, os.Getpid(), 2); len(got) != 2 {
		t.Errorf("%v, want two at most", got)
	}
	if got := fs.AppendBelow(nil, 1<<30, 10); len(got) != 1 {
		t.Errorf("of no process: %v", got)
	}
}
