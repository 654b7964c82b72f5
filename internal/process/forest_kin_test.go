package process_test

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/cimeter/cimeter/internal/process"
)

// A process is of the family that it was born into, told of or not, and of no
// other; who is no descendant of a runner is of none.
func TestForest_Of(t *testing.T) {
	g := grow(t)
	one, first := g.first()
	two, second := g.first()
	if got := g.Of(one.pid()); got != first {
		t.Errorf("the first process of a family is of %v", got)
	}
	if got := g.Of(two.pid()); got != second || first == second {
		t.Errorf("the first process of another is of %v", got)
	}
	// Its descendants, of whom no event told.
	do(t, one, "start", "tell start")
	below := kid(t, kid(t, one.pid()))
	looked := len(g.looks)
	if got := g.Of(below); got != first {
		t.Errorf("a grandchild is of %v", got)
	}
	if first.Living() != 3 || len(g.looks) != looked+2 {
		t.Errorf("%d live, %d were looked at: want its parent to be taken up, too", first.Living(), len(g.looks)-looked)
	}
	// A child of the runner's that no event told of is the first of a family.
	three := run(t)
	if got := g.Of(three.pid()); got == nil || got == first || got == second || got.Root != three.pid() || len(g.born) != 3 {
		t.Errorf("a child of the runner is of %+v", got)
	}
	for what, pid := range map[string]int{"the runner": os.Getpid(), "its parent": os.Getppid(), "init": 1, "nobody": 1 << 22} {
		if got := g.Of(pid); got != nil {
			t.Errorf("%s is of %+v", what, got)
		}
	}
	// A family that was let go has nobody.
	g.Drop(first)
	if g.Of(below) != nil || g.Of(one.pid()) != nil {
		t.Error("a process is of a family that was let go")
	}
	do(t, one, "tell wait", "wait")
}

// Who is of a family by what it says itself is a member to be metered, and none
// to be told anything; nor is what it starts.
func TestForest_Of_claimed(t *testing.T) {
	g := grow(t)
	c, f := g.first()
	script := exec.Command("/bin/sh", "-c", "setsid sh -c 'sleep 1000 & echo $! $$; wait' &")
	out, err := script.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	var below, orphan int
	if _, err := fmt.Fscan(out, &below, &orphan); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-orphan, syscall.SIGKILL) })
	if err := script.Wait(); err != nil {
		t.Fatal(err)
	}
	g.orphan = func(pid int) *process.Family {
		if pid == orphan {
			return f
		}
		return nil
	}
	if err := g.Scan(true); err != nil {
		t.Fatal(err)
	}
	if !g.Lives(orphan) || !g.Lives(below) {
		t.Fatal("the orphan is not followed")
	}
	if g.Of(orphan) != nil || g.Of(below) != nil {
		t.Error("who is of a family by what it says is told of it")
	}
	if g.Of(c.pid()) != f {
		t.Error("and who is by birth is not")
	}
}
