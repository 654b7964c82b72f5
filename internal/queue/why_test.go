package queue_test

import (
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
)

func worker(id string, state cimeter.WorkerState, slots, running int, tags ...string) cimeter.Worker {
	if tags == nil {
		tags = []string{}
	}
	return cimeter.Worker{CI: "gitlab", ID: id, State: state, Tags: tags, Slots: cimeter.Some(slots), Running: cimeter.Some(running)}
}

func tagged(n int, tags ...string) cimeter.Job {
	j := job(n, cimeter.JobWaiting)
	j.QueuedAt, j.Tags = at(0), tags
	if tags == nil {
		j.Tags = []string{}
	}
	return j
}

func TestBoard_whyItWaits(t *testing.T) {
	unknown := job(9, cimeter.JobWaiting)
	for name, c := range map[string]struct {
		job     cimeter.Job
		workers []cimeter.Worker
		want    queue.Why
	}{
		"nobody has the tag":                {tagged(1, "arm"), []cimeter.Worker{worker("a", "idle", 1, 0, "docker")}, queue.WhyNoWorker},
		"who has it is offline":             {tagged(1, "arm"), []cimeter.Worker{worker("a", "offline", 1, 0, "arm")}, queue.WhyNoWorker},
		"who has it drains":                 {tagged(1, "arm"), []cimeter.Worker{worker("a", "draining", 2, 1, "arm")}, queue.WhyNoWorker},
		"all that have it are full":         {tagged(1, "arm"), []cimeter.Worker{worker("a", "busy", 2, 2, "arm", "docker"), worker("b", "idle", 1, 0, "docker")}, queue.WhyNoSlot},
		"one is free":                       {tagged(1, "arm"), []cimeter.Worker{worker("a", "busy", 2, 2, "arm"), worker("b", "busy", 2, 1, "arm")}, queue.WhyUnknown},
		"no tags: any would do":             {tagged(1), []cimeter.Worker{worker("a", "busy", 1, 1)}, queue.WhyNoSlot},
		"slots are not told":                {tagged(1), []cimeter.Worker{{ID: "a", State: "busy"}}, queue.WhyUnknown},
		"its tags are not told":             {unknown, []cimeter.Worker{worker("a", "busy", 1, 1)}, queue.WhyUnknown},
		"no worker is told":                 {tagged(1, "arm"), nil, queue.WhyUnknown},
		"any value of a label will do":      {tagged(1, "repo=a/b"), []cimeter.Worker{worker("a", "busy", 1, 1, "repo=*")}, queue.WhyNoSlot},
		"another value of a label will not": {tagged(1, "platform=linux/arm64"), []cimeter.Worker{worker("a", "idle", 1, 0, "platform=linux/amd64")}, queue.WhyNoWorker},
	} {
		b := newBoard()
		r := whole(10, c.job)
		r.Workers, r.WholeWorkers = c.workers, true
		b.Add(server, true, r)
		if got := b.State(at(11)).Builds[0].Why; got != c.want {
			t.Errorf("%s: %q: want %q", name, got, c.want)
		}
	}
}

// That there is no worker at all is a reason only where the server lists every one.
func TestBoard_noWorkerAtAll(t *testing.T) {
	b := newBoard()
	for _, c := range []struct {
		at           float64
		whole, every bool
		want         queue.Why
	}{
		{10, false, false, queue.WhyUnknown},
		{20, true, true, queue.WhyNoWorker},
		{30, false, false, queue.WhyNoWorker}, // a webhook tells nothing of it
		{40, true, false, queue.WhyUnknown},
	} {
		r := whole(c.at, tagged(1, "arm"))
		r.WholeWorkers, r.EveryWorker = c.whole, c.every
		b.Add(server, c.whole, r)
		if got := b.State(at(c.at + 1)).Builds[0].Why; got != c.want {
			t.Errorf("at %v: %q: want %q", c.at, got, c.want)
		}
	}
}

