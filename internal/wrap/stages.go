package wrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cimeter/cimeter"
)

// DirVariable names the folder in which runs inside a run leave their stages.
const DirVariable = "CIMETER_RUN_DIR"

// Bounds of what is taken from inner runs: 200 stages are more than a person
// reads, and one is some 2 KiB.
const (
	maxStages    = 200
	maxStageFile = 64 << 10
	maxStageIO   = 1 << 55 // bytes: of so many stages the sum still fits 64 bits
)

// mailbox is the folder of a run in which inner runs leave their stages.
type mailbox struct{ dir string }

// newMailbox makes a folder that only this user may use.
func newMailbox(name string) (mailbox, error) {
	dir := filepath.Join(os.TempDir(), name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return mailbox{}, err
	}
	return mailbox{dir}, nil
}

// sweep removes this user's folders of runs of the pid namespace ns that were
// killed.
func (m mailbox) sweep(ns uint64) {
	if m.dir == "" {
		return
	}
	dirs, err := filepath.Glob(filepath.Join(filepath.Dir(m.dir), prefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		if pid, ok := maker(filepath.Base(dir), ns); ok && syscall.Kill(pid, 0) == syscall.ESRCH {
			if old, ok := outerMailbox(dir); ok {
				old.remove()
			}
		}
	}
}

// outerMailbox returns the folder of the run around this one. It must be this
// user's alone: a variable that survived its run, or points anywhere else, is
// no sign of a run around.
func outerMailbox(dir string) (mailbox, bool) {
	if !filepath.IsAbs(dir) {
		return mailbox{}, false
	}
	fi, err := os.Lstat(dir)
	if err != nil || !fi.IsDir() || fi.Mode().Perm() != 0o700 {
		return mailbox{}, false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return mailbox{dir}, ok && int(st.Uid) == os.Geteuid()
}

// put leaves stages, all that one inner run made, for the run around it. The
// file is there whole or not at all.
func (m mailbox) put(stages []cimeter.Stage) error {
	if len(stages) == 0 {
		return nil
	}
	for n, s := range stages {
		b, err := json.Marshal(s)
		if err != nil {
			return fmt.Errorf("hand over stage %s: %w", s.Name, err)
		}
		if len(b) > maxStageFile {
			return fmt.Errorf("hand over stage %s: %d bytes, want at most %d", s.Name, len(b), maxStageFile)
		}
		name := fmt.Sprintf("%020d-%d-%03d", s.StartedAt.UnixNano(), os.Getpid(), n)
		tmp := filepath.Join(m.dir, name+".tmp")
		err = os.WriteFile(tmp, b, 0o600)
		if err == nil {
			err = os.Rename(tmp, filepath.Join(m.dir, name+".json"))
		}
		if err != nil {
			_ = os.Remove(tmp)
			return fmt.Errorf("hand over stage %s: %w", s.Name, err)
		}
	}
	return nil
}

// take returns the stages that inner runs left, in the order of their start,
// and how many could not be used.
func (m mailbox) take() (stages []cimeter.Stage, dropped int) {
	if m.dir == "" {
		return nil, 0
	}
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return nil, 0
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		s, err := readStage(filepath.Join(m.dir, e.Name()))
		if err != nil || len(stages) == maxStages {
			dropped++
			continue
		}
		stages = append(stages, s)
	}
	slices.SortStableFunc(stages, func(a, b cimeter.Stage) int { return a.StartedAt.Compare(b.StartedAt) })
	attempts := map[string]int{}
	for i := range stages {
		attempts[stages[i].Name]++
		stages[i].Attempt = attempts[stages[i].Name]
	}
	return stages, dropped
}

func (m mailbox) remove() {
	if m.dir != "" {
		_ = os.RemoveAll(m.dir)
	}
}

func readStage(path string) (cimeter.Stage, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return cimeter.Stage{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxStageFile+1))
	if err != nil {
		return cimeter.Stage{}, err
	}
	return decodeStage(b)
}

