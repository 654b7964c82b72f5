package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
)

// Spread makes builds that work on one to three machines, each of which sends a record
// of its part with the build's one key.
func Spread(seed uint64, builds int) (puts []store.Put) {
	m := NewMaker(seed, 10*24*time.Hour)
	for n := range builds {
		first := m.Record(n)
		for i := range 1 + n%3 {
			r := m.Record(n)
			r.Build = first.Build
			r.Machine = fmt.Sprintf("node-%d", (n+i)%4)
			r.Runner = cimeter.Runner{ID: "s_" + r.Machine, Name: "agent " + r.Machine}
			// Close to the others' time: days and hours have parts of one build on both sides.
			r.EndedAt = first.EndedAt.Add(time.Duration(i) * 40 * time.Minute)
			r.StartedAt = r.EndedAt.Add(-time.Duration(r.Usage.WallSeconds * float64(time.Second)))
			r.QueuedAt, r.Result = time.Time{}, first.Result
			puts = append(puts, store.Put{Record: r, ReceivedAt: r.EndedAt.Add(2 * time.Second), Agent: r.Machine})
		}
	}
	return puts
}

// Again is Spread with what the first machine of some builds sends besides, of the time
// after: of the same runner, or of another.
func Again(seed uint64, builds int) []store.Put {
	puts := Spread(seed, builds)
	m := NewMaker(seed+1, 10*24*time.Hour)
	key := ""
	for n, p := range slices.Clone(puts) {
		if p.Record.Key == key {
			continue // of another machine
		}
		key = p.Record.Key
		if n%3 == 0 {
			continue
		}
		again := *m.Record(n)
		again.Build, again.Result = p.Record.Build, p.Record.Result
		if n%3 == 1 {
			again.Runner.ID, again.Runner.Name = again.Runner.ID+"-b", again.Runner.Name+" b"
		}
		again.StartedAt, again.QueuedAt = p.Record.EndedAt.Add(20*time.Minute), time.Time{}
		again.EndedAt = again.StartedAt.Add(time.Minute)
		puts = append(puts, store.Put{Record: &again, ReceivedAt: again.EndedAt.Add(2 * time.Second), Agent: again.Machine})
	}
	return puts
}

// checkSpread holds that every part is there once, whoever has the build's own key, that
// a build tells of all of its machines, and that all sums are of all parts.
func checkSpread(t testing.TB, s Store, puts []store.Put) {
	t.Helper()
	parts := map[string][]store.Put{}
	for _, p := range puts {
		parts[p.Record.Key] = append(parts[p.Record.Key], p)
	}
	m := &model{parts: map[string]store.Part{}}
	for key, of := range parts {
		var want []*cimeter.Record
		killed := false // is counted
		for _, p := range of {
			r := *p.Record
			got := get(t, s, store.PartKey(key, r.Machine, r.StartedAt))
			r.Key = got.Key
			if !reflect.DeepEqual(got, &r) {
				t.Errorf("of %s on %s: got  %+v\nwant %+v", key, r.Machine, got, r)
			}
			part := store.Part(0)
			if r.Key != key {
				part |= store.AgainOfBuild
			}
			if on := store.MachineKey(key, r.Machine); r.Key != key && r.Key != on {
				part |= store.AgainOnMachine
				if r.Key != store.PartKey(key, r.Machine, r.StartedAt) {
					t.Errorf("part of %s has key %s", key, r.Key)
				}
				if get(t, s, on).Runner == r.Runner {
					part |= store.AgainOnRunner
				}
			}
			if killed && oom(&r) {
				part |= store.AgainKilled
			}
			killed = killed || oom(&r)
			m.parts[r.Key] = part
			m.puts = append(m.puts, store.Put{Record: &r, ReceivedAt: p.ReceivedAt, Agent: p.Agent})
			bare := r
			bare.Trace = nil
			want = append(want, &bare)
		}
		slices.SortFunc(want, func(x, y *cimeter.Record) int { return x.StartedAt.Compare(y.StartedAt) })
		for _, r := range want {
			got, err := s.Machines(t.Context(), r.Key)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("Machines(%s): %d, %v; want %d as they were put", r.Key, len(got), err, len(want))
			}
		}
	}
	if a, b, c := counted(t, s); a != len(parts) || b != len(parts) || c != len(puts) {
		t.Errorf("%d builds, %d of jobs and %d records, want %d, %d and %d", a, b, c, len(parts), len(parts), len(puts))
	}
	checkAll(t, s, m)
	checkSum(t, s, puts)
	for _, q := range []store.GroupQuery{{By: store.ByMachine}, {By: store.ByRunner}, {By: store.ByMachineJob, Machine: "node-1"}} {
		q.From, q.To, q.Limit = Base.AddDate(0, 0, -2), Base, store.MaxGroups // from the builds themselves
		checkGroups(t, s, m, q)
	}
}

