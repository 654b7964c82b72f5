package wrap

import (
	"math"
	"testing"
	"testing/quick"
	"time"

	"github.com/cimeter/cimeter"
)

// usageOf has user and system time in seconds and bytes of block IO.
func usageOf(user, system float64, read, write uint64) cimeter.Usage {
	return cimeter.Usage{
		CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(user + system), User: cimeter.Some(user), System: cimeter.Some(system)},
		IOBytes:    &cimeter.ReadWrite[uint64]{Read: read, Write: write},
	}
}

// TestReconcile_SumsUp holds that stages and rest add up to the total whatever
// the two were counted by.
func TestReconcile_SumsUp(t *testing.T) {
	type amounts struct {
		User, System uint16
		Read, Write  uint32
	}
	usage := func(a amounts) cimeter.Usage {
		return usageOf(float64(a.User), float64(a.System), uint64(a.Read), uint64(a.Write))
	}
	sumsUp := func(whole amounts, parts []amounts) bool {
		total := usage(whole)
		var stages []cimeter.Stage
		for i, p := range parts {
			s := stageAt("s", time.Duration(i)*time.Second, time.Duration(i+1)*time.Second, 0)
			s.Usage = usage(p)
			stages = append(stages, s)
		}
		if !reconcile(&total, stages, false) {
			return false
		}
		u, _ := rest(&total, stages, epoch, epoch.Add(time.Second))
		sum := u
		for _, s := range stages {
			sum.CPUSeconds.Total.Value += s.Usage.CPUSeconds.Total.Value
			sum.CPUSeconds.User.Value += s.Usage.CPUSeconds.User.Value
			sum.CPUSeconds.System.Value += s.Usage.CPUSeconds.System.Value
			sum.IOBytes.Read += s.Usage.IOBytes.Read
			sum.IOBytes.Write += s.Usage.IOBytes.Write
		}
		c := total.CPUSeconds
		return sum.CPUSeconds == c && *sum.IOBytes == *total.IOBytes && c.User.Value+c.System.Value == c.Total.Value &&
			c.Total.Value >= float64(whole.User)+float64(whole.System) && total.IOBytes.Read >= uint64(whole.Read)
	}
	if err := quick.Check(sumsUp, nil); err != nil {
		t.Error(err)
	}
}

func TestReconcile(t *testing.T) {
	t.Run("kills that v1 does not tell of cgroups below", func(t *testing.T) {
		total, stage := usageOf(1, 0, 0, 0), stageAt("a", 0, time.Second, 1)
		stage.Usage.OOMKills = cimeter.Some[uint64](2)
		reconcile(&total, []cimeter.Stage{stage}, false)
		if total.OOMKillsNested != cimeter.Some[uint64](2) {
			t.Errorf("got %v, want 2", total.OOMKillsNested)
		}
	})
	t.Run("block IO that a controller does not bear out", func(t *testing.T) {
		total, stage := usageOf(1, 0, 4096, 0), stageAt("a", 0, time.Second, 1)
		stage.Usage.IOBytes = &cimeter.ReadWrite[uint64]{Write: 1 << 20}
		stages := []cimeter.Stage{stage}
		if reconcile(&total, stages, true) || stages[0].Usage.IOBytes != nil || total.IOBytes.Read != 4096 || total.IOBytes.Write != 0 {
			t.Errorf("total %+v, stage %+v: want the total as it was and the stage without", total.IOBytes, stages[0].Usage.IOBytes)
		}
		if u, _ := rest(&total, stages, epoch, epoch.Add(time.Second)); u.IOBytes != nil {
			t.Errorf("rest %+v: want it unknown", u.IOBytes)
		}
	})
	t.Run("what is absent stays so", func(t *testing.T) {
		var total cimeter.Usage
		if !reconcile(&total, []cimeter.Stage{{Usage: usageOf(1, 1, 1, 1)}}, false) || total.CPUSeconds.Total.Known || total.IOBytes != nil {
			t.Errorf("got %+v", total)
		}
	})
	t.Run("the highest rate of a stage is one of the whole", func(t *testing.T) {
		total, stage := usageOf(1, 0, 0, 0), stageAt("a", 0, time.Second, 1)
		total.CPUCores, stage.Usage.CPUCores = &cimeter.Stat{Max: 0.5}, &cimeter.Stat{Max: 1.5}
		reconcile(&total, []cimeter.Stage{stage}, false)
		if got := total.CPUCores.Max; math.Abs(got-1.5) > 0 {
			t.Errorf("got %v, want 1.5", got)
		}
	})
}