// A wait is split by what was seen while it lasted; what was not seen is unknown.
func TestBoard_waitIsSplit(t *testing.T) {
	b := newBoard()
	tell := func(seconds float64, status cimeter.JobStatus, workers ...cimeter.Worker) {
		j := tagged(1, "arm")
		if j.Status = status; status == cimeter.JobRunning {
			j.StartedAt, j.Worker = at(100), "a"
		}
		r := whole(seconds, j)
		r.Workers, r.WholeWorkers = workers, true
		b.Add(server, true, r)
	}
	var agents []queue.AgentBuild
	look := func(from, to float64) {
		for s := from; s <= to; s += 5 {
			b.Look(at(s), agents)
		}
	}
	tell(20, cimeter.JobWaiting)
	b.Look(at(20), nil)
	tell(21, cimeter.JobWaiting, worker("b", "idle", 1, 0))
	look(25, 50) // 30 s: nobody has the tag
	tell(50, cimeter.JobWaiting, worker("a", "busy", 1, 1, "arm"))
	look(55, 100) // 50 s: it is full
	tell(101, cimeter.JobRunning, worker("a", "busy", 1, 1, "arm"))
	st := b.State(at(130))
	if v := st.Builds[0]; v.Waited.Value != 100 || v.Wait != (queue.Wait{NoWorker: 30, NoSlot: 50, Unknown: 20}) || v.Why != queue.WhyUnknown || v.Ran.Value != 30 {
		t.Errorf("%+v", v)
	}
	if w := st.Workers[0]; len(w.Builds) != 1 || w.Builds[0] != st.Builds[0].Key {
		t.Errorf("worker %+v: want its build", w)
	}
	// Once an agent had a build of this server, one that none has seen waits for a machine.
	agents = []queue.AgentBuild{{Key: job(7, "").Key}}
	b.Add(server, false, one(131, job(7, cimeter.JobRunning)))
	b.Look(at(131), agents)
	if v := b.State(at(131)).Builds[0]; v.Why != queue.WhyStarting || v.Wait.Starting != 31 || v.Metered {
		t.Errorf("%+v", v)
	}
	agents = []queue.AgentBuild{{Key: job(1, "").Key, Machine: "ci-7", Stage: "prepare_script", StartedAt: at(140)}}
	b.Look(at(145), agents)
	if v := b.State(at(146)).Builds[0]; v.Why != queue.WhyPreparing || v.Wait.Starting != 40 || v.Wait.Preparing != 6 || !v.Metered || v.Machine != "ci-7" {
		t.Errorf("%+v", v)
	}
	agents[0].Stage = "step_script"
	b.Look(at(150), agents)
	if v := b.State(at(151)).Builds[0]; v.Why != queue.WhyUnknown || v.Stage != "step_script" || v.Wait.Sum() != 150 {
		t.Errorf("%+v", v)
	}
	over := tagged(1, "arm")
	over.Status, over.EndedAt = cimeter.JobSuccess, at(300)
	b.Add(server, false, one(301, over))
	if ended := b.Look(at(305), nil); len(ended) != 1 || ended[0].On != server || ended[0].Wait != (queue.Wait{NoWorker: 30, NoSlot: 50, Unknown: 20, Starting: 40, Preparing: 10}) {
		t.Errorf("%+v", ended)
	}
}