// decodeStage reads a stage that an inner run, or anything else inside the
// command, has written.
func decodeStage(b []byte) (cimeter.Stage, error) {
	var s cimeter.Stage
	if len(b) > maxStageFile {
		return s, fmt.Errorf("stage of %d bytes: want at most %d: %w", len(b), maxStageFile, cimeter.ErrInvalid)
	}
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&s); err != nil {
		return cimeter.Stage{}, fmt.Errorf("stage: %w", errors.Join(err, cimeter.ErrInvalid))
	}
	s.Name = clean(s.Name)
	u := &s.Usage
	switch {
	case s.Name == "":
		return cimeter.Stage{}, fmt.Errorf("stage without a name: %w", cimeter.ErrInvalid)
	case s.StartedAt.IsZero() || s.EndedAt.Before(s.StartedAt):
		return cimeter.Stage{}, fmt.Errorf("stage that ends before it starts: %w", cimeter.ErrInvalid)
	case u.WallSeconds < 0 || u.CPUSeconds.Total.Value < 0 || u.CPUSeconds.User.Value < 0 || u.CPUSeconds.System.Value < 0:
		return cimeter.Stage{}, fmt.Errorf("stage with a usage below 0: %w", cimeter.ErrInvalid)
	case u.IOBytes != nil && max(u.IOBytes.Read, u.IOBytes.Write) > maxStageIO:
		return cimeter.Stage{}, fmt.Errorf("stage with block IO of %d and %d bytes: want at most %d: %w", u.IOBytes.Read, u.IOBytes.Write, uint64(maxStageIO), cimeter.ErrInvalid)
	}
	s.Boundary, s.Alongside = cimeter.BoundaryContainer, false
	return s, nil
}

// restName is the stage of what a run with inner runs spent outside of them.
const restName = "rest"

// rest returns what of total, spent from start to end, none of stages spent;
// false when that is nothing. Only amounts can be told apart: memory and rates
// of the rest are not known.
func rest(total *cimeter.Usage, stages []cimeter.Stage, start, end time.Time) (cimeter.Usage, bool) {
	u := cimeter.Usage{
		WallSeconds: max(0, total.WallSeconds-covered(stages, start, end).Seconds()),
		CPUSeconds:  total.CPUSeconds, CPUPeriods: total.CPUPeriods, CPUThrottledPeriods: total.CPUThrottledPeriods,
		CPUThrottledSeconds: total.CPUThrottledSeconds, OOMKills: total.OOMKills, OOMKillsNested: total.OOMKillsNested,
	}
	if total.IOBytes != nil {
		u.IOBytes = &cimeter.ReadWrite[uint64]{Read: total.IOBytes.Read, Write: total.IOBytes.Write}
	}
	if total.IOOperations != nil {
		u.IOOperations = &cimeter.ReadWrite[uint64]{Read: total.IOOperations.Read, Write: total.IOOperations.Write}
	}
	for i := range stages {
		s := &stages[i].Usage
		lessSeconds(&u.CPUSeconds.Total, s.CPUSeconds.Total)
		lessSeconds(&u.CPUSeconds.User, s.CPUSeconds.User)
		lessSeconds(&u.CPUSeconds.System, s.CPUSeconds.System)
		lessSeconds(&u.CPUThrottledSeconds, s.CPUThrottledSeconds)
		lessCount(&u.CPUPeriods, s.CPUPeriods)
		lessCount(&u.CPUThrottledPeriods, s.CPUThrottledPeriods)
		// A kill inside an inner run's cgroup is one below this run's.
		lessCount(&u.OOMKillsNested, s.OOMKills)
		lessCount(&u.OOMKillsNested, s.OOMKillsNested)
		lessPair(u.IOBytes, s.IOBytes)
		lessPair(u.IOOperations, s.IOOperations)
		if u.IOBytes != nil && s.IOBytes == nil {
			u.IOBytes, u.IOOperations = nil, nil // part of it is an unknown part of theirs
		}
	}
	io := u.IOBytes != nil && *u.IOBytes != cimeter.ReadWrite[uint64]{}
	return u, u.CPUSeconds.Total.Value > 0 || u.WallSeconds > 0 || io
}

