package storetest

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/store"
)

// BenchIngest compares a store with bare inserts of the same rows: two senders
// put batches of records with 10 stages and a trace, then bare writes the rows
// of such records, taken apart before the clock runs. It reports both rates and
// their ratio; and the CPU time of this process for a record, which holds on a
// busy machine. Making the records is in none of them.
func BenchIngest(b *testing.B, s Store, bare func(rows []*store.Row, rollups []store.Rollup) error) {
	const n, size, senders = 2000, 100, 2
	m := &Maker{Random: rand.New(rand.NewPCG(1, 1)), Span: time.Hour, Stages: 10, Steps: 128}
	var stored, plain, storedCPU, plainCPU time.Duration
	rounds := 0
	for b.Loop() {
		b.StopTimer()
		puts := m.Puts(rounds*2*n, n)
		batches := slices.Collect(slices.Chunk(puts, size))
		b.StartTimer()
		start, cpu := time.Now(), cpuTime()
		var next atomic.Int64
		var wg sync.WaitGroup
		for range senders {
			wg.Go(func() {
				for {
					i := int(next.Add(1)) - 1
					if i >= len(batches) {
						return
					}
					if _, err := s.Put(b.Context(), batches[i]); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		stored += time.Since(start)
		storedCPU += cpuTime() - cpu
		b.StopTimer()
		var rows []*store.Row
		for _, p := range m.Puts((rounds*2+1)*n, n) {
			r, err := store.NewRow(p)
			if err != nil {
				b.Fatal(err)
			}
			rows = append(rows, r)
		}
		parts := slices.Collect(slices.Chunk(rows, size))
		var rollups [][]store.Rollup
		for _, part := range parts {
			rollups = append(rollups, store.NewRollups(part))
		}
		start, cpu = time.Now(), cpuTime()
		for i, part := range parts {
			if err := bare(part, rollups[i]); err != nil {
				b.Fatal(err)
			}
		}
		plain += time.Since(start)
		plainCPU += cpuTime() - cpu
		rounds++
		b.StartTimer()
	}
	rate := float64(rounds*n) / stored.Seconds()
	bareRate := float64(rounds*n) / plain.Seconds()
	b.ReportMetric(rate, "records/s")
	b.ReportMetric(bareRate, "bare/s")
	b.ReportMetric(rate/bareRate, "ratio")
	b.ReportMetric(float64(storedCPU.Microseconds())/float64(rounds*n), "CPU-µs/record")
	b.ReportMetric(float64(plainCPU.Microseconds())/float64(rounds*n), "CPU-µs/bare")
	st, err := s.Stats(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(st.Bytes)/float64(st.Builds)/1024, "KiB/record")
}

// Large is how many builds STORE_BUILDS asks for; 0: none, the test is not run.
func Large(t testing.TB) int {
	n, err := strconv.Atoi(os.Getenv("STORE_BUILDS"))
	if err != nil || n == 0 {
		t.Skip("takes many minutes: STORE_BUILDS=1000000 asks for so many builds, STORE_DIR keeps them for the next run")
	}
	return n
}

// question is one thing that pages ask.
type question struct {
	name string
	ask  func() error
}

// Measure asks what pages ask, many times each, and tells the times. also is the CPU
// time of what works beside this process; nil: nothing does.
func Measure(t testing.TB, s Store, also func() time.Duration) {
	t.Helper()
	cpuTime := cpuTime
	if also != nil {
		own := cpuTime
		cpuTime = func() time.Duration { return own() + also() }
	}
	ctx, now := t.Context(), Base
	var questions []question
	list := func(text string, sort store.Sort) {
		f, err := filter.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		f = f.Resolve(now)
		cursor := ""
		questions = append(questions, question{"list by " + string(sort) + ": " + text, func() error {
			page, err := s.List(ctx, store.Query{Filter: f, Sort: sort, Limit: 50, Cursor: cursor})
			cursor = page.Next
			return err
		}})
	}
	for _, sort := range Sorts {
		for _, text := range []string{"", "since:24h", "since:30d", "project:group-0/app-0", "machine:ci-7 since:7d", "result:failed", "-result:success since:7d", "stage:lint", "verdict:oom",
			"cpu>600s", "mem>90% since:30d", "app-19", "100007", "nothing-of-this", "job:scan ref:feature/a ci:drone", "project:group-1/app-33 job:lint ref:main",
			"cpu>600s io>3GiB", "project:group-0/app-0 cpu>300s", "machine:ci-7 mem>90%", "runner:docker-ci-7 since:30d", "project:group-0/* result:failed", "ref:fix-* wall>9m",
			"event:push stage:lint verdict:oom since:7d", "job:deploy since:24h", "app", "pipeline:77", "-ref:main -job:build queue>50s", "metered:no"} {
			list(text, sort)
		}
	}
	for _, text := range []string{"", "since:24h", "project:group-0/app-0 since:30d", "result:failed since:7d", "app-19"} {
		f, _ := filter.Parse(text)
		f = f.Resolve(now)
		questions = append(questions, question{"sum: " + text, func() error { _, err := s.Sum(ctx, f); return err }})
	}
	for _, days := range []int{1, 2} {
		q := store.GroupQuery{By: store.ByStage, From: now.AddDate(0, 0, -days), To: now}
		questions = append(questions, question{"groups by stage of all over " + strconv.Itoa(days) + " d", func() error {
			if _, err := s.Groups(ctx, q); !errors.Is(err, cimeter.ErrInvalid) { // in a large store a project is wanted
				return err
			}
			return nil
		}})
	}
	for _, by := range []store.By{store.ByProject, store.ByJob, store.ByMachine, store.ByRunner, store.ByStage, store.ByMachineJob} {
		for _, days := range []int{1, 7, 30, 90} {
			q := store.GroupQuery{By: by, From: now.AddDate(0, 0, -days), To: now}
			if by == store.ByStage {
				q.Project, q.Name = "group-0/app-0", "build"
			}
			if by == store.ByMachineJob {
				q.Machine = "ci-7"
			}
			questions = append(questions, question{"groups by " + string(by) + " over " + strconv.Itoa(days) + " d", func() error { _, err := s.Groups(ctx, q); return err }})
		}
	}
	for _, q := range []store.BucketQuery{{From: now.AddDate(0, 0, -1), To: now, Bucket: time.Hour}, {From: now.AddDate(0, 0, -7), To: now, Bucket: time.Hour}, {From: now.AddDate(0, 0, -90), To: now, Bucket: 7 * 24 * time.Hour},
		{From: now.AddDate(0, 0, -30), To: now, Bucket: 24 * time.Hour, Project: "group-0/app-0"}, {From: now.AddDate(0, 0, -1), To: now, Bucket: time.Hour, Machine: "ci-7"}} {
		questions = append(questions, question{"buckets of " + q.Bucket.String() + " over " + q.To.Sub(q.From).String() + " " + q.Project + q.Machine, func() error { _, err := s.Buckets(ctx, q); return err }})
	}
	questions = append(questions,
		question{"history", func() error {
			_, err := s.History(ctx, store.HistoryQuery{Project: "group-0/app-0", Name: "build", Ref: "main", Limit: 20})
			return err
		}},
		question{"neighbours", func() error {
			_, err := s.Neighbours(ctx, &cimeter.Record{Build: cimeter.Build{Machine: "ci-7"}, StartedAt: now.Add(-36 * time.Hour), EndedAt: now.Add(-35 * time.Hour)})
			return err
		}},
		question{"history of 300", func() error {
			_, err := s.History(ctx, store.HistoryQuery{Project: "group-0/app-0", Name: "build", Limit: store.MaxHistory})
			return err
		}},
		question{"names", func() error { _, err := s.Names(ctx, "project", "app-1", 10); return err }},
		question{"stats", func() error { _, err := s.Stats(ctx); return err }},
	)
	start, before := time.Now(), cpuTime()
	if err := s.Warm(ctx, now); err != nil {
		t.Fatal(err)
	}
	t.Logf("sums were added up in %s, CPU %s", time.Since(start).Round(time.Millisecond), cpuTime()-before)
	var all, first, cpu []time.Duration // times of answers; of the first of each question; CPU times
	before = cpuTime()
	var work []time.Duration // CPU time of an answer, of each question
	for _, q := range questions {
		var took []time.Duration
		asked := cpuTime()
		for range 12 {
			start, used := time.Now(), cpuTime()
			if err := q.ask(); err != nil {
				t.Fatalf("%s: %v", q.name, err)
			}
			took = append(took, time.Since(start))
			cpu = append(cpu, cpuTime()-used)
		}
		all, first = append(all, took...), append(first, took[0])
		work = append(work, (cpuTime()-asked)/12)
		slices.Sort(took)
		if worst := took[len(took)-2]; worst > 40*time.Millisecond {
			t.Logf("%8s median %8s CPU %8s  %s", worst.Round(100*time.Microsecond), took[6].Round(100*time.Microsecond), work[len(work)-1].Round(100*time.Microsecond), q.name)
		}
	}
	for _, times := range [][]time.Duration{all, first, cpu} {
		slices.Sort(times)
	}
	// On a busy machine, the figures that hold.
	slices.Sort(work)
	t.Logf("CPU time: %s an answer; of %d questions the median takes %s, the 99th percentile %s, the worst %s", (cpuTime()-before)/time.Duration(12*len(questions)),
		len(work), work[len(work)/2], work[len(work)*99/100], work[len(work)-1])
	t.Logf("CPU time of %d answers: median %s, 99th percentile %s, worst %s", len(cpu), cpu[len(cpu)/2], cpu[len(cpu)*99/100], cpu[len(cpu)-1])
	t.Logf("first answers: median %s, 95th percentile %s, worst %s", first[len(first)/2], first[len(first)*95/100], first[len(first)-1])
	t.Logf("%d answers: median %s, 95th percentile %s, 99th %s, worst %s", len(all), all[len(all)/2], all[len(all)*95/100], all[len(all)*99/100], all[len(all)-1])
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