// Of the time between a worker's taking a build and its first container what passed
// until its image was there is the pull, but for what passed until the machine ran.
func TestBoard_pull(t *testing.T) {
	for name, test := range map[string]struct {
		agent queue.AgentBuild
		want  queue.Wait
	}{
		"no pull":                       {queue.AgentBuild{StartedAt: at(140)}, queue.Wait{Unknown: 100, Starting: 40}},
		"pulled":                        {queue.AgentBuild{PulledAt: at(138), StartedAt: at(140)}, queue.Wait{Unknown: 100, Starting: 2, Pull: 38}},
		"on a machine that was started": {queue.AgentBuild{BootedAt: at(120), PulledAt: at(135), StartedAt: at(140)}, queue.Wait{Unknown: 100, Starting: 25, Pull: 15}},
		"on one that ran before":        {queue.AgentBuild{BootedAt: at(-9000), PulledAt: at(135), StartedAt: at(140)}, queue.Wait{Unknown: 100, Starting: 5, Pull: 35}},
		"for another, before":           {queue.AgentBuild{PulledAt: at(99), StartedAt: at(140)}, queue.Wait{Unknown: 100, Starting: 40}},
		"clocks apart":                  {queue.AgentBuild{PulledAt: at(150), StartedAt: at(140)}, queue.Wait{Unknown: 100, Starting: 40}},
		"booted after its image":        {queue.AgentBuild{BootedAt: at(139), PulledAt: at(138), StartedAt: at(140)}, queue.Wait{Unknown: 100, Starting: 40}},
	} {
		b := newBoard()
		j := tagged(1, "arm")
		j.Status, j.QueuedAt, j.StartedAt = cimeter.JobRunning, at(0), at(100)
		b.Add(server, true, whole(101, j))
		a := test.agent
		a.Key, a.Stage = j.Key, "step_script"
		b.Look(at(150), []queue.AgentBuild{a})
		if w := b.State(at(151)).Builds[0].Wait; w != test.want {
			t.Errorf("%s: %+v: want %+v", name, w, test.want)
		}
		j.Status, j.EndedAt = cimeter.JobSuccess, at(200)
		b.Add(server, true, whole(201, j))
		if ended := b.Look(at(205), nil); len(ended) != 1 || ended[0].Wait != test.want {
			t.Errorf("%s: %+v: want %+v", name, ended, test.want)
		}
	}
}

// When a build will start is told from the last waits for the same tags, of which it
// takes twenty.
func TestBoard_estimate(t *testing.T) {
	b := newBoard()
	for n := range 30 {
		if n == 19 {
			b.Add(server, false, one(200, tagged(100, "arm")))
			b.Look(at(200), nil)
			if b.State(at(200)).Builds[0].Start.Known {
				t.Error("told from 19 waits")
			}
		}
		j := tagged(n, "arm")
		j.Status, j.StartedAt, j.EndedAt = cimeter.JobSuccess, at(float64(10*(n+1))), at(400)
		b.Add(server, false, one(200, j))
		b.Look(at(200), nil)
	}
	// It waits 200 s; ten waited 210 to 300 s, and one 200 s.
	got := b.State(at(200)).Builds[0].Start
	if want := cimeter.Some(queue.Estimate{Seconds: 50, Low: 25, High: 75, Samples: 30}); got != want {
		t.Errorf("%+v: want %+v", got, want)
	}
}

func TestBoard_history(t *testing.T) {
	b := newBoard()
	b.Add(server, true, whole(0, tagged(1), tagged(2), job(3, cimeter.JobRunning)))
	for s := 0; s < 26*3600; s += 20 {
		b.Look(at(float64(s)), nil)
	}
	h := b.State(at(0)).Servers[0].History
	if len(h) != 1440 {
		t.Fatalf("%d points: want a day of minutes", len(h))
	}
	p := h[0]
	if p.Waiting != 2 || p.Running != 1 || p.P50 <= 0 || p.Slots == p.Slots || h[1].At-p.At != 60 {
		t.Errorf("%+v: want no slots, which nobody told", p)
	}
	if l := b.State(at(26 * 3600)).Servers[0].LongestDay; l.Seconds < 25*3600 || l.Key == "" {
		t.Errorf("%+v", l)
	}
}

func TestBoard_workersFromWebhooks(t *testing.T) {
	b := newBoard()
	idle := worker("a", "idle", 2, 0)
	r := queue.Report{At: at(0), Workers: []cimeter.Worker{idle}, WholeWorkers: true}
	b.Add(server, true, r)
	run := job(1, cimeter.JobRunning)
	run.Worker = "a"
	b.Add(server, false, one(1, run))
	s := b.State(at(2))
	if w := s.Workers[0]; w.State != cimeter.WorkerBusy || w.Running.Value != 1 || s.Servers[0].Workers.Value.Busy != 1 || s.Servers[0].Slots.Value != 2 {
		t.Errorf("%+v", w)
	}
	// A build that a worker is told to have and that ended is none of its any more.
	idle.Builds = []string{job(2, "").Key, job(3, "").Key}
	b.Add(server, true, queue.Report{At: at(3), Workers: []cimeter.Worker{idle}, WholeWorkers: true, Jobs: []cimeter.Job{job(2, cimeter.JobFailed)}})
	if w := b.State(at(4)).Workers[0]; len(w.Builds) != 2 {
		t.Errorf("%v: want builds 1 and 3", w.Builds)
	}
	b.Add(server, true, queue.Report{At: at(5), WholeWorkers: true})
	if s := b.State(at(6)); len(s.Workers) != 0 || s.Servers[0].Workers.Value.All() != 0 || !s.Servers[0].Workers.Known {
		t.Errorf("%+v", s.Workers)
	}
}