// reconcile raises total to what stages, that are part of it, add up to: the
// two were read at different instants and by different means, v1 tells no kills
// below a cgroup, and nobody tells what a process spent that was never waited
// for. With controlled, total has its block IO from a controller, which misses
// none; stages with more then have it from elsewhere (wait4, by a user who may
// make no cgroup), and what cannot be compared is taken out of them: false.
func reconcile(total *cimeter.Usage, stages []cimeter.Stage, controlled bool) bool {
	var sum cimeter.Usage
	var read, write uint64
	var cores float64
	for i := range stages {
		u := &stages[i].Usage
		moreSeconds(&sum.CPUSeconds.Total, u.CPUSeconds.Total)
		moreSeconds(&sum.CPUSeconds.User, u.CPUSeconds.User)
		moreSeconds(&sum.CPUSeconds.System, u.CPUSeconds.System)
		moreCount(&sum.OOMKillsNested, u.OOMKills)
		moreCount(&sum.OOMKillsNested, u.OOMKillsNested)
		if u.CPUCores != nil {
			cores = max(cores, u.CPUCores.Max)
		}
		if u.IOBytes != nil {
			read, write = read+u.IOBytes.Read, write+u.IOBytes.Write
		}
	}
	c, s := &total.CPUSeconds, &sum.CPUSeconds
	if c.Total.Known {
		c.Total.Value = max(c.Total.Value, s.Total.Value)
	}
	if c.Total.Known && c.User.Known && c.System.Known {
		// The modes add up to the total before and after.
		c.User.Value = min(max(c.User.Value, s.User.Value), c.Total.Value)
		c.System.Value = c.Total.Value - c.User.Value
		if more := s.System.Value - c.System.Value; more > 0 {
			c.System.Value += more
			c.User.Value = max(0, c.User.Value-more)
		}
	}
	if k := sum.OOMKillsNested; k.Value > total.OOMKillsNested.Value {
		total.OOMKillsNested = k
	}
	if total.CPUCores != nil { // a stage's intervals are not the total's
		total.CPUCores.Max = max(total.CPUCores.Max, cores)
	}
	io := total.IOBytes
	switch {
	case io == nil || read <= io.Read && write <= io.Write:
		return true
	case !controlled:
		io.Read, io.Write = max(io.Read, read), max(io.Write, write)
		return true
	}
	for i := range stages {
		u := &stages[i].Usage
		u.IOBytes, u.IOOperations, u.IOBytesPerSecond, u.IOOperationsPerSecond = nil, nil, nil, nil
	}
	return false
}

// covered returns how much of start to end lies in at least one stage.
func covered(stages []cimeter.Stage, start, end time.Time) time.Duration {
	sorted := slices.Clone(stages)
	slices.SortFunc(sorted, func(a, b cimeter.Stage) int { return a.StartedAt.Compare(b.StartedAt) })
	var sum time.Duration
	at := start
	for _, s := range sorted {
		from, to := s.StartedAt, s.EndedAt
		if from.Before(at) {
			from = at
		}
		if to.After(end) {
			to = end
		}
		if to.After(from) {
			sum += to.Sub(from)
			at = to
		}
	}
	return sum
}

// believable reports whether stages can have spent what they say: not more
// than the whole. Sources differ by a tick here and there.
func believable(total *cimeter.Usage, stages []cimeter.Stage) bool {
	whole, known := total.CPUSeconds.Total.Get()
	var sum float64
	for i := range stages {
		sum += stages[i].Usage.CPUSeconds.Total.Value
	}
	return !known || sum <= whole*1.05+0.05
}

func lessSeconds(a *cimeter.Opt[float64], b cimeter.Opt[float64]) {
	a.Value = max(0, a.Value-b.Value)
}

func lessCount(a *cimeter.Opt[uint64], b cimeter.Opt[uint64]) {
	a.Value -= min(a.Value, b.Value)
}

func moreSeconds(a *cimeter.Opt[float64], b cimeter.Opt[float64]) {
	a.Value, a.Known = a.Value+b.Value, a.Known || b.Known
}

func moreCount(a *cimeter.Opt[uint64], b cimeter.Opt[uint64]) {
	a.Value, a.Known = a.Value+b.Value, a.Known || b.Known
}

func lessPair(a, b *cimeter.ReadWrite[uint64]) {
	if a == nil || b == nil {
		return
	}
	a.Read -= min(a.Read, b.Read)
	a.Write -= min(a.Write, b.Write)
}