// testSpread holds that the parts of builds that work on several machines are kept once
// each, in any order, sent twice, in batches and alone.
func testSpread(t *testing.T, s Store) {
	puts := Again(70, 30)
	r := rand.New(rand.NewPCG(70, 1))
	again := append(slices.Clone(puts), puts...)
	r.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
	stored, parts := 0, 0
	seen := map[*cimeter.Record]bool{}
	for len(again) > 0 {
		n := min(1+r.IntN(20), len(again))
		got, err := s.Put(t.Context(), again[:n])
		if err != nil || got.Stored+got.Duplicates != n {
			t.Fatalf("Put of %d = %+v, %v", n, got, err)
		}
		stored += got.Stored
		for i, part := range got.Part {
			if part && !got.Fresh[i] {
				t.Error("a part that was not stored")
			}
			if part {
				parts++
			}
		}
		parts -= got.Parts
		for i, fresh := range got.Fresh {
			if rec := again[i].Record; fresh == seen[rec] {
				t.Errorf("%s of %s: fresh %t, seen before %t", rec.Key, rec.Machine, fresh, seen[rec])
			}
			seen[again[i].Record] = true
		}
		again = again[n:]
	}
	if stored != len(puts) {
		t.Errorf("stored %d, want each once: %d", stored, len(puts))
	}
	if parts != 0 {
		t.Errorf("%d more parts are marked than counted", parts)
	}
	checkSpread(t, s, puts)
	if _, err := s.Machines(t.Context(), "jenkins/none/1/@a"); !errors.Is(err, cimeter.ErrNotFound) {
		t.Errorf("Machines of a build that is not there = %v", err)
	}
}

