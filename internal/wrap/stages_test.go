package wrap_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
)

// TestRun_StagesSumUp has stages write directly and through the page cache, in
// a run inside a run, and holds that they add up to the total, that nothing
// direct is missing, and that each has a memory peak of its own.
func TestRun_StagesSumUp(t *testing.T) {
	needRoot(t)
	exe, dir := self(t), t.TempDir()
	const script = `
"$1" --stage direct sh -c 'unset ` + asProgram + `; exec "$0" helper-write "$1/direct" 4194304' "$1" "$2" || exit 1
"$1" --stage outer sh -c '
	"$0" --stage deep sh -c "unset ` + asProgram + `; exec \$0 helper-write \$1/deep 1048576" "$0" "$1" || exit 1
	head -c 2000000 /dev/zero >"$1/buffered"' "$1" "$2" || exit 2
"$1" --stage memory sh -c 'unset ` + asProgram + `; exec "$0" helper-touch 33554432' "$1" || exit 3
unset ` + asProgram + `
"$1" helper-write "$2/rest" 524288`
	rep, out := metered(t, "sh", "-c", script, "sh", exe, dir)
	need(t, !strings.Contains(out, "invalid argument"), "a file system with direct IO")
	r := &rep.Record
	direct := map[string]uint64{"direct": 4 << 20, "outer/deep": 1 << 20, "rest": 512 << 10}
	var sum cimeter.Usage
	var io cimeter.ReadWrite[uint64]
	for _, s := range r.Stages {
		u := &s.Usage
		if u.IOBytes == nil {
			t.Fatalf("stage %s has no block IO", s.Name)
		}
		io.Read, io.Write = io.Read+u.IOBytes.Read, io.Write+u.IOBytes.Write
		sum.CPUSeconds.Total.Value += u.CPUSeconds.Total.Value
		sum.CPUSeconds.User.Value += u.CPUSeconds.User.Value
		sum.CPUSeconds.System.Value += u.CPUSeconds.System.Value
		if want := direct[s.Name]; u.IOBytes.Write < want || want > 0 && s.Name != "rest" && u.IOBytes.Write > want+256<<10 {
			t.Errorf("stage %s: %d bytes written, want %d and little more", s.Name, u.IOBytes.Write, want)
		}
		switch {
		case s.Boundary == cimeter.BoundaryCommand || s.Name == "outer": // what others leave of a run
		case u.MemoryBytes == nil || !u.MemoryBytes.Peak.Known || u.MemoryBytes.Peak.Value > r.Usage.MemoryBytes.Peak.Value:
			t.Errorf("stage %s: memory %+v, want a peak within that of the whole, %+v", s.Name, u.MemoryBytes, r.Usage.MemoryBytes)
		case s.Name == "memory" && u.MemoryBytes.Peak.Value < 32<<20:
			t.Errorf("memory %+v, want 32 MiB and more", u.MemoryBytes)
		}
	}
	u := &r.Usage
	if io != *u.IOBytes {
		t.Errorf("stages sum up to %+v, total %+v", io, *u.IOBytes)
	}
	for name, v := range map[string][2]float64{
		"CPU":    {sum.CPUSeconds.Total.Value, u.CPUSeconds.Total.Value},
		"user":   {sum.CPUSeconds.User.Value, u.CPUSeconds.User.Value},
		"system": {sum.CPUSeconds.System.Value, u.CPUSeconds.System.Value},
	} {
		if math.Abs(v[0]-v[1]) > 1e-6 {
			t.Errorf("%s: stages sum up to %v s, total %v s", name, v[0], v[1])
		}
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 4 {
		t.Errorf("files %v", files)
	}
}