// Every build of a run of 500 is joined with what its agent tells, a retry as a build
// of its own, whoever tells first.
func TestBoard_joinsAgents(t *testing.T) {
	b := newBoard()
	r := whole(0)
	var agents []queue.AgentBuild
	id := 0
	for n := range 500 {
		id++
		if n%10 == 0 { // the first try failed; the second has an id of its own
			first := job(id, cimeter.JobFailed)
			first.Attempt = 1
			r.Jobs = append(r.Jobs, first)
			id++
		}
		j := job(id, cimeter.JobRunning)
		j.StartedAt, j.Attempt = at(0), 1
		if n%10 == 0 {
			j.Attempt = 2
		}
		r.Jobs = append(r.Jobs, j)
		agents = append(agents, queue.AgentBuild{Key: j.Key, Machine: "ci-1", Stage: "step_script", StartedAt: at(2)})
	}
	b.Look(at(1), agents) // before the server tells
	b.Add(server, true, r)
	ended := b.Look(at(5), agents)
	st := wantCounts(t, b, 5, "0 waiting, 0 blocked, 500 running")
	retries := 0
	for _, v := range st.Builds {
		if !v.Metered || v.Machine != "ci-1" || v.Wait.Starting != 2 {
			t.Fatalf("not joined: %+v", v)
		}
		if v.Attempt == 2 {
			retries++
		}
	}
	if retries != 50 || len(ended) != 50 {
		t.Errorf("%d retries, %d ended: want 50 of each", retries, len(ended))
	}
}

// A machine that slept has not seen what a build waited for meanwhile.
func TestBoard_waitUnseen(t *testing.T) {
	b := newBoard()
	r := whole(0, tagged(1, "arm"))
	r.Workers, r.WholeWorkers = []cimeter.Worker{worker("b", "idle", 1, 0)}, true
	b.Add(server, true, r)
	for _, s := range []float64{0, 30, 330, 340} {
		b.Look(at(s), nil)
	}
	if w := b.State(at(340)).Builds[0].Wait; w.NoWorker != 40 {
		t.Errorf("%+v: want 30 and 10 s without a worker", w)
	}
}

// The order of a build's tags says nothing, and who is offline has no slot.
func TestBoard_tagsAndSlots(t *testing.T) {
	b := newBoard()
	for n := range 25 {
		j := tagged(100+n, "arm", "docker")
		if n%2 == 0 {
			j.Tags = []string{"docker", "arm"}
		}
		j.Status, j.StartedAt, j.QueueSeconds = cimeter.JobRunning, at(float64(n)), cimeter.Some(30.0)
		b.Add(server, false, one(float64(n), j))
	}
	r := one(30, tagged(1, "arm", "docker"))
	gone := worker("b", "offline", 4, 0)
	r.Workers, r.WholeWorkers = []cimeter.Worker{worker("a", "busy", 2, 2, "arm", "docker"), gone}, true
	b.Add(server, false, r)
	b.Look(at(30), nil)
	st := b.State(at(30))
	if s := st.Servers[0].Slots; s != cimeter.Some(2) {
		t.Errorf("%+v slots, want 2", s)
	}
	if e := st.Builds[0].Start; st.Builds[0].Number != "1" || !e.Known || e.Value.Samples != 25 {
		t.Errorf("%s starts %+v: want it told by 25 waits", st.Builds[0].Number, e)
	}
}