// testSpreadAtOnce has the machines of builds, and others that send again, write at the
// same time.
func testSpreadAtOnce(t *testing.T, s Store) {
	puts := Again(71, 30)
	var mu sync.Mutex
	stored := 0
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			order := rand.New(rand.NewPCG(uint64(w), 3)).Perm(len(puts))
			for part := range slices.Chunk(order, 7) {
				var some []store.Put
				for _, i := range part {
					some = append(some, puts[i])
				}
				got, err := s.Put(t.Context(), some)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				stored += got.Stored
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if stored != len(puts) {
		t.Errorf("stored %d, want each once: %d", stored, len(puts))
	}
	checkSpread(t, s, puts)
}

// testSpreadTold holds that what a CI server tells of a build makes no build more, when
// ever it comes, and goes to the record that has its key.
func testSpreadTold(t *testing.T, s Store) {
	for n, when := range []int{0, 1, 2, 3} {
		puts := Spread(72, 3)[3:] // one build on three machines
		for i := range puts {
			puts[i].Record.Key += fmt.Sprint("-", n)
			puts[i].Record.Result = ""
		}
		job := jobOf(puts[0].Record)
		job.Status, job.FailureReason = cimeter.JobFailed, "script_failure"
		for i := range puts {
			if i == when {
				putJobs(t, s, job)
			}
			put(t, s, puts[i:i+1])
		}
		if when == len(puts) {
			putJobs(t, s, job)
		}
		parts, err := s.Machines(t.Context(), job.Key)
		if err != nil || len(parts) != 3 {
			t.Fatalf("told before part %d: %d parts, %v", when, len(parts), err)
		}
		for _, r := range parts {
			if told := r.Result == "failed" && !r.QueuedAt.IsZero() && len(r.Tags) == 2; told != (r.Key == job.Key) || r.Metered.Known {
				t.Errorf("told before part %d: %s has result %q, queued %s", when, r.Key, r.Result, r.QueuedAt)
			}
		}
	}
	if a, b, c := counted(t, s); a != 4 || b != 4 || c != 12 {
		t.Errorf("%d builds, %d of jobs and %d records, want 4, 4 and 12", a, b, c)
	}
}

// testSpreadPlaces holds that a job which its CI server numbers for itself joins the
// record with the build's key, whatever other machines of it there are.
func testSpreadPlaces(t *testing.T, s Store) {
	for n := range 3 { // the job comes before, between and after the machines
		job := placed(2000+n, 1, fmt.Sprint("arc-", n), 50, 90)
		a := metered("pod", 1, fmt.Sprint("arc-", n), 52, 89)
		b := metered("pod", 1, fmt.Sprint("arc-", n), 55, 88)
		b.Record.Machine = "node-2"
		for i, p := range []store.Put{a, b} {
			if i == n {
				putJobs(t, s, job)
			}
			put(t, s, []store.Put{p})
		}
		putJobs(t, s, job, job)
		if r := get(t, s, a.Record.Key); r.Result != "failed" || r.QueuedAt.IsZero() || r.Machine != a.Record.Machine {
			t.Errorf("job before record %d: %+v is not joined", n, r)
		}
		for _, key := range []string{a.Record.Key, store.MachineKey(a.Record.Key, "node-2")} {
			if parts, err := s.Machines(t.Context(), key); err != nil || len(parts) != 2 {
				t.Errorf("job before record %d: Machines(%s) = %d, %v", n, key, len(parts), err)
			}
		}
	}
	if st, err := s.Stats(t.Context()); err != nil || st.Unjoined != 0 || st.Builds != 3 {
		t.Errorf("figures %+v, %v: want 3 builds, none unjoined", st, err)
	}
}

// testSpreadPods holds that pods of one machine, which agents put to the key, are parts
// too, and that what only has a key below a build's is none.
func testSpreadPods(t *testing.T, s Store) {
	puts := Spread(75, 3)[1:] // two machines, then three
	pod, leg := *puts[0].Record, *puts[0].Record
	pod.Key, pod.Runner = pod.Key+"/app-x1", cimeter.Runner{Name: "app-x1"}
	pod.StartedAt = pod.StartedAt.Add(-time.Hour)
	leg.Key += "/2" // of a matrix
	puts = append(puts, store.Put{Record: &pod, ReceivedAt: Base}, store.Put{Record: &leg, ReceivedAt: Base})
	put(t, s, puts)
	for _, key := range []string{pod.Key, puts[0].Record.Key, store.MachineKey(puts[0].Record.Key, puts[1].Record.Machine)} {
		parts, err := s.Machines(t.Context(), key)
		if err != nil || len(parts) != 3 || parts[0].Key != pod.Key {
			t.Errorf("Machines(%s) = %d, %v; want three, the pod first", key, len(parts), err)
		}
	}
	last, err := s.History(t.Context(), store.HistoryQuery{Project: pod.Project, Name: pod.Name, Limit: 100})
	i := slices.IndexFunc(last, func(r *cimeter.Record) bool { return r.Key == puts[0].Record.Key })
	if err != nil || i < 0 || !last[i].StartedAt.Equal(pod.StartedAt) || slices.ContainsFunc(last, func(r *cimeter.Record) bool { return r.Key == pod.Key }) || !slices.ContainsFunc(last, func(r *cimeter.Record) bool { return r.Key == leg.Key }) {
		t.Errorf("History = %d builds, %v; want the pod in its build, and the leg by itself", len(last), err)
	}
	if parts, err := s.Machines(t.Context(), leg.Key); err != nil || len(parts) != 1 {
		t.Errorf("Machines(%s) = %d, %v; want it alone", leg.Key, len(parts), err)
	}
	if a, b, c := counted(t, s); a != 3 || b != 3 || c != len(puts) {
		t.Errorf("%d builds, %d of jobs and %d records, want 3, 3 and %d", a, b, c, len(puts))
	}
}

// testSpreadOthers holds that a record of another build that has the same key, since the
// key tells no server, is kept and told from it; and that a machine without a name is
// not taken for another.
func testSpreadOthers(t *testing.T, s Store) {
	puts := Spread(73, 2)[1:]
	for i := range puts {
		puts[i].Record.Key, puts[i].Record.Server = "gitea/local/5", ""
	}
	put(t, s, puts)
	for _, p := range puts {
		parts, err := s.Machines(t.Context(), store.MachineKey("gitea/local/5", p.Record.Machine))
		if err != nil || len(parts) != 1 || parts[0].Machine != p.Record.Machine {
			t.Errorf("of a key without a server: %d records of one build, %v", len(parts), err)
		}
	}
	if last, err := s.History(t.Context(), store.HistoryQuery{Project: puts[0].Record.Project, Name: puts[0].Record.Name}); err != nil || len(last) != 2 {
		t.Errorf("History = %d builds, %v; want two", len(last), err)
	}
	nameless := *puts[0].Record
	nameless.Machine = ""
	got, err := s.Put(t.Context(), []store.Put{{Record: &nameless, ReceivedAt: Base}})
	if err != nil || got.Duplicates != 1 {
		t.Errorf("Put of a machine without a name = %+v, %v", got, err)
	}
}

// testSpreadRetained holds that a part stays one when the part with the build's own key
// was deleted for its age, and both are sent again.
func testSpreadRetained(t *testing.T, s Store) {
	puts := Spread(74, 2)[1:]
	old := puts[0].Record
	old.EndedAt, old.StartedAt = Base.AddDate(0, 0, -40), Base.AddDate(0, 0, -40).Add(-time.Hour)
	puts[0].ReceivedAt = old.EndedAt
	put(t, s, puts)
	for more := true; more; {
		out, err := s.Retain(t.Context(), store.Retention{KeepFrom: Base.AddDate(0, 0, -20)})
		if err != nil {
			t.Fatal(err)
		}
		more = out.More
	}
	got, err := s.Put(t.Context(), puts)
	if want := (store.PutResult{Duplicates: 1, Expired: 1, Fresh: []bool{false, false}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Put again = %+v, %v; want %+v", got, err, want)
	}
	key := store.MachineKey(old.Key, puts[1].Record.Machine)
	if parts, err := s.Machines(t.Context(), key); err != nil || len(parts) != 1 {
		t.Errorf("Machines = %d, %v; want the one that is left", len(parts), err)
	}
}
